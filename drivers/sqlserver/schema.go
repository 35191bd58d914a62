package sqlserver

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

const (
	schema      = "manifold_documents"
	commonTable = "documents"
	maxName     = 128 // of a table, column, view or index, in UTF-16 code units
)

// identifier quotes a name of a table, column, view or index. A name that is too long keeps its beginning and gets a hash
// of the whole. "~" is in no projection's name, so that no name can be taken for a
// shortened one.
func identifier(name string) string {
	return "[" + strings.ReplaceAll(shortened(name), "]", "]]") + "]"
}

// shortened is the name as the catalog has it.
func shortened(name string) string {
	const hashed = 16
	if units(name) <= maxName {
		return name
	}
	hash := sha256.Sum256([]byte(name))
	kept, length := 0, 0
	for i, r := range name {
		kept = i
		if length += units(string(r)); length > maxName-hashed-1 {
			break
		}
	}
	return name[:kept] + "~" + hex.EncodeToString(hash[:hashed/2])
}

// units is the length in UTF-16 code units, as SQL Server counts.
func units(text string) (n int) {
	for _, r := range text {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}

// tableName is the build's table as it stands in a statement. The names of shared builds' tables have a number behind a ".",
// where a projection's name has a letter, so that tables and views cannot meet.
func tableName(build domain.Build) string {
	if !build.Shared() {
		return schema + "." + identifier(commonTable)
	}
	return schema + "." + identifier(buildName(build))
}

func buildName(build domain.Build) string {
	return build.Name + "." + strconv.FormatInt(build.Number, 10)
}

// viewName is the public name of a shared projection: the projection's own, but for the one that the common table has, and
// those that would then be taken for it.
func viewName(projection string) string {
	if projection == commonTable || strings.HasPrefix(projection, commonTable+".") {
		projection += ".public"
	}
	return schema + "." + identifier(projection)
}

// keyPrefix begins the names of key columns and their indexes; a declared path follows.
const keyPrefix = "key "

// keyName is the name of the key column for a path, from which pathOfKey makes the path again. The database may take
// names that differ in case or accents for one: a capital is "^" and the letter, and what is no letter, digit, dot or
// underscore is "%" and its bytes' hexadecimal digits. ok is false for a path that is too long to have a column.
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

// pathOfKey is the path for which keyName gave the name.
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

// keyColumn is the quoted name of a path's key column.
func keyColumn(path string) string {
	name, _ := keyName(path)
	return identifier(name)
}

// literal quotes a text constant where a statement takes no parameter.
func literal(text string) string { return "N'" + strings.ReplaceAll(text, "'", "''") + "'" }

// probe asks what prepareDatabase has to know. The collation is known from SQL Server 2019 on.
const probe = `select convert(int, coalesce(collationproperty('Latin1_General_100_BIN2_UTF8', 'CodePage'), 0)),
	d.compatibility_level, convert(int, serverproperty('EngineEdition')), d.is_read_committed_snapshot_on, case when schema_id('` + schema + `') is null then 0 else 1 end
from sys.databases as d where d.name = db_name();
`

// settings are the probe's answer.
type settings struct {
	codePage, level, edition int
	snapshot, schema         bool
}

// abilities are what the statements take notice of, of all in which servers and databases differ.
type abilities struct {
	locking  bool // read_committed_snapshot is off
	patterns bool // there is REGEXP_LIKE
	online   bool // an index can be built while others read and write
}

// Compatibility levels: from which on there is all that the statements use, TRANSLATE and a way of reading JSON; and from
// which on there are regular expressions.
const (
	minCompatibility     = 140
	patternCompatibility = 170
)

// The editions (serverproperty('EngineEdition')) that build indexes online.
const (
	editionEnterprise = 3 // also Developer and Evaluation
	editionDatabase   = 5 // Azure SQL Database
	editionInstance   = 8 // Azure SQL Managed Instance
)

// abilities says what the server can do, or why it will not do.
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

// prepareDatabase makes what Open promises.
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
		d.log.WarnContext(ctx, "the documents' database has read_committed_snapshot off: those who read a tenant's documents and those who save them wait for one another")
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
	common := table{name: schema + "." + identifier(commonTable)}
	if err := d.makeTable(ctx, common); err != nil {
		return err
	}
	// One that an older release has made has none.
	return d.define(ctx, common.name, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, common.checkpointsSQL())
		return err
	})
}

