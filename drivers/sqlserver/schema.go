package sqlserver

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/relational"
)

// dialect is SQL Server.
var dialect = relational.Dialect{
	Quotes: "[]", MaxName: maxName, NameLength: utf16Length,
	View: relational.ViewParts{
		Rows:    "select t.tenant_id, t.id, t.version, t.document from %s as t where t.id_bytes > 0x",
		Of:      " and t.tenant_id in ('%s')",
		Without: " and t.tenant_id not in ('%s')",
		Comma:   "', '",
		Union:   "\nunion all ",
	},
	NoTable:     func(err error) bool { return numberOf(err) == errorNoObject },
	LockTimeout: func(err error) bool { return numberOf(err) == errorLockTimeout },
	Transient:   transient,
	Unavailable: unavailable,
}

const (
	schema  = relational.Schema
	maxName = 128 // of a table, column, view or index, in UTF-16 code units
)

// utf16Length returns the length in UTF-16 code units, as SQL Server counts.
func utf16Length(text string) (n int) {
	for _, r := range text {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}

// keyPrefix begins the names of key columns and their indexes; a declared path follows.
const keyPrefix = "key "

// keyName returns the name of the key column for a path; pathOfKey reverses it. The database may treat names that
// differ in case or accents as equal. So a capital becomes "^" and the letter, and any character other than a letter,
// digit, dot or underscore becomes "%" and its bytes' hexadecimal digits. ok is false if the path is too long to have a
// column.
func keyName(path string) (name string, ok bool) {
	var text strings.Builder
	text.WriteString(keyPrefix)
	for i := range len(path) {
		switch c := path[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '.', c == '_':
			text.WriteByte(c)
		case 'A' <= c && c <= 'Z':
			text.WriteByte('^')
			text.WriteByte(c + 'a' - 'A')
		default:
			fmt.Fprintf(&text, "%%%02x", c)
		}
	}
	return text.String(), text.Len() <= maxName
}

// pathOfKey returns the path for which keyName returned the name.
func pathOfKey(name string) string {
	rest := strings.TrimPrefix(name, keyPrefix)
	path := make([]byte, 0, len(rest))
	for i := 0; i < len(rest); i++ {
		switch {
		case rest[i] == '^' && i+1 < len(rest):
			i++
			path = append(path, strings.ToUpper(rest[i:i+1])...)
		case rest[i] == '%' && i+2 < len(rest):
			c, _ := hex.DecodeString(rest[i+1 : i+3]) // keyName writes two digits
			path = append(path, c...)
			i += 2
		default:
			path = append(path, rest[i])
		}
	}
	return string(path)
}

// keyColumn returns the quoted name of a path's key column.
func keyColumn(path string) string {
	name, _ := keyName(path)
	return dialect.Quote(name)
}

// literal quotes a text constant for statements that take no parameters.
func literal(text string) string { return "N'" + strings.ReplaceAll(text, "'", "''") + "'" }

// probe asks what prepareDatabase must know. The collation exists from SQL Server 2019 on.
const probe = `select convert(int, coalesce(collationproperty('Latin1_General_100_BIN2_UTF8', 'CodePage'), 0)),
	d.compatibility_level, convert(int, serverproperty('EngineEdition')), d.is_read_committed_snapshot_on, case when schema_id('` + schema + `') is null then 0 else 1 end
from sys.databases as d where d.name = db_name();
`

// settings holds the probe's result.
type settings struct {
	codePage, level, edition int
	snapshot, schema         bool
}

// abilities lists the differences between servers and databases that affect the statements.
type abilities struct {
	locking  bool // read_committed_snapshot is off
	patterns bool // REGEXP_LIKE exists
	online   bool // an index can be built while others read and write
}

// Compatibility levels. The first has everything that the statements use (TRANSLATE and a way to read JSON); the second
// adds regular expressions.
const (
	minCompatibility     = 140
	patternCompatibility = 170
)

// The editions (serverproperty('EngineEdition')) that can build indexes online.
const (
	editionEnterprise = 3 // also Developer and Evaluation
	editionDatabase   = 5 // Azure SQL Database
	editionInstance   = 8 // Azure SQL Managed Instance
)

// abilities returns what the server supports, or an error if it does not support enough.
func (s settings) abilities() (abilities, error) {
	switch {
	case s.codePage == 0:
		return abilities{}, errors.New("the server is older than SQL Server 2019")
	case s.level < minCompatibility:
		return abilities{}, fmt.Errorf("the database has compatibility level %d; it needs %d or more: alter database ... set compatibility_level = 150", s.level, minCompatibility)
	}
	return abilities{
		locking:  !s.snapshot,
		patterns: s.level >= patternCompatibility,
		online:   s.edition == editionEnterprise || s.edition == editionDatabase || s.edition == editionInstance,
	}, nil
}

// prepareDatabase does what Open promises.
func (d *Driver) prepareDatabase(ctx context.Context) error {
	found, err := read(ctx, d, statement{sql: probe}, func(rows *sql.Rows) (s settings, err error) {
		err = rows.Scan(&s.codePage, &s.level, &s.edition, &s.snapshot, &s.schema)
		return s, err
	})
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return errors.New("the database's settings cannot be read in sys.databases")
	}
	if d.server, err = found[0].abilities(); err != nil {
		return err
	}
	if d.server.locking {
		d.log.WarnContext(ctx, "the documents' database has read_committed_snapshot off: reads and saves of a tenant's documents wait for each other")
	}
	if !found[0].schema {
		err := d.define(ctx, schema, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "if schema_id('"+schema+"') is null exec('create schema "+schema+"');\n")
			return err
		})
		if err != nil {
			return fmt.Errorf("make the schema %s: %w", schema, err)
		}
	}
	common := table{name: dialect.InSchema(drivers.CommonTable)}
	if err := d.makeTable(ctx, common); err != nil {
		return err
	}
	if err := d.makeKeysTable(ctx); err != nil {
		return err
	}
	// A table that an older release created lacks this index.
	return d.define(ctx, common.name, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, common.checkpointsSQL())
		return err
	})
}

