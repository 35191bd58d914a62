package postgres

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// Builds of tenants' own projections share a table, so a path that they declare cannot have an index there. The table
// of keys has the sort key of each document at each declared path instead:
//
//	(tenant_id, build, id, place, key)   place: of the path among build.Indexes, from 1
//
// A save writes the keys of its documents, from the documents as they are stored. It also moves the row with place 0
// and the empty id, the keys' own checkpoint. Keys are complete as long as that is the build's checkpoint. Where it is
// not, since an earlier release has saved documents, queries read the documents. Repairs by an earlier release, which
// do not move the checkpoint, go unnoticed until the document is saved again.

const keysTable = schema + "." + drivers.KeysTable // needs no quotes

// keepsKeys reports whether saves write the keys of a build's documents.
func (d *Driver) keepsKeys(build domain.Build) bool {
	return !build.Shared() && len(build.Indexes) > 0
}

// makeKeysTable creates the table of keys, if it does not exist. In a distributed database its rows are on the nodes of
// their documents.
func (d *Driver) makeKeysTable(ctx context.Context) error {
	if exists, err := tableExists(ctx, d.pool.QueryRow, keysTable); err != nil || exists {
		return err
	}
	statements := slices.Concat([]string{
		`create table %[1]s (
			tenant_id uuid not null,
			build     bigint not null,
			id        text collate "C" not null,
			place     smallint not null,
			key       text collate "C" not null,
			position  bigint, -- of the checkpoint
			primary key (tenant_id, build, id, place)
		) with (fillfactor = 90)`,
		`create index "document_keys/order" on %[1]s (tenant_id, build, place, key, id) where id <> ''`,
		`alter table %[1]s enable row level security`,
	}, d.policies())
	if d.becomeViews {
		statements = append(statements, grantToLogin)
	} else {
		statements = append(statements, `alter table %[1]s force row level security`)
	}
	if d.withLog { // otherwise grantTables would, in several processes at once
		statements = append(statements, grantToAppRole)
	}
	return d.define(ctx, keysTable, func(tx pgx.Tx) error {
		if exists, err := tableExists(ctx, tx.QueryRow, keysTable); err != nil || exists {
			return err
		}
		if err := executeOn(ctx, tx, keysTable, statements); err != nil {
			return err
		}
		if d.distributed {
			return migrations.DistributeByTenant(ctx, tx, keysTable, besideInCluster(keysTable))
		}
		return nil
	})
}

// Conditions on the rows of $1 and $2: that the transaction has moved the checkpoint to the mark $3, and that a build's
// keys are complete.
const (
	ifMoved = `exists (select from ` + commonTable + ` c where c.tenant_id = $1::uuid and c.build = $2::bigint and c.id = '' and c.version = $3::bigint)`
	ifKeyed = `exists (select from ` + keysTable + ` m
		join ` + commonTable + ` c on c.tenant_id = m.tenant_id and c.build = m.build and c.id = m.id and c.version = m.position
		where m.tenant_id = $1::uuid and m.build = $2::bigint and m.id = '' and m.place = 0)`
)

// saveKeys returns the step that writes the keys of stored documents.
func saveKeys(build domain.Build, key [][]byte, mark []byte, documents []domain.Document, isNew bool) statement {
	values := make([]string, len(build.Indexes))
	for i, path := range build.Indexes {
		values[i] = "(" + strconv.Itoa(i+1) + "::smallint, " + keyExpression(pathExpression(literals(path), false)) + ")"
	}
	return statement{
		unprepared: true,
		sql:        saveKeysSQL("(values "+strings.Join(values, ", ")+")", isNew),
		encodeArgs: func() [][]byte { return append(key[:2:2], mark, idsParam(documents)) },
	}
}

// saveKeysSQL writes the keys of stored documents, from rows of places and keys. New documents have none yet. Of
// others, it writes those that differ: "on conflict" would lock and log the rows of the same keys, too. They are looked
// up by a subquery that cannot become a join, which might read all of the build's keys for each document.
func saveKeysSQL(rows string, isNew bool) string {
	sql := `insert into ` + keysTable + ` as k (tenant_id, build, id, place, key)
			select d.tenant_id, d.build, d.id, p.place, p.key
			from unnest($4::text[]) as w (id)
			cross join lateral (select t.* from ` + commonTable + ` t where t.tenant_id = $1::uuid and t.build = $2::bigint and t.id = w.id and ` + ifMoved + ` offset 0) d
			cross join lateral ` + rows + ` as p (place, key)`
	if isNew {
		return sql
	}
	return sql + `
			where (select s.key from ` + keysTable + ` s where s.tenant_id = $1::uuid and s.build = $2::bigint and s.id = d.id and s.place = p.place) is distinct from p.key
			on conflict (tenant_id, build, id, place) do update set key = excluded.key`
}