// define runs do in a transaction that no other define for the same name, in any process, overlaps: looking whether
// something is there and making it are two steps. What do asks for may be asked for again.
func (d *Driver) define(ctx context.Context, name string, do func(tx *sql.Tx) error) error {
	_, err := try(ctx, d, func(ctx context.Context, conn *sql.Conn) (_ struct{}, err error) {
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return struct{}{}, err
		}
		defer func() {
			if err != nil {
				_ = tx.Rollback() // what the server has ended already is no transaction any more
			}
		}()
		got, err := number(ctx, tx, lockName(name))
		if err != nil {
			return struct{}{}, err
		}
		if got < 0 {
			return struct{}{}, fmt.Errorf("another process has been at %s for long (sp_getapplock: %d)", name, got)
		}
		if err := do(tx); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, tx.Commit()
	})
	return err
}

// lockName waits for the name's lock, which is the transaction's. It gives a number below zero if the lock was not got.
func lockName(name string) statement {
	return statement{
		sql: "set lock_timeout " + lockWait + ";\n" +
			"declare @got int;\nexec @got = sp_getapplock @Resource = @name, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = " + lockWait + ";\nselect @got;\n",
		args: []any{sql.Named("name", "manifold documents "+name)},
	}
}

// exists is 1 if there is a table or view of that name.
func exists(name string) statement {
	return statement{sql: "select case when object_id(@name) is null then 0 else 1 end;\n", args: []any{sql.Named("name", name)}}
}

// createSQL makes a table of documents. A key column has no default: a save that knew nothing of it would fail rather
// than leave it out, and read again which columns there are.
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

// checkpointsSQL makes the index by which the checkpoints of all tenants are found without reading the documents, if it is
// not there.
func (t table) checkpointsSQL() string {
	return "if not exists (select * from sys.indexes where object_id = object_id(" + literal(t.name) + ") and name = N'checkpoints')\n" +
		"create index [checkpoints] on " + t.name + " (build, tenant_id) include (version) where id_bytes = 0x;\n"
}