// define runs do in a transaction that excludes every other define for the same name, in any process, because checking
// for an object and creating it are two steps. define may be called again for the same thing.
func (d *Driver) define(ctx context.Context, name string, do func(tx *sql.Tx) error) error {
	_, err := try(ctx, d, func(ctx context.Context, conn *sql.Conn) (_ struct{}, err error) {
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return struct{}{}, err
		}
		defer func() {
			if err != nil {
				_ = tx.Rollback() // the server has already ended the transaction
			}
		}()
		got, err := number(ctx, tx, lockName(name))
		if err != nil {
			return struct{}{}, err
		}
		if got < 0 {
			return struct{}{}, fmt.Errorf("another process has locked %s for too long (sp_getapplock: %d)", name, got)
		}
		if err := do(tx); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, tx.Commit()
	})
	return err
}

// lockName waits for the name's lock, which belongs to the transaction. The result is negative if the lock was not
// obtained.
func lockName(name string) statement {
	return statement{
		sql: "set lock_timeout " + lockWait + ";\n" +
			"declare @got int;\nexec @got = sp_getapplock @Resource = @name, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = " + lockWait + ";\nselect @got;\n",
		args: []any{sql.Named("name", "manifold documents "+name)},
	}
}

// exists returns 1 if there is a table of that name.
func exists(name string) statement {
	return statement{sql: "select case when object_id(@name, 'U') is null then 0 else 1 end;\n", args: []any{sql.Named("name", name)}}
}

// mustExist returns drivers.ErrNoTable if there is no such table.
func mustExist(ctx context.Context, on queryer, table string) error {
	there, err := number(ctx, on, exists(table))
	if err == nil && there == 0 {
		return drivers.ErrNoTable
	}
	return err
}

// createSQL creates a table of documents. A key column has no default: a save that does not know of it fails instead of
// omitting it, and reads the table's columns again.
func (t table) createSQL() []string {
	keys := ""
	for _, path := range t.keys {
		keys += "\t" + keyColumn(path) + " varbinary(" + strconv.Itoa(maxKeyBytes) + ") not null,\n"
	}
	partition := ""
	if t.partition != "" {
		partition = "\t" + partitionColumn(t.partition) + " binary(" + strconv.Itoa(partitionBytes) + ") not null,\n"
	}
	return []string{
		"create table " + t.name + " (\n" +
			"\ttenant_id uniqueidentifier not null,\n" +
			"\tbuild bigint not null,\n" +
			"\tid_bytes varbinary(512) not null,\n" +
			"\tid nvarchar(512) not null,\n" +
			"\tversion bigint not null,\n" +
			"\tdocument varchar(max) collate " + binaryUTF8Name + ",\n" +
			keys + partition +
			"\tcheck (document is null or isjson(document) = 1),\n" +
			"\tprimary key clustered (tenant_id, build, id_bytes)\n) with (data_compression = page);\n",
		"alter table " + t.name + " set (lock_escalation = disable);\n",
		t.checkpointsSQL(),
	}
}

