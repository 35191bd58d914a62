package eventlog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Readers learn from floors what retention has removed. A category's floor is the highest removed position; a stream's
// floor is the version that it had when its newest event was removed. Both are written in the transaction that removes
// the events. A reader that reads events first and the floor after them, in a separate snapshot, sees the floor of
// everything that it has missed.

// ofCategories restricts retention_floors as f to the categories of a parameter; none: all.
const ofCategories = `(cardinality($2::text[]) = 0 or f.category = any($2::text[]))`

var (
	removedTo = pg.Statement{Name: "manifold_removed_to", SQL: `
		select coalesce(max(f.removed_to), 0) from retention_floors as f where f.tenant_id = $1::uuid and ` + ofCategories}
	floors = pg.Statement{Name: "manifold_floors", SQL: `
		select f.category, f.announced_to, f.removed_to, f.removed from retention_floors as f
		where f.tenant_id = $1::uuid and ` + ofCategories + ` and greatest(f.announced_to, f.removed_to) >= $3::bigint
		order by f.category`}
	streamFloor = pg.Statement{Name: "manifold_stream_floor", SQL: `
		select f.version from stream_floors as f where f.tenant_id = $1::uuid and f.stream_id = $2::text`}
)

// LogSlice is ReadLog, and reports what retention has removed of the query's categories.
func (s *Log) LogSlice(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) (domain.LogSlice, error) {
	var slice domain.LogSlice
	var err error
	slice.Events, err = s.readLog(ctx, tenant, q, removedToQuery(tenant, q.Categories, &slice.RemovedTo))
	return slice, err
}

// StreamSlice is ReadStream, and reports what retention has removed of the stream and of its category.
func (s *Log) StreamSlice(ctx context.Context, tenant domain.TenantID, stream string, q domain.StreamQuery) (domain.StreamSlice, error) {
	var slice domain.StreamSlice
	var err error
	slice.Events, err = s.readStream(ctx, tenant, stream, q,
		pg.Query{Statement: &streamFloor, Params: [][]byte{pg.TenantParam(tenant), []byte(stream)}, Row: func(values [][]byte) error {
			slice.Floor = max(slice.Floor, pg.Int8Value(values[0]))
			return nil
		}},
		removedToQuery(tenant, []string{domain.Category(stream)}, &slice.RemovedTo))
	return slice, err
}

// removedToQuery reads the highest removed position of the categories; none: of all. If it runs several times,
// as with each page of a read, the highest counts: floors only rise, but a replica may show an older one.
func removedToQuery(tenant domain.TenantID, categories []string, highest *int64) pg.Query {
	return pg.Query{Statement: &removedTo, Params: [][]byte{pg.TenantParam(tenant), pg.TextsParam(categories)}, Row: func(values [][]byte) error {
		*highest = max(*highest, pg.Int8Value(values[0]))
		return nil
	}}
}

// Floors returns how much of a tenant's categories was removed; none: of all categories. It leaves out categories in
// which nothing at or after the position from was, or is about to be, removed.
func (s *Log) Floors(ctx context.Context, tenant domain.TenantID, categories []string, from int64) ([]domain.RetentionFloor, error) {
	var found []domain.RetentionFloor
	err := s.db.Read(ctx, tenant, func() { found = nil }, pg.Query{Statement: &floors,
		Params: [][]byte{pg.TenantParam(tenant), pg.TextsParam(categories), pg.Int8Param(from)},
		Row: func(values [][]byte) error {
			found = append(found, domain.RetentionFloor{Category: string(values[0]), AnnouncedTo: pg.Int8Value(values[1]), RemovedTo: pg.Int8Value(values[2]), Removed: pg.Int8Value(values[3])})
			return nil
		}})
	return found, err
}

// TenantFloors returns how much of the categories (none: all) was or is about to be removed from the tenants' logs
// (none: all). It leaves out categories without removals, and orders by tenant and category.
func (s *Log) TenantFloors(ctx context.Context, tenants []domain.TenantID, categories []string) ([]domain.TenantFloor, error) {
	named := make([]string, len(tenants))
	for i, tenant := range tenants {
		named[i] = tenant.String()
	}
	if categories == nil {
		categories = []string{}
	}
	rows, _ := s.db.System.Query(ctx, `
		select f.tenant_id, f.category, f.announced_to, f.removed_to, f.removed from retention_floors as f
		where (cardinality($1::uuid[]) = 0 or f.tenant_id = any($1::uuid[])) and `+ofCategories+` and greatest(f.announced_to, f.removed_to) > 0
		order by f.tenant_id, f.category`, named, categories)
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r domain.TenantFloor, err error) {
		err = row.Scan((*[16]byte)(&r.Tenant), &r.Category, &r.AnnouncedTo, &r.RemovedTo, &r.Removed)
		return r, err
	})
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("read what was removed of the logs: %w", err))
	}
	return found, nil
}