func idsParam(documents []domain.Document) []byte {
	ids := make([]string, len(documents))
	for i := range documents {
		ids[i] = documents[i].ID
	}
	return pg.TextsParam(ids)
}

// saveKeysIn is the statement of saveKeys in an append's transaction. There, statements stay prepared, so it is the
// same one whatever the paths: they are an argument. A path in jsonpath leads, in strict mode, only through objects as
// well.
var saveKeysIn = saveKeysSQL(`(
				select i.place::smallint, `+keyExpression("jsonb_path_query_first(d.document, i.path::jsonpath, '{}', true)")+`
				from unnest($5::text[]) with ordinality as i (path, place))`, false)

// keysIn returns the statements that write the keys of a batch, and move their checkpoint, in an append's transaction
// that has saved it.
func keysIn(build domain.Build, key [][]byte, batch drivers.Batch) (statements []domain.Statement) {
	mark := pg.Int8Param(batch.To)
	if len(batch.Upserts) > 0 {
		paths := make([]string, len(build.Indexes))
		for i, declared := range build.Indexes {
			paths[i] = `strict $."` + strings.Join(drivers.DeclaredPath(declared), `"."`) + `"`
		}
		statements = append(statements, domain.Statement{
			Name: "manifold_save_keys", SQL: saveKeysIn, Params: append(key[:2:2], mark, idsParam(batch.Upserts), pg.TextsParam(paths)),
		})
	}
	for _, deletion := range batch.Deletes {
		remove := removeKeys(key, mark, deletion.ID)
		statements = append(statements, domain.Statement{Name: "manifold_remove_keys", SQL: remove.sql, Params: remove.args})
	}
	name := "manifold_move_keys"
	if batch.From == 0 {
		name = "manifold_first_keys"
	}
	move := moveKeys(key, mark, batch.From, batch.To)
	return append(statements, domain.Statement{Name: name, SQL: move.sql, Params: move.args})
}

// removeKeys returns the step that removes the keys of a document that is no longer stored.
func removeKeys(key [][]byte, mark []byte, id string) statement {
	return statement{
		sql: `delete from ` + keysTable + ` k where k.tenant_id = $1::uuid and k.build = $2::bigint and k.id = $4::text and k.place > 0 and ` + ifMoved + `
			and not exists (select from ` + commonTable + ` t where t.tenant_id = $1::uuid and t.build = $2::bigint and t.id = $4::text)`,
		args: append(key[:2:2], mark, []byte(id)),
	}
}

// moveKeys returns the step that moves the keys' checkpoint beside the build's, which is at mark. A build's first
// checkpoint may come after many documents, also of an earlier release, which wrote no keys.
func moveKeys(key [][]byte, mark []byte, from, to int64) statement {
	args := append(key[:2:2], mark, pg.Int8Param(to))
	if from == 0 {
		return statement{args: args, sql: `insert into ` + keysTable + ` (tenant_id, build, id, place, key, position)
			select c.tenant_id, c.build, '', 0, '', $4::bigint from ` + commonTable + ` c
			where c.tenant_id = $1::uuid and c.build = $2::bigint and c.id = '' and c.version = $3::bigint and
				(select count(*) from ` + commonTable + ` t where t.tenant_id = $1::uuid and t.build = $2::bigint and t.id > '') =
				(select count(*) from ` + keysTable + ` k where k.tenant_id = $1::uuid and k.build = $2::bigint and k.place = 1 and k.id <> '')
			on conflict do nothing`}
	}
	return statement{args: append(args, pg.Int8Param(from)), sql: `update ` + keysTable + ` set position = $4::bigint
		where tenant_id = $1::uuid and build = $2::bigint and id = '' and place = 0 and position = $5::bigint and ` + ifMoved}
}