// checkpointsSQL creates the index by which the checkpoints of all tenants are found without reading the documents, if
// it does not exist.
func (t table) checkpointsSQL() string {
	return "if not exists (select * from sys.indexes where object_id = object_id(" + literal(t.name) + ") and name = N'checkpoints')\n" +
		"create index [checkpoints] on " + t.name + " (build, tenant_id) include (version) where id_bytes = 0x;\n"
}

// makeTable creates a table of documents, completely or not at all; an existing one stays as it is.
func (d *Driver) makeTable(ctx context.Context, table table) error {
	return d.define(ctx, table.name, func(tx *sql.Tx) error {
		if found, err := number(ctx, tx, exists(table.name)); err != nil || found == 1 {
			return err
		}
		for _, sql := range table.createSQL() {
			if _, err := tx.ExecContext(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// CreateTemporaryTable creates the table of a shared projection's build. It has a key column for each of build.Indexes,
// paths such as "customer.name", and a column for build.PartitionBy. The columns of a table never change.
func (d *Driver) CreateTemporaryTable(ctx context.Context, build domain.Build) error {
	if !build.Shared() {
		return nil
	}
	table := tableOf(build)
	for _, path := range build.Indexes {
		if _, ok := keyName(path); ok {
			table.keys = append(table.keys, path)
		}
	}
	if _, ok := partitionName(build.PartitionBy); ok {
		table.partition = build.PartitionBy
	}
	return drivers.BuildError("make the table of", build, d.makeTable(ctx, table))
}

// columnNames returns the names of a table's columns for paths.
func columnNames(table string) statement {
	return statement{
		sql: readSettings + "select c.name from sys.columns as c where c.object_id = object_id(@name) and (c.name like N'" + keyPrefix + "%' or c.name like N'" + partitionPrefix + "%')\n" +
			"order by c.column_id;\n",
		args: []any{sql.Named("name", table)},
	}
}

// columns lists the paths for which a table has columns.
type columns struct {
	keys      []string
	partition string // empty: none
}

// parseColumns returns the columns with these names.
func parseColumns(names []string) (found columns) {
	for _, name := range names {
		if path, ok := strings.CutPrefix(name, partitionPrefix); ok {
			found.partition = pathOfKey(path)
		} else {
			found.keys = append(found.keys, pathOfKey(name))
		}
	}
	return found
}

// columnsOf returns the paths for which the build's table has columns.
func (d *Driver) columnsOf(ctx context.Context, build domain.Build) (columns, error) {
	if !build.Shared() {
		return columns{}, nil
	}
	name := dialect.Table(build)
	if known, ok := d.columns.Load(name); ok {
		return known.(columns), nil
	}
	names, err := read(ctx, d, columnNames(name), func(rows *sql.Rows) (name string, err error) {
		err = rows.Scan(&name)
		return name, err
	})
	return parseColumns(names), err
}

// withColumns runs do with the build's table and its columns. The columns are read once and cached. If the database
// reports that they differ, because the table was dropped and created again, withColumns reads them again.
func withColumns[T any](ctx context.Context, d *Driver, build domain.Build, do func(table table) (T, error)) (value T, err error) {
	for retried := false; ; retried = true {
		table := tableOf(build)
		columns, err := d.columnsOf(ctx, build)
		if err != nil {
			return value, err
		}
		table.keys, table.partition, table.server = columns.keys, columns.partition, d.server
		if !build.Shared() {
			table.places = build.Indexes
		}
		value, err = do(table)
		if err == nil {
			if build.Shared() {
				d.columns.Store(table.name, columns)
			}
			return value, nil
		}
		d.columns.Delete(table.name)
		if number := numberOf(err); retried || number != errorNoColumn && number != errorNull {
			return value, err
		}
	}
}

// IndexTable creates an index for each of build.Indexes that has a key column. A path has none if it was declared after
// the table was created, or if its name is too long; it does without an index. If the table has a column for the
// partition, that column precedes the key columns, and also has a separate index.
func (d *Driver) IndexTable(ctx context.Context, build domain.Build) error {
	if !build.Shared() {
		return nil
	}
	_, err := withColumns(ctx, d, build, func(table table) (struct{}, error) {
		var indexes []string
		if table.partition != "" {
			indexes = append(indexes, table.partitionIndexSQL())
		}
		for _, path := range build.Indexes {
			if !slices.Contains(table.keys, path) {
				d.log.WarnContext(ctx, "a declared path has no index: it is too long, or the table was made before it was declared", "projection", build.Name, "build", build.Number, "path", path)
				continue
			}
			indexes = append(indexes, table.indexSQL(path), table.descendingIndexSQL(path))
		}
		// Each index has a separate transaction: what an online build locks at its end would otherwise stay locked
		// until the last index is built. At least one transaction runs, to find out whether the table exists.
		for _, index := range append(indexes, "") {
			err := d.define(ctx, table.name, func(tx *sql.Tx) error {
				err := mustExist(ctx, tx, table.name)
				if err == nil && index != "" {
					_, err = tx.ExecContext(ctx, index)
				}
				return err
			})
			if err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return drivers.BuildError("index the table of", build, dialect.Error(err))
}

// descendingSuffix ends the name of the descending index: no key column's name has a blank there.
const descendingSuffix = " desc"

// indexSQL creates the index of a path if it does not exist. Every index implicitly contains the rest of the primary
// key.
func (t table) indexSQL(path string) string {
	name, _ := keyName(path)
	return t.makeIndexSQL(name, t.indexed(path))
}

// descendingIndexSQL creates the index for pages in descending order, in which ids ascend.
func (t table) descendingIndexSQL(path string) string {
	name, _ := keyName(path)
	return t.makeIndexSQL(name+descendingSuffix, t.indexed(path)+" desc, id_bytes")
}

// indexed returns the columns of a path's index after the build's.
func (t table) indexed(path string) string {
	if t.partition != "" {
		return partitionColumn(t.partition) + ", " + keyColumn(path)
	}
	return keyColumn(path)
}

// partitionIndexSQL creates the index of the partition alone if it does not exist.
func (t table) partitionIndexSQL() string {
	name, _ := partitionName(t.partition)
	return t.makeIndexSQL(name, partitionColumn(t.partition))
}

func (t table) makeIndexSQL(name, columns string) string {
	online := ""
	if t.server.online {
		online = " with (online = on)"
	}
	return "if not exists (select * from sys.indexes where object_id = object_id(" + literal(t.name) + ") and name = " + literal(dialect.Shorten(name)) + ")\n" +
		"create index " + dialect.Quote(name) + " on " + t.name + " (tenant_id, build, " + columns + ")" + online + ";\n"
}

// DropTable drops a shared build's table with the view that may still show it. For a tenant's own build it removes the
// rows.
func (d *Driver) DropTable(ctx context.Context, build domain.Build) error {
	var err error
	if build.Shared() {
		view, table := dialect.ViewName(build.Name), dialect.Table(build)
		d.columns.Delete(table)
		err = d.defineShortly(ctx, relational.DropPatience, view, func(tx *sql.Tx) error {
			shows, err := number(ctx, tx, viewShows(view, table))
			if err != nil {
				return err
			}
			if shows == 1 {
				if _, err := tx.ExecContext(ctx, "drop view "+view+";\n"); err != nil {
					return err
				}
			}
			_, err = tx.ExecContext(ctx, "drop table if exists "+table+";\n")
			return err
		})
	} else {
		err = d.dropRows(ctx, build, build.Owner)
	}
	return drivers.BuildError("drop", build, dialect.Error(err))
}

// defineShortly is define with a short lock timeout. It retries a few times.
func (d *Driver) defineShortly(ctx context.Context, patience relational.Patience, name string, do func(tx *sql.Tx) error) error {
	return dialect.RetryLocks(ctx, patience, func() error {
		return d.define(ctx, name, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "set lock_timeout "+strconv.FormatInt(patience.Wait.Milliseconds(), 10)+";\n"); err != nil {
				return err
			}
			return do(tx)
		})
	})
}
