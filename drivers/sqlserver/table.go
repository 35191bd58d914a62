package sqlserver

import (
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// table is a table of documents as one build uses it. Its methods build the statements.
type table struct {
	name  string   // quoted, with its schema
	build int64    // number of the build whose rows are used
	keys  []string // the declared paths that have key columns, in the order of the columns

	partition string // the path of the partition's column; empty: none

	places []string // the paths whose sort keys are in the table of keys, see keys.go; a build has these or keys

	server abilities
}

// tableOf returns the build's table without its key columns and the server's abilities, which withColumns adds.
func tableOf(build domain.Build) table { return table{name: dialect.Table(build), build: build.Number} }

// paths returns the steps of each path whose sort keys are stored, followed by the partition's if there is one.
func (t table) paths() (paths []domain.Path) {
	for _, key := range slices.Concat(t.keys, t.places) {
		paths = append(paths, drivers.DeclaredPath(key))
	}
	if t.partition != "" {
		paths = append(paths, drivers.DeclaredPath(t.partition))
	}
	return paths
}

// of returns the parameters that identify the rows' tenant and build.
func (t table) of(tenant domain.TenantID, more ...sql.NamedArg) []any {
	args := []any{sql.Named("tenant", mssql.VarChar(tenant.String())), sql.Named("build", t.build)}
	for _, arg := range more {
		args = append(args, arg)
	}
	return args
}

// Every batch begins with the settings that it needs. A connection comes from the pool with the server's defaults.
const (
	// lockWait is how many milliseconds a statement waits for a lock. A session that holds one for longer is not
	// working but stuck.
	lockWait = "10000"

	readSettings = "set nocount on;\nset lock_timeout " + lockWait + ";\n"
	// With xact_abort, any error rolls back the whole transaction, and so does a client that disconnects.
	writeSettings = readSettings + "set xact_abort on;\n"
)

// fromBatch makes each row of a batch one look-up in the primary key. The optimizer assumes 50 rows for any JSON, and
// might otherwise read all of a tenant's rows.
const fromBatch = "option (loop join, force order);\n"

// where selects the rows of a tenant's build.
const where = "t.tenant_id = @tenant and t.build = @build"

// moveSQL is the compare-and-set. It affects 1 row if the checkpoint was as expected. Of two workers that both find no
// checkpoint, one inserts the row, and the other waits for it and gets a duplicate key. A hint that locks the place of
// the future row (holdlock) would do the same, but would also lock the gap to the next row, and with it other tenants.
//
// The row is read under a lock (updlock), which waits for any session that is changing it. An update usually takes such
// locks anyway. But with optimized locking, as in Azure SQL, it reads what was last committed instead.
func (t table) moveSQL(from int64) string {
	if from > 0 {
		return "update t set version = @to from " + t.name + " as t with (updlock, rowlock) where " + where + " and t.id_bytes = 0x and t.version = @from;\n"
	}
	columns, values := "", ""
	for _, key := range t.keys {
		columns += ", " + keyColumn(key)
		values += ", 0x"
	}
	if t.partition != "" {
		columns += ", " + partitionColumn(t.partition)
		values += ", 0x"
	}
	return "insert into " + t.name + " (tenant_id, build, id_bytes, id, version" + columns + ")\n" +
		"select @tenant, @build, 0x, N'', @to" + values + "\n" +
		"where not exists (select * from " + t.name + " as t where " + where + " and t.id_bytes = 0x);\n"
}

func (t table) moveArgs(tenant domain.TenantID, batch drivers.Batch) []any {
	args := t.of(tenant, sql.Named("to", batch.To))
	if batch.From > 0 {
		args = append(args, sql.Named("from", batch.From))
	}
	return args
}

// saveInOneTrip saves in one round trip. The result is 1, or 0 if the batch is stale.
func (t table) saveInOneTrip(tenant domain.TenantID, batch drivers.Batch, part part) statement {
	partSQL, partArgs := t.partSQL(part)
	if batch.To == 0 {
		partSQL += t.removeMarkSQL()
	}
	return statement{
		sql: writeSettings +
			"begin transaction;\n" +
			t.moveSQL(batch.From) +
			"if @@rowcount = 1\nbegin\n" + partSQL + t.moveKeysSQL(batch) + "commit transaction;\nselect 1;\nend\n" +
			"else\nbegin\nrollback transaction;\nselect 0;\nend;\n",
		args: append(t.moveArgs(tenant, batch), partArgs...),
	}
}

// removeMarkSQL removes the row that moveSQL has inserted for a batch that leaves the build without a checkpoint.
func (t table) removeMarkSQL() string {
	return "delete t from " + t.name + " as t with (rowlock) where " + where + " and t.id_bytes = 0x;\n"
}

// removeMark is the last statement of such a save in parts.
func (t table) removeMark(tenant domain.TenantID) statement {
	return statement{sql: writeSettings + t.removeMarkSQL(), args: t.of(tenant)}
}

// moveKeys is the last statement of a save in parts that moves the checkpoint of a build with keys.
func (t table) moveKeys(tenant domain.TenantID, batch drivers.Batch) statement {
	return statement{sql: writeSettings + t.moveKeysSQL(batch), args: t.moveArgs(tenant, batch)}
}

// moveCheckpoint is the first statement of a save in parts. The result is 1, or 0 if the batch is stale.
func (t table) moveCheckpoint(tenant domain.TenantID, batch drivers.Batch) statement {
	return statement{sql: writeSettings + t.moveSQL(batch.From) + "select @@rowcount;\n", args: t.moveArgs(tenant, batch)}
}

// savePart is a further statement of a save in parts.
func (t table) savePart(tenant domain.TenantID, part part) statement {
	partSQL, partArgs := t.partSQL(part)
	return statement{sql: writeSettings + partSQL, args: append(t.of(tenant), partArgs...)}
}

// binaryUTF8Name is the collation of texts stored as UTF-8, which takes half the space of nvarchar for most documents.
const binaryUTF8Name = "Latin1_General_100_BIN2_UTF8"

// staged returns the columns of a part's documents on the server before they are written: each column of the table for
// which a document has a value, and the keys that the table of keys has.
func (t table) staged() (names, types []string) {
	names = []string{"id_bytes", "id", "version", "document"}
	types = []string{"varbinary(512) not null primary key", "nvarchar(512) not null", "bigint not null", "varchar(max) collate " + binaryUTF8Name + " not null"}
	for i := range len(t.keys) + len(t.places) {
		names = append(names, "k"+strconv.Itoa(i))
		types = append(types, "varbinary("+strconv.Itoa(maxKeyBytes)+") not null")
	}
	if t.partition != "" {
		names = append(names, "p")
		types = append(types, "binary("+strconv.Itoa(partitionBytes)+") not null")
	}
	return names, types
}

// columns returns the table's columns that hold the staged ones.
func (t table) columns() []string {
	columns := []string{"id_bytes", "id", "version", "document"}
	for _, path := range t.keys {
		columns = append(columns, keyColumn(path))
	}
	if t.partition != "" {
		columns = append(columns, partitionColumn(t.partition))
	}
	return columns
}

// define returns the list of columns with their types.
func define(names, types []string) string {
	defined := make([]string, len(names))
	for i := range names {
		defined[i] = names[i] + " " + types[i]
	}
	return "(" + strings.Join(defined, ", ") + ")"
}

// upsertSQL writes the staged documents of a source. It inserts new ones first: if all are new, as in a first save, it
// searches for nothing to update. It does not use MERGE, which has a history of bugs, and is no more atomic than two
// statements under the checkpoint's lock.
func (t table) upsertSQL(source string) string {
	names, _ := t.staged()
	columns := t.columns()
	values, set := make([]string, len(columns)), make([]string, 0, len(columns))
	for i, name := range names[:len(columns)] { // the places' keys are the last
		values[i] = "b." + name
		if i >= 2 { // the id does not change
			set = append(set, columns[i]+" = "+values[i])
		}
	}
	return "insert into " + t.name + " (tenant_id, build, " + strings.Join(columns, ", ") + ")\n" +
		"select @tenant, @build, " + strings.Join(values, ", ") + " from " + source + " as b\n" +
		"where not exists (select * from " + t.name + " as t where " + where + " and t.id_bytes = b.id_bytes)\n" + fromBatch +
		"if @@rowcount < (select count(*) from " + source + ")\n" +
		"update t set " + strings.Join(set, ", ") + " from " + source + " as b\n" +
		"inner join " + t.name + " as t with (rowlock, forceseek) on " + where + " and t.id_bytes = b.id_bytes\n" +
		"where t.version < b.version\n" + fromBatch
}

// partSQL writes a part's documents. They are read once, into a variable.
//
// No conversion truncates anything: this package produces the ids and keys, which are at most as long as their columns.
func (t table) partSQL(part part) (text string, args []any) {
	if len(part.upserts) > 0 {
		names, types := t.staged()
		with, values := "", ""
		for i := range len(t.keys) + len(t.places) {
			n := strconv.Itoa(i)
			with += ", k" + n + " varchar(" + strconv.Itoa(2*maxKeyBytes) + ") '$.k" + n + "'"
			values += ", convert(varbinary(" + strconv.Itoa(maxKeyBytes) + "), j.k" + n + ", 2)"
		}
		if t.partition != "" {
			with += ", p varchar(32) '$.p'"
			values += ", convert(binary(16), j.p, 2)"
		}
		text += "declare @b table " + define(names, types) + ";\n" +
			"insert into @b (" + strings.Join(names, ", ") + ")\n" +
			"select convert(varbinary(512), j.id_bytes, 2), j.id, j.version, convert(varchar(max), j.document collate " + binaryUTF8Name + ")" + values + "\n" +
			"from openjson(@upserts) with (id_bytes varchar(1024) '$.b', id nvarchar(512) '$.i', version bigint '$.v', document nvarchar(max) '$.d'" + with + ") as j;\n" +
			t.saveKeysSQL("@b") + t.upsertSQL("@b")
		args = append(args, sql.Named("upserts", encodeRows(part.upserts)))
	}
	if len(part.deletes) > 0 {
		text += t.removeKeysSQL() + "delete t\n" + fromDeletes +
			"inner join " + t.name + " as t with (rowlock, forceseek) on " + where + " and t.id_bytes = " + deletedKey + "\n" +
			"where t.version < b.version\n" + fromBatch
		args = append(args, sql.Named("deletes", encodeRows(part.deletes)))
	}
	return text, args
}

// fromDeletes is the source of the documents to remove, and deletedKey the id of one.
const (
	fromDeletes = "from openjson(@deletes) with (id_bytes varchar(1024) '$.b', version bigint '$.v') as b\n"
	deletedKey  = "convert(varbinary(512), b.id_bytes, 2)"
)

// stage is the temporary table, of one connection, into which the documents of a save in parts are copied. The copied
// text is UTF-16, whatever the type of the table's column.
const stage = "#manifold_stage"

func (t table) createStage() statement {
	names, types := t.staged()
	types[3] = "nvarchar(max) not null"
	return statement{sql: writeSettings + "drop table if exists " + stage + ";\ncreate table " + stage + " " + define(names, types) + ";\n"}
}

// saveStage writes the documents of the stage, and empties it.
func (t table) saveStage(tenant domain.TenantID) statement {
	return statement{sql: writeSettings + t.saveKeysSQL(stage) + t.upsertSQL(stage) + "truncate table " + stage + ";\n", args: t.of(tenant)}
}

func (t table) checkpoint(tenant domain.TenantID) statement {
	return statement{
		sql:  readSettings + "select t.version from " + t.name + " as t where " + where + " and t.id_bytes = 0x;\n",
		args: t.of(tenant),
	}
}

// checkpoints needs only the index of checkpoints.
func (t table) checkpoints() statement {
	return statement{
		sql:  readSettings + "select t.tenant_id, t.version from " + t.name + " as t where t.build = @build and t.id_bytes = 0x;\n",
		args: []any{sql.Named("build", t.build)},
	}
}

// ownCheckpoints needs only the common table's index of checkpoints.
func ownCheckpoints() statement {
	return statement{sql: readSettings + "select t.tenant_id, t.build, t.version from " + dialect.InSchema(drivers.CommonTable) + " as t where t.id_bytes = 0x;\n"}
}

// consistent makes a select see all of a save or nothing of it. See the package comment.
func (t table) consistent(locking bool, query string) string {
	if !locking {
		return readSettings + query
	}
	return writeSettings + "begin transaction;\n" +
		"declare @checkpoint bigint = (select t.version from " + t.name + " as t with (rowlock, holdlock) where " + where + " and t.id_bytes = 0x);\n" +
		query + "commit transaction;\n"
}

// documentColumns are the columns of a document. The client receives UTF-16, which it accepts from every server,
// whatever the type of the table's column.
const documentColumns = "t.id_bytes, t.version, convert(nvarchar(max), t.document) as document"

func (t table) load(locking bool, tenant domain.TenantID, ids []string) statement {
	return statement{
		sql: t.consistent(locking, "select "+documentColumns+"\nfrom openjson(@ids) with (id_bytes varchar(1024) '$') as b\n"+
			"inner join "+t.name+" as t with (forceseek) on "+where+" and t.id_bytes = convert(varbinary(512), b.id_bytes, 2)\n"+fromBatch),
		args: t.of(tenant, sql.Named("ids", encodeIDs(ids))),
	}
}

func (t table) get(tenant domain.TenantID, id string) statement {
	return statement{
		sql:  readSettings + "select " + documentColumns + " from " + t.name + " as t where " + where + " and t.id_bytes = convert(varbinary(513), @id, 2);\n",
		args: t.of(tenant, sql.Named("id", hexadecimal([]byte(id)))),
	}
}

// dropCheckpoint waits for a save in progress, even for a first one, whose row is not committed yet: see moveSQL.
func (t table) dropCheckpoint(tenant domain.TenantID) statement {
	return statement{
		sql:  writeSettings + "delete t from " + t.name + " as t with (updlock, rowlock) where " + where + " and t.id_bytes = 0x;\n",
		args: t.of(tenant),
	}
}

// dropRows is how many rows one statement of a drop removes.
const dropRows = 1000

// dropSlice removes the first documents after an id, and returns the last removed id, or null if there was none.
func (t table) dropSlice(tenant domain.TenantID, after []byte) statement {
	return statement{
		sql: writeSettings + fmt.Sprintf("declare @after_bytes varbinary(512) = convert(varbinary(512), @after, 2);\n"+
			"declare @last_bytes varbinary(512) = (select top (1) s.id_bytes from (\n"+
			"select top (%d) t.id_bytes from %s as t where %s and t.id_bytes > @after_bytes order by t.id_bytes) as s order by s.id_bytes desc);\n"+
			"delete t from %[2]s as t with (rowlock) where %[3]s and t.id_bytes > @after_bytes and t.id_bytes <= @last_bytes;\n"+
			"select @last_bytes;\n", dropRows, t.name, where),
		args: t.of(tenant, sql.Named("after", hexadecimal(after))),
	}
}