// dropKeys removes a build's keys, in slices.
func (d *Driver) dropKeys(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	if build.Shared() {
		return nil
	}
	for {
		removed, err := d.transact(ctx, "begin", tenant, []statement{{
			sql: `delete from ` + keysTable + ` k using (
					select s.id, s.place from ` + keysTable + ` s where s.tenant_id = $1::uuid and s.build = $2::bigint order by s.id, s.place limit $3
				) s where k.tenant_id = $1::uuid and k.build = $2::bigint and k.id = s.id and k.place = s.place`,
			args: [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number), pg.Int8Param(dropSlice)},
		}})
		if err != nil || removed[0] < dropSlice {
			return err
		}
	}
}

// place returns the place of a declared path among the build's indexes, from 1; 0: its documents have no keys there.
func (q *query) place(path domain.Path) int {
	if !q.keyed {
		return 0
	}
	return 1 + slices.IndexFunc(q.build.Indexes, func(declared string) bool { return slices.Equal(drivers.DeclaredPath(declared), path) })
}

// maxLookups is how many documents are looked up by their keys in a range. A look-up takes some five times as long as a
// document that is read with its neighbours.
const maxLookups = 10_000

// ifInRange is the condition that the keys in a range find its documents: keys are complete, and there are not too
// many. Only the database knows.
const ifInRange = "(select usable from range_keys)"

// rangeOf returns the tables that a statement begins with to find documents by the keys in a range, see ifInRange and
// fromRange. It is the first range that all documents matching the filter are in. ok is false if there is none that
// keys can find, or if the general index finds the documents. It is called after where.
func (q *query) rangeOf(where domain.Predicate) (tables string, ok bool) {
	parts, ok := where.(domain.And)
	if !ok {
		parts = domain.And{where}
	}
	place, ranges := 0, []keyRange(nil)
	for _, part := range parts {
		leaf, ok := q.keyRange(part)
		if !ok {
			continue
		}
		if at := q.place(leaf.path); at > 0 && (place == 0 || place == at) {
			place, ranges = at, append(ranges, leaf)
		}
	}
	if place == 0 || q.generalUsable {
		return "", false
	}
	id := "select k.id from " + keysTable + " k where k.tenant_id = $1::uuid and k.build = $2::bigint and k.id <> '' and k.place = " + strconv.Itoa(place) + " and "
	ids := id + q.between("k.key", ranges)
	if longTextsMatch(ranges) {
		ids += " union all " + id + "k.key = " + q.text(drivers.KeyUnordered)
	}
	return "in_range as materialized (" + ids + " limit " + strconv.Itoa(maxLookups+1) + "), range_keys as materialized (select " + ifKeyed +
		" and (select count(*) from in_range) <= " + strconv.Itoa(maxLookups) + " as usable), ", true
}

// fromRange is fromCondition by the keys in a range: their ids are sorted, and each document is looked up. The caller
// adds the condition ifInRange, after those that may spare reading the keys.
func (q *query) fromRange(source, condition string) string {
	return "from (select id from in_range order by id) k cross join lateral (select version, document " +
		q.fromCondition(source, condition) + " and id = k.id offset 0) d where true"
}

// byKeys is the page in an order that begins with the path at a place. It has the slices of a page by an index, read
// from the keys with one look-up for each document, and one more slice for a build whose keys are not complete.
func (p *page) byKeys(place int, after *domain.SortKey) string {
	plain := p.sortedSlice(after, " and not "+ifKeyed)
	p.from = "from " + keysTable + " k cross join lateral (select version, document " + p.from + " and id = k.id offset 0) d" +
		" where k.tenant_id = $1::uuid and k.build = $2::bigint and k.id <> '' and k.place = " + strconv.Itoa(place) + " and " + ifKeyed
	p.keys[0] = "k.key"
	p.inOrder(after)
	p.slices = append(p.slices, plain)
	return p.statement()
}

// sortedRange is a page in an order that nothing has, of documents that keys in a range find.
func (p *page) sortedRange(tables, source, matches string, after *domain.SortKey) string {
	plain := p.sortedSlice(after, " and not "+ifInRange)
	p.tables, p.from = tables, p.fromRange(source, matches)
	found := p.sortedSlice(after, " and "+ifInRange)
	found.name = "found"
	p.slices = append(p.slices, found, plain)
	return p.statement()
}

// countRange counts the matching documents by keys in a range.
func (q *query) countRange(tables, source, matches string) string {
	return "with " + strings.TrimSuffix(tables, ", ") + " select (select count(*) " + q.fromRange(source, matches) + " and " + ifInRange + ") + (select count(*) " +
		q.fromCondition(source, matches) + " and not " + ifInRange + ")"
}
