package pgtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/migrations"
)

// Remove removes a tenant's events of a category up to a position, except those to keep, as retention does, whether or
// not they have been read. It removes the events and updates the floors of streams whose newest event goes, and the
// category's floor.
func (db DB) Remove(t testing.TB, tenant fmt.Stringer, category string, upTo int64, keep ...int64) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, db.URL(migrations.RoleRetention))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if keep == nil {
		keep = []int64{}
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local manifold.tenant = '"+tenant.String()+"'"); err != nil {
			return err
		}
		const removable = `e.tenant_id = $1 and e.category = $2 and e.position <= $3 and not (e.position = any($4::bigint[]))`
		if _, err := tx.Exec(ctx, `
			insert into manifold.stream_floors as f (tenant_id, stream_id, version)
			select e.tenant_id, e.stream_id, max(e.stream_version) from manifold.events e
			where `+removable+` and not exists (
			  select from manifold.events n where n.tenant_id = e.tenant_id and n.stream_id = e.stream_id and n.stream_version > e.stream_version)
			group by e.tenant_id, e.stream_id
			on conflict (tenant_id, stream_id) do update set version = greatest(f.version, excluded.version)`, tenant.String(), category, upTo, keep); err != nil {
			return err
		}
		var removed, highest int64
		if err := tx.QueryRow(ctx, `
			with removed as (delete from manifold.events e where `+removable+` returning e.position as position)
			select count(*), coalesce(max(g.position), 0) from removed g`, tenant.String(), category, upTo, keep).Scan(&removed, &highest); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			insert into manifold.retention_floors as f (tenant_id, category, announced_to, removed_to, removed, run_id)
			values ($1, $2, $3, $3, $4, gen_random_uuid())
			on conflict (tenant_id, category) do update set announced_to = greatest(f.announced_to, $3), removed_to = greatest(f.removed_to, $3),
			  removed = f.removed + $4, run_id = excluded.run_id`, tenant.String(), category, highest, removed)
		return err
	})
	if err != nil {
		t.Fatalf("pgtest: remove events: %v", err)
	}
}
