package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Declare returns the start time of a consumer that the service runs for many tenants, by its kind ("reactor",
// "egress", "changes") and its name. If it was not declared before, it starts at since; zero: now, by the database's
// clock. The owner is the tenant it belongs to, or domain.Everyone. A consumer that was declared is only read, which a
// cluster can also do while a node is down.
func (s *Postgres) Declare(ctx context.Context, owner domain.TenantID, kind, name string, since time.Time) (born time.Time, err error) {
	const declared = "select c.since from service_consumers c where c.tenant_id = $1 and c.kind = $2 and c.name = $3"
	err = s.db.System.QueryRow(ctx, declared, owner, kind, name).Scan((*pg.Moment)(&born))
	if errors.Is(err, pgx.ErrNoRows) {
		var batch pgx.Batch
		batch.Queue("begin")
		batch.Queue(`
			insert into service_consumers as c (tenant_id, kind, name, since) values ($1, $2, $3, coalesce($4, now()))
			on conflict (tenant_id, kind, name) do nothing`, owner, kind, name, pg.TimeOrNull(since))
		batch.Queue(declared, owner, kind, name).QueryRow(func(row pgx.Row) error { return row.Scan((*pg.Moment)(&born)) })
		batch.Queue("commit")
		err = s.db.System.SendBatch(ctx, &batch).Close()
	}
	if err != nil {
		return time.Time{}, pg.Unavailable(fmt.Errorf("declare the %s %q: %w", kind, name, err))
	}
	return born, nil
}

// Withdraw removes the declaration of a consumer, which is then new if declared again. Withdrawing a consumer that does
// not exist is no error.
func (s *Postgres) Withdraw(ctx context.Context, owner domain.TenantID, kind, name string) error {
	_, err := s.db.System.Exec(ctx, "delete from service_consumers c where c.tenant_id = $1 and c.kind = $2 and c.name = $3", owner, kind, name)
	if err != nil {
		return pg.Unavailable(fmt.Errorf("withdraw the %s %q: %w", kind, name, err))
	}
	return nil
}

// Declared lists the declared consumers of a kind, with their owners and names.
func (s *Postgres) Declared(ctx context.Context, kind string) ([]domain.ProjectionID, error) {
	rows, _ := s.db.System.Query(ctx, "select c.tenant_id, c.name from service_consumers c where c.kind = $1", kind)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[domain.ProjectionID])
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list what was declared: %w", err))
	}
	return all, nil
}
