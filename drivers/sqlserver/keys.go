package sqlserver

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Builds of tenants' own projections share a table, so a path that they declare cannot have a key column there. The
// table of keys has the sort key of each document at each declared path instead:
//
//	(tenant_id, build, id_bytes, place, sort_key)   place: of the path among build.Indexes, from 1
//
// A save writes the keys of the documents that it writes. It also moves the row with place 0 and the empty id, the
// keys' own checkpoint. Keys are complete as long as that is the build's checkpoint. Where it is not, since an earlier
// release has saved documents, queries read the documents. Repairs by an earlier release, which do not move the
// checkpoint, go unnoticed until the document is saved again.
//
// Batches first ask whether the keys can be used, so that no work is done in vain. The statement that reads documents
// by keys asks again, in its own snapshot: keys that are no longer complete do not become complete again.

var keysTable = dialect.InSchema(drivers.KeysTable)

// keysOf selects the rows of a tenant's build.
const keysOf = "k.tenant_id = @tenant and k.build = @build"

// createKeysSQL creates the table of keys. The longest key of an index has 1,541 bytes of the 1,700 that are possible.
func createKeysSQL() []string {
	return []string{
		"create table " + keysTable + " (\n" +
			"\ttenant_id uniqueidentifier not null,\n" +
			"\tbuild bigint not null,\n" +
			"\tid_bytes varbinary(512) not null,\n" +
			"\tplace int not null,\n" +
			"\tsort_key varbinary(" + strconv.Itoa(maxKeyBytes) + ") not null,\n" +
			"\tposition bigint,\n" + // of the checkpoint
			"\tprimary key clustered (tenant_id, build, id_bytes, place)\n) with (data_compression = page);\n",
		"alter table " + keysTable + " set (lock_escalation = disable);\n",
		"create index [ascending] on " + keysTable + " (tenant_id, build, place, sort_key, id_bytes);\n",
		"create index [descending] on " + keysTable + " (tenant_id, build, place, sort_key desc, id_bytes);\n",
	}
}