// makeTable makes a table of documents, whole or not at all; one that is there stays as it is.
func (d *Driver) makeTable(ctx context.Context, table table) error {
	return d.define(ctx, table.name, func(tx *sql.Tx) error {
		if there, err := number(ctx, tx, exists(table.name)); err != nil || there == 1 {
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

// CreateTemporaryTable makes the table of a shared projection's build, with a key column for each of build.Indexes: paths
// such as "customer.name", and a column for build.PartitionBy. The columns of a table never change.
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
	if err := d.makeTable(ctx, table); err != nil {
		return fmt.Errorf("make the table of build %d of %s: %w", build.Number, build.Name, err)
	}
	return nil
}

// columnNames gives the names of a table's columns for paths.
func columnNames(table string) statement {
	return statement{
		sql: readSettings + "select c.name from sys.columns as c where c.object_id = object_id(@name) and (c.name like N'" + keyPrefix + "%' or c.name like N'" + partitionPrefix + "%')\n" +
			"order by c.column_id;\n",
		args: []any{sql.Named("name", table)},
	}
}

// columns are the paths that a table has columns for.
type columns struct {
	keys      []string
	partition string // empty: none
}

// columnsNamed are the columns of these names.
func columnsNamed(names []string) (found columns) {
	for _, name := range names {
		if path, ok := strings.CutPrefix(name, partitionPrefix); ok {
			found.partition = pathOfKey(path)
		} else {
			found.keys = append(found.keys, pathOfKey(name))
		}
	}
	return found
}

// columnsOf gives the paths that the build's table has columns for.
func (d *Driver) columnsOf(ctx context.Context, build domain.Build) (columns, error) {
	if !build.Shared() {
		return columns{}, nil
	}
	name := tableName(build)
	if known, ok := d.columns.Load(name); ok {
		return known.(columns), nil
	}
	names, err := read(ctx, d, columnNames(name), func(rows *sql.Rows) (name string, err error) {
		err = rows.Scan(&name)
		return name, err
	})
	return columnsNamed(names), err
}

// withColumns runs do with the build's table and its columns. Which those are is asked once and kept; where the
// database says that they are others, because the table was dropped and made again, it is asked anew.
func withColumns[T any](ctx context.Context, d *Driver, build domain.Build, do func(table table) (T, error)) (value T, err error) {
	for fresh := false; ; fresh = true {
		table := tableOf(build)
		there, err := d.columnsOf(ctx, build)
		if err != nil {
			return value, err
		}
		table.keys, table.partition, table.server = there.keys, there.partition, d.server
		value, err = do(table)
		if err == nil {
			if build.Shared() {
				d.columns.Store(table.name, there)
			}
			return value, nil
		}
		d.columns.Delete(table.name)
		if number := numberOf(err); fresh || number != errorNoColumn && number != errorNull {
			return value, err
		}
	}
}

// IndexTable makes an index for each of build.Indexes that the table has a key column for. A path that was declared
// only after the table was made has none, nor has one whose name is too long; they do without an index. Where the table has
// a column for the partition, that stands before the key columns, and has an index alone.
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
		// Each is a transaction of its own: what one that was built online locks at its end would be locked until the last is
		// built. There is one at least, which finds out that there is a table.
		for _, index := range append(indexes, "") {
			err := d.define(ctx, table.name, func(tx *sql.Tx) error {
				if there, err := number(ctx, tx, exists(table.name)); err != nil {
					return err
				} else if there == 0 {
					return drivers.ErrNoTable
				}
				if index == "" {
					return nil
				}
				_, err := tx.ExecContext(ctx, index)
				return err
			})
			if err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return fmt.Errorf("index the table of build %d of %s: %w", build.Number, build.Name, mend(err))
	}
	return nil
}

// descendingSuffix ends the name of the index that descends: no name of a key column has a blank there.
const descendingSuffix = " desc"

// indexSQL makes the index of a path, if it is not there. The rest of the primary key is in every index by itself.
func (t table) indexSQL(path string) string {
	name, _ := keyName(path)
	return t.makeIndexSQL(name, t.indexed(path))
}

// descendingIndexSQL makes the index by which a page in descending order is read: ids ascend in it.
func (t table) descendingIndexSQL(path string) string {
	name, _ := keyName(path)
	return t.makeIndexSQL(name+descendingSuffix, t.indexed(path)+" desc, id_bytes")
}

// indexed are the columns of a path's index behind the build's.
func (t table) indexed(path string) string {
	if t.partition != "" {
		return partitionColumn(t.partition) + ", " + keyColumn(path)
	}
	return keyColumn(path)
}

// partitionIndexSQL makes the index of the partition alone, if it is not there.
func (t table) partitionIndexSQL() string {
	name, _ := partitionName(t.partition)
	return t.makeIndexSQL(name, partitionColumn(t.partition))
}

func (t table) makeIndexSQL(name, columns string) string {
	online := ""
	if t.server.online {
		online = " with (online = on)"
	}
	return "if not exists (select * from sys.indexes where object_id = object_id(" + literal(t.name) + ") and name = " + literal(shortened(name)) + ")\n" +
		"create index " + identifier(name) + " on " + t.name + " (tenant_id, build, " + columns + ")" + online + ";\n"
}

// A view or table that somebody is reading cannot be exchanged or dropped, and whoever comes after the one that waits
// for that waits as well. So waiting is short, and repeated.
const (
	swapWait  = 50 * time.Millisecond
	swapTries = 10
	dropWait  = 2 * time.Second // nobody reads a table that is to go
	dropTries = 3
)

// DropTable drops a shared build's table with the view that may still show it, and removes the rows of a tenant's own
// build.
func (d *Driver) DropTable(ctx context.Context, build domain.Build) error {
	var err error
	if build.Shared() {
		view, table := viewName(build.Name), tableName(build)
		d.columns.Delete(table)
		err = d.shortly(ctx, dropWait, dropTries, view, func(tx *sql.Tx) error {
			shown, err := number(ctx, tx, shows(view, table))
			if err != nil {
				return err
			}
			if shown == 1 {
				if _, err := tx.ExecContext(ctx, "drop view "+view+";\n"); err != nil {
					return err
				}
			}
			_, err = tx.ExecContext(ctx, "drop table if exists "+table+";\n")
			return err
		})
	} else {
		err = d.dropRows(ctx, tableOf(build), build.Owner)
	}
	if err != nil {
		return fmt.Errorf("drop build %d of %s: %w", build.Number, build.Name, mend(err))
	}
	return nil
}

// shortly is define with a short patience for locks, tried again a few times.
func (d *Driver) shortly(ctx context.Context, wait time.Duration, tries int, name string, do func(tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		err := d.define(ctx, name, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "set lock_timeout "+strconv.FormatInt(wait.Milliseconds(), 10)+";\n"); err != nil {
				return err
			}
			return do(tx)
		})
		if numberOf(err) != errorLockTimeout || try == tries {
			return err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)): // lets those pass who queued behind
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
