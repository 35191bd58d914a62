package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// Readers learn from floors what retention has removed. A category's floor is the highest removed position; a stream's
// floor is the version that it had when its newest event was removed. Both are written in the transaction that removes
// the events. A reader that reads events first and the floor after them, in a separate snapshot, sees the floor of
// everything that it has missed.

// ofCategories restricts retention_floors as f to the categories of a parameter; none: all.
const ofCategories = `(cardinality($2::text[]) = 0 or f.category = any($2::text[]))`

var (
	removedTo = statement{"manifold_removed_to", `
		select coalesce(max(f.removed_to), 0) from retention_floors as f where f.tenant_id = $1::uuid and ` + ofCategories}
	floors = statement{"manifold_floors", `
		select f.category, f.announced_to, f.removed_to, f.removed from retention_floors as f
		where f.tenant_id = $1::uuid and ` + ofCategories + ` and greatest(f.announced_to, f.removed_to) >= $3::bigint
		order by f.category`}
	streamFloor = statement{"manifold_stream_floor", `
		select f.version from stream_floors as f where f.tenant_id = $1::uuid and f.stream_id = $2::text`}
)

// LogSlice is ReadLog, and reports what retention has removed of the query's categories.
func (s *Store) LogSlice(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) (domain.LogSlice, error) {
	var slice domain.LogSlice
	var err error
	slice.Events, err = s.readLog(ctx, tenant, q, removedToQuery(tenant, q.Categories, &slice.RemovedTo))
	return slice, err
}

// StreamSlice is ReadStream, and reports what retention has removed of the stream and of its category.
func (s *Store) StreamSlice(ctx context.Context, tenant domain.TenantID, stream string, q domain.StreamQuery) (domain.StreamSlice, error) {
	var slice domain.StreamSlice
	var err error
	slice.Events, err = s.readStream(ctx, tenant, stream, q,
		query{&streamFloor, [][]byte{tenantParam(tenant), []byte(stream)}, func(values [][]byte) error {
			slice.Floor = int8Value(values[0])
			return nil
		}},
		removedToQuery(tenant, []string{domain.Category(stream)}, &slice.RemovedTo))
	return slice, err
}

// removedToQuery reads the highest removed position of the categories; none: of all. Floors only rise.
func removedToQuery(tenant domain.TenantID, categories []string, highest *int64) query {
	return query{&removedTo, [][]byte{tenantParam(tenant), textsParam(categories)}, func(values [][]byte) error {
		*highest = int8Value(values[0])
		return nil
	}}
}

// Floors returns how much of a tenant's categories was removed; none: of all categories. It leaves out categories in
// which nothing at or after the position from was, or is about to be, removed.
func (s *Store) Floors(ctx context.Context, tenant domain.TenantID, categories []string, from int64) ([]domain.RetentionFloor, error) {
	var found []domain.RetentionFloor
	err := s.read(ctx, tenant, func() { found = nil }, query{&floors,
		[][]byte{tenantParam(tenant), textsParam(categories), int8Param(from)},
		func(values [][]byte) error {
			found = append(found, domain.RetentionFloor{Category: string(values[0]), AnnouncedTo: int8Value(values[1]), RemovedTo: int8Value(values[2]), Removed: int8Value(values[3])})
			return nil
		}})
	return found, err
}

// TenantFloors returns how much of the categories (none: all) was or is about to be removed from the tenants' logs
// (none: all). It leaves out categories without removals, and orders by tenant and category.
func (s *Store) TenantFloors(ctx context.Context, tenants []domain.TenantID, categories []string) ([]domain.TenantFloor, error) {
	named := make([]string, len(tenants))
	for i, tenant := range tenants {
		named[i] = tenant.String()
	}
	if categories == nil {
		categories = []string{}
	}
	rows, _ := s.system.Query(ctx, `
		select f.tenant_id, f.category, f.announced_to, f.removed_to, f.removed from retention_floors as f
		where (cardinality($1::uuid[]) = 0 or f.tenant_id = any($1::uuid[])) and `+ofCategories+` and greatest(f.announced_to, f.removed_to) > 0
		order by f.tenant_id, f.category`, named, categories)
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r domain.TenantFloor, err error) {
		err = row.Scan((*[16]byte)(&r.Tenant), &r.Category, &r.AnnouncedTo, &r.RemovedTo, &r.Removed)
		return r, err
	})
	if err != nil {
		return nil, unavailable(fmt.Errorf("read what was removed of the logs: %w", err))
	}
	return found, nil
}

// PutLosses notes that a tenant's documents of a build lack events. For a category noted before, the higher position is
// kept.
func (s *Store) PutLosses(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, losses []domain.Loss) error {
	if len(losses) == 0 {
		return nil
	}
	categories, positions := make([]string, len(losses)), make([]int64, len(losses))
	for i, loss := range losses {
		categories[i], positions[i] = loss.Category, loss.RemovedTo
	}
	return under(ctx, s.app, tenant, func(tx pgx.Tx) error {
		// The tenant comes from its log's row: every tenant that has lost events has one.
		_, err := tx.Exec(ctx, `
			insert into build_losses as b (tenant_id, owner, name, build, category, removed_to)
			select g.tenant_id, $2, $3, $4, n.category, n.removed_to
			from logs g, unnest($5::text[], $6::bigint[]) as n(category, removed_to) where g.tenant_id = $1
			on conflict (tenant_id, owner, name, build, category) do update
			  set removed_to = excluded.removed_to, at = now() where b.removed_to < excluded.removed_to`,
			tenant, id.Owner, id.Name, build, categories, positions)
		if err != nil {
			return fmt.Errorf("note what a build lacks: %w", err)
		}
		return nil
	})
}

// Losses returns what a tenant's documents of a build lack, by category: at most domain.GapCategories, those with the
// highest positions.
func (s *Store) Losses(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64) ([]domain.Loss, error) {
	var losses []domain.Loss
	err := under(ctx, s.app, tenant, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			select b.category, b.removed_to from build_losses b
			where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.build = $4 order by b.removed_to desc limit $5`,
			tenant, id.Owner, id.Name, build, domain.GapCategories)
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[domain.Loss])
		if err != nil {
			return fmt.Errorf("read what a build lacks: %w", err)
		}
		losses = domain.MergeLosses(nil, found)
		return nil
	})
	return losses, err
}

// deleteLosses removes a build's losses for all tenants, tenant by tenant.
func (s *Store) deleteLosses(ctx context.Context, build domain.Build) error {
	rows, _ := s.system.Query(ctx, `
		select distinct b.tenant_id from build_losses b
		where b.owner = $1 and b.name = $2 and b.build = $3 and ($4 or b.tenant_id = $1)`, build.Owner, build.Name, build.Number, build.Shared())
	tenants, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (tenant domain.TenantID, err error) {
		return tenant, row.Scan((*[16]byte)(&tenant))
	})
	if err != nil {
		return unavailable(fmt.Errorf("list who lacks events in a build: %w", err))
	}
	for _, tenant := range tenants {
		err := under(ctx, s.app, tenant, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "delete from build_losses b where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.build = $4",
				tenant, build.Owner, build.Name, build.Number)
			return err
		})
		if err != nil {
			return fmt.Errorf("forget what a build lacked: %w", err)
		}
	}
	return nil
}