// makeKeysTable creates the table of keys, if it does not exist.
func (d *Driver) makeKeysTable(ctx context.Context) error {
	return d.define(ctx, keysTable, func(tx *sql.Tx) error {
		if found, err := number(ctx, tx, exists(keysTable)); err != nil || found == 1 {
			return err
		}
		for _, sql := range createKeysSQL() {
			if _, err := tx.ExecContext(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// keyed reports whether saves write keys of the build's documents.
func (t table) keyed() bool { return len(t.places) > 0 }

// saveKeysSQL writes the keys of the staged documents of a source that upsertSQL will write.
func (t table) saveKeysSQL(source string) string {
	if !t.keyed() {
		return ""
	}
	values := make([]string, len(t.places))
	for i := range values {
		values[i] = fmt.Sprintf("(%d, b.k%d)", i+1, i)
	}
	keys := "from " + source + " as b\ncross apply (values " + strings.Join(values, ", ") + ") as p (place, sort_key)\n"
	older := "not exists (select * from " + t.name + " as t where " + where + " and t.id_bytes = b.id_bytes and t.version >= b.version)\n"
	return "insert into " + keysTable + " (tenant_id, build, id_bytes, place, sort_key)\n" +
		"select @tenant, @build, b.id_bytes, p.place, p.sort_key " + keys +
		"where not exists (select * from " + keysTable + " as k where " + keysOf + " and k.id_bytes = b.id_bytes and k.place = p.place)\n" +
		"and " + older + fromBatch +
		"if @@rowcount < " + strconv.Itoa(len(values)) + " * (select count(*) from " + source + ")\n" +
		"update k set sort_key = p.sort_key " + keys +
		"inner join " + keysTable + " as k with (rowlock, forceseek) on " + keysOf + " and k.id_bytes = b.id_bytes and k.place = p.place\n" +
		"where k.sort_key <> p.sort_key and " + older + fromBatch
}

// removeKeysSQL removes the keys of the documents in @deletes that will be removed.
func (t table) removeKeysSQL() string {
	if !t.keyed() {
		return ""
	}
	return "delete k\n" + fromDeletes +
		"inner join " + t.name + " as t with (forceseek) on " + where + " and t.id_bytes = " + deletedKey + "\n" +
		"inner join " + keysTable + " as k with (rowlock, forceseek) on " + keysOf + " and k.id_bytes = t.id_bytes\n" +
		"where t.version < b.version\n" + fromBatch
}

// moveKeysSQL moves the keys' checkpoint after the build's was moved. A build's first checkpoint may come after many
// documents, also of an earlier release, which wrote no keys; and that of an earlier life of the build may be left.
func (t table) moveKeysSQL(batch drivers.Batch) string {
	const checkpoint = keysOf + " and k.id_bytes = 0x and k.place = 0"
	switch {
	case !t.keyed() || batch.IsRepair():
		return ""
	case batch.From > 0:
		return "update k set position = @to from " + keysTable + " as k with (rowlock) where " + checkpoint + " and k.position = @from;\n"
	}
	return "delete k from " + keysTable + " as k with (rowlock) where " + checkpoint + ";\n" +
		"insert into " + keysTable + " (tenant_id, build, id_bytes, place, sort_key, position)\n" +
		"select @tenant, @build, 0x, 0, 0x, @to\n" +
		"where (select count_big(*) from " + t.name + " as t where " + where + " and t.id_bytes > 0x)\n" +
		"= (select count_big(*) from " + keysTable + " as k where " + keysOf + " and k.place = 1);\n"
}

// dropKeys removes a build's keys, in slices.
func (d *Driver) dropKeys(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	for {
		removed, err := try(ctx, d, func(ctx context.Context, conn *sql.Conn) (int64, error) {
			return number(ctx, conn, tableOf(build).dropKeysSlice(tenant))
		})
		if err != nil || removed < dropRows {
			return err
		}
	}
}

// dropKeysSlice removes some keys, and returns their number.
func (t table) dropKeysSlice(tenant domain.TenantID) statement {
	return statement{
		sql:  writeSettings + fmt.Sprintf("delete top (%d) k from %s as k with (rowlock) where %s;\nselect @@rowcount;\n", dropRows, keysTable, keysOf),
		args: t.of(tenant),
	}
}

// ifKeyed is true if the build's keys are complete.
func (t table) ifKeyed() string {
	return "exists (select * from " + keysTable + " as k inner join " + t.name + " as t on " + where + " and t.id_bytes = k.id_bytes and t.version = k.position\n" +
		"where " + keysOf + " and k.id_bytes = 0x and k.place = 0)"
}

// place returns the place of a declared path, from 1; 0: its documents have no keys there.
func (t table) place(path domain.Path) int {
	return 1 + slices.IndexFunc(t.places, func(declared string) bool { return slices.Equal(drivers.DeclaredPath(declared), path) })
}

// byKeys is a way to find documents by the keys of one path: all of them, in their order, or a range.
type byKeys struct {
	path   domain.Path
	atMost int // keys in the range; 0: no range
}

func (w byKeys) ranged() bool { return w.atMost > 0 }

// maxLookups is how many documents are looked up by the keys in a range. Each takes more than a document that is read
// with its neighbors. Before keys in the page's order, which may soon fill the page, a range of a tenth is worth the
// attempt.
const (
	maxLookups    = 10_000
	narrowLookups = maxLookups / 10
)

// What a batch reports of the keys, in the first column of its rows.
const (
	keysUsed       = 1
	keysIncomplete = 0
	keysTooMany    = -1
)

// waysByKeys returns the ways to find a page by keys, the best first. Keys in the page's order are read until the page
// is full, so few documents that equal something, or are in a narrow range, are better found and sorted.
func (t table) waysByKeys(predicate domain.Predicate, order []domain.Order) []byKeys {
	if !t.keyed() {
		return nil
	}
	inRange, equality := t.rangeOf(predicate)
	if len(order) != 1 || t.place(order[0].Path) == 0 {
		return inRange
	}
	inOrder := byKeys{path: order[0].Path}
	if len(inRange) == 0 || slices.Equal(inRange[0].path, inOrder.path) {
		return []byKeys{inOrder}
	}
	if !equality {
		inRange[0].atMost = narrowLookups
	}
	return append(inRange, inOrder)
}

// rangeOf returns the way by the first range of declared keys that all matching documents are in, if there is one. An
// equality takes precedence.
func (t table) rangeOf(predicate domain.Predicate) (ways []byKeys, equality bool) {
	for _, part := range conjunction(predicate) {
		path, equal := narrowed(part)
		if t.place(path) == 0 || equality || len(ways) > 0 && !equal {
			continue
		}
		scratch := newQuery(t, domain.TenantID{})
		scratch.keyPath = path
		if scratch.narrowing(part) != "" {
			ways, equality = []byKeys{{path: path, atMost: maxLookups}}, equal
		}
	}
	return ways, equality
}

// conjunction returns the predicates that all matching documents meet.
func conjunction(predicate domain.Predicate) []domain.Predicate {
	if parts, ok := predicate.(domain.And); ok {
		return parts
	}
	return []domain.Predicate{predicate}
}

// narrowed returns the path of a predicate that narrowing may narrow, and whether it asks for values and not for a
// range.
func narrowed(predicate domain.Predicate) (path domain.Path, equal bool) {
	switch p := predicate.(type) {
	case domain.Compare:
		return p.Path, p.Comparison == domain.Equal
	case domain.OneOf:
		return p.Path, true
	case domain.Text:
		return p.Path, false
	}
	return nil, false
}

// readByKeys lets a query read documents by keys. It returns the beginning of its batch, which declares @usable. It is
// called before condition.
func (q *query) readByKeys(way byKeys, predicate domain.Predicate) string {
	q.keyPath = way.path
	keys := "k.id_bytes, k.sort_key from " + keysTable + " as k where " + keysOf + " and k.place = " + strconv.Itoa(q.table.place(way.path))
	usable := fmt.Sprintf("case when not %s then %d", q.table.ifKeyed(), keysIncomplete)
	if way.ranged() {
		for _, part := range conjunction(predicate) {
			if path, _ := narrowed(part); slices.Equal(path, way.path) {
				if narrow := q.narrowing(part); narrow != "" {
					keys += "\nand " + narrow
				}
			}
		}
		usable += fmt.Sprintf("\nwhen (select count(*) from (select top (%d) %s) as k) > %d then %d", way.atMost+1, keys, way.atMost, keysTooMany)
		// Any number, since there may be more in the snapshot that is read. A select has an order only with "top".
		keys = fmt.Sprintf("select top (%d) %s\norder by k.id_bytes", math.MaxInt64, keys)
	} else {
		keys = "select " + keys
	}
	q.idColumn = "k.id_bytes"
	q.source = "(\n" + keys + "\n) as k\ninner join " + q.table.name + " as t with (forceseek) on " + where + " and t.id_bytes = k.id_bytes\n"
	return fmt.Sprintf("declare @usable int = %s\nelse %d end;\n", usable, keysUsed)
}

// ifUsable returns a batch that runs a select if the keys can be used. empty is the columns that it returns otherwise,
// after @usable.
func ifUsable(declared, query, empty string) string {
	return declared + "if @usable = 1\nbegin\n" + query + "end\nelse\nselect @usable, " + empty + ";\n"
}

// keyedNow is a row that says whether the keys are complete in the statement's own snapshot.
func (t table) keyedNow() string {
	return "(select case when " + t.ifKeyed() + " then 1 else 0 end as keyed) as f\n"
}

// pageByKeys builds the select of a page by keys. Its first column is one of the constants above; if it is keysUsed,
// documents follow, or one row without any.
func (t table) pageByKeys(locking bool, tenant domain.TenantID, way byKeys, request domain.DocumentQuery) (statement, error) {
	q := newQuery(t, tenant)
	request = withoutRepetitions(request)
	q.args = append(q.args, sql.Named("limit", int64(request.Limit)))
	declared := q.readByKeys(way, request.Where)
	conditions, err := q.pageConditions(request, way)
	if err != nil {
		return statement{}, err
	}
	ids, order := q.pageIDs(request, conditions)
	text := "select f.keyed, " + documentColumns + "\nfrom " + t.keyedNow() +
		"left join (\n" + ids + ") as o on f.keyed = 1\n" +
		"left join " + t.name + " as t with (forceseek) on " + where + " and t.id_bytes = o.id_bytes\n" +
		"order by " + order + "o.id_bytes\n" + orderedRecompile
	return statement{sql: t.consistent(locking, ifUsable(declared, text, "null, null, null")), args: q.args}, nil
}

// countByKeys builds the select of a count by keys in a range. Its first column is one of the constants above.
func (t table) countByKeys(locking bool, tenant domain.TenantID, way byKeys, predicate domain.Predicate) (statement, error) {
	q := newQuery(t, tenant)
	declared := q.readByKeys(way, predicate)
	q.keyPath = nil // the range is in the source
	condition, err := q.condition(predicate)
	if err != nil {
		return statement{}, err
	}
	text := "select f.keyed, c.matching\nfrom " + t.keyedNow() +
		"cross join (\nselect count_big(*) as matching\nfrom " + q.source + q.sources.String() + "where " + condition + "\n) as c\n" + orderedRecompile
	return statement{sql: t.consistent(locking, ifUsable(declared, text, "null")), args: q.args}, nil
}

// keyedRow is a row of pageByKeys or countByKeys.
type keyedRow struct {
	usable   int
	document domain.Document // without id: there is none
	count    int64
}

// findByKeys runs the statements of the ways in turn until the keys of one can be used. It reads documents of up to
// about maxBytes, if that is not 0. ok is false if the keys of none can be used.
func findByKeys(ctx context.Context, d *Driver, ways []byKeys, maxBytes int, build func(way byKeys) (statement, error), scan func(rows *sql.Rows) (keyedRow, error)) (found []keyedRow, ok bool, err error) {
	for _, way := range ways {
		statement, err := build(way)
		if err != nil {
			return nil, false, err
		}
		found, err := try(ctx, d, func(ctx context.Context, conn *sql.Conn) ([]keyedRow, error) {
			size := 0
			return collect(ctx, conn, statement, scan, func(row keyedRow) bool {
				size += len(row.document.Data)
				return maxBytes > 0 && size >= maxBytes
			})
		})
		switch {
		case err != nil:
			return nil, false, err
		case len(found) == 0 || found[0].usable == keysIncomplete:
			return nil, false, nil
		case found[0].usable == keysUsed:
			return found, true, nil
		}
	}
	return nil, false, nil
}

func scanKeyedDocument(rows *sql.Rows) (row keyedRow, err error) {
	var id []byte
	var version sql.NullInt64
	var data sql.NullString
	err = rows.Scan(&row.usable, &id, &version, &data)
	row.document = domain.Document{ID: string(id), Version: version.Int64, Data: []byte(data.String)}
	return row, err
}

func scanKeyedCount(rows *sql.Rows) (row keyedRow, err error) {
	var count sql.NullInt64
	err = rows.Scan(&row.usable, &count)
	row.count = count.Int64
	return row, err
}

// queryByKeys is Query by keys; ok is false if they cannot be used.
func (d *Driver) queryByKeys(ctx context.Context, table table, tenant domain.TenantID, request domain.DocumentQuery) (documents []domain.Document, ok bool, err error) {
	found, ok, err := findByKeys(ctx, d, table.waysByKeys(request.Where, withoutRepetitions(request).Order), request.MaxBytes, func(way byKeys) (statement, error) {
		return table.pageByKeys(d.server.locking, tenant, way, request)
	}, scanKeyedDocument)
	for _, row := range found {
		if row.document.ID != "" {
			documents = append(documents, row.document)
		}
	}
	return documents, ok, err
}

// countByKeys is Count by keys; ok is false if they cannot be used.
func (d *Driver) countByKeys(ctx context.Context, table table, tenant domain.TenantID, predicate domain.Predicate) (count int64, ok bool, err error) {
	ways, _ := table.rangeOf(predicate)
	found, ok, err := findByKeys(ctx, d, ways, 0, func(way byKeys) (statement, error) {
		return table.countByKeys(d.server.locking, tenant, way, predicate)
	}, scanKeyedCount)
	if !ok || err != nil {
		return 0, false, err
	}
	return found[0].count, true, nil
}
