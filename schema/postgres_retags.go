package schema

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// changeTags sets the expression for a type's tags, unless it is nil, and has the stored events retagged if it is
// another one.
func (s *Postgres) changeTags(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, eventType string, tags *string) error {
	if tags == nil {
		return nil
	}
	changed, err := pg.Exec(ctx, tx, "keep an expression for tags",
		"update schema_types set tags = $3 where tenant_id = $1 and event_type = $2 and tags <> $3", tenant, eventType, *tags)
	if err != nil || changed == 0 {
		return err
	}
	if err := checkRoom(ctx, tx, tenant, eventType, 0); err != nil {
		return err
	}
	_, err = pg.Exec(ctx, tx, "schedule the retagging of a type", `
		insert into schema_retags as r (tenant_id, event_type, expression, not_before) values ($1, $2, $3, statement_timestamp() + $4::bigint * interval '1 microsecond')
		on conflict (tenant_id, event_type) do update
		set expression = excluded.expression, not_before = excluded.not_before, updated_at = excluded.updated_at, `+restarted,
		tenant, eventType, *tags, s.settle.Microseconds())
	if err != nil || *tags == "" {
		return err
	}
	return retagQuota.Check(ctx, tx, tenant)
}

// restarted is what a change of a derivation sets besides. A worker under way can no longer proceed.
const restarted = `upcasters = '', position = 0, until = null, events = 0, changed = 0, failed = 0, failures = '[]',
			worker = null, leased_until = null, started_at = null, finished_at = null`

// Types that derived tags and were deleted count until their events have none.
var retagQuota = pg.Quota{Items: "types whose derived tags have changed", Table: "schema_retags", Max: maxRetags}

// retag is a row of schema_retags: the retagging of a type's stored events.
type retag struct {
	eventType  string
	expression string
	upcasters  string // a digest
	begun      bool   // until is set
	finished   bool
	Retagging
}

const retagColumns = "r.event_type, r.expression, r.upcasters, r.position, r.until, r.events, r.changed, r.failed, r.failures, r.updated_at, r.finished_at"

func scanRetag(row pgx.CollectableRow) (r *retag, err error) {
	r = &retag{}
	var until *int64
	var failures []byte
	var finished *time.Time
	err = row.Scan(&r.eventType, &r.expression, &r.upcasters, &r.Position, &until, &r.Events, &r.Changed, &r.Failed, &failures, (*pg.Moment)(&r.UpdatedAt), &finished)
	if err != nil {
		return nil, err
	}
	if r.State = RetagWaiting; until != nil {
		r.State, r.begun, r.Until = RetagRunning, true, *until
	}
	if finished != nil {
		r.State, r.finished = RetagDone, true
	}
	return r, json.Unmarshal(failures, &r.Failures)
}

// progress returns what others may know of a retagging; nil if there is none.
func (r *retag) progress() *Retagging {
	if r == nil {
		return nil
	}
	return &r.Retagging
}

// retagsOf returns the retaggings of a tenant's types, or of one of them, by type.
func (s *Postgres) retagsOf(ctx context.Context, tenant domain.TenantID, eventType string) (map[string]*retag, error) {
	rows, err := pg.SelectUnder(ctx, s.db.App, tenant, "list the retaggings", scanRetag,
		"select "+retagColumns+" from schema_retags r where r.tenant_id = $1 and (r.event_type = $2 or $2 = '')", tenant, eventType)
	if err != nil {
		return nil, err
	}
	all := make(map[string]*retag, len(rows))
	for _, row := range rows {
		all[row.eventType] = row
	}
	return all, nil
}

// dueRetag is a retagging that may continue, after a time.
type dueRetag struct {
	tenant    domain.TenantID
	eventType string
	in        time.Duration
}

// RetagsDue returns the retaggings of all tenants that are not finished and that no worker has.
func (s *Postgres) RetagsDue(ctx context.Context) ([]dueRetag, error) {
	return pg.Select(ctx, s.db.System, "list the retaggings to continue", func(row pgx.CollectableRow) (due dueRetag, err error) {
		var seconds float64
		err = row.Scan(&due.tenant, &due.eventType, &seconds)
		due.in = max(0, time.Duration(seconds*float64(time.Second)))
		return due, err
	}, `
		select r.tenant_id, r.event_type, extract(epoch from greatest(r.not_before, r.leased_until) - now())::float8
		from schema_retags r where r.finished_at is null order by r.tenant_id, r.event_type`)
}

// RetaggedTenants returns the tenants with finished retaggings.
func (s *Postgres) RetaggedTenants(ctx context.Context) ([]domain.TenantID, error) {
	return pg.Select(ctx, s.db.System, "list the tenants with derived tags", pgx.RowTo[domain.TenantID],
		"select distinct r.tenant_id from schema_retags r where r.finished_at is not null")
}

// retagLease is how long a worker may proceed without saving.
const retagLease = 30 * time.Second

// takeRetag makes the caller the worker of a retagging that is due; nil if it is not, or another worker has it.
func (s *Postgres) takeRetag(ctx context.Context, tenant domain.TenantID, eventType string, worker domain.UUID) (*retag, error) {
	taken, _, err := pg.SelectOneUnder(ctx, s.db.App, tenant, "take a retagging", scanRetag, `
		update schema_retags as r
		set worker = $3, leased_until = now() + $4::bigint * interval '1 microsecond', started_at = least(r.started_at, now()), updated_at = now()
		where r.tenant_id = $1 and r.event_type = $2 and r.finished_at is null and r.not_before <= now()
		  and (r.leased_until is null or r.leased_until < now())
		returning `+retagColumns, tenant, eventType, [16]byte(worker), retagLease.Microseconds())
	return taken, err
}

// errTaken ends a worker's turn: the derivation was changed, or another worker has taken over.
var errTaken = fmt.Errorf("the retagging was restarted or taken over")

// mine turns the number of changed rows of a statement about a worker's row into errTaken.
func mine(changed int64, err error) error {
	if err == nil && changed == 0 {
		err = errTaken
	}
	return err
}

// beginRetag notes the last event that a worker looks at, and the upcasters that it applies.
func (s *Postgres) beginRetag(ctx context.Context, tenant domain.TenantID, r *retag, worker domain.UUID) error {
	return mine(pg.ExecUnder(ctx, s.db.App, tenant, "begin a retagging",
		"update schema_retags as r set until = $4, upcasters = $5 where r.tenant_id = $1 and r.event_type = $2 and r.worker = $3",
		tenant, r.eventType, [16]byte(worker), r.Until, r.upcasters))
}

// saveRetag saves a worker's progress, and extends its lease. It is also for the retention login.
func saveRetag(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, r *retag, worker domain.UUID) error {
	failures, err := json.Marshal(r.Failures)
	if err != nil {
		return fmt.Errorf("write the failures of a retagging: %w", err)
	}
	return mine(pg.Exec(ctx, tx, "save a retagging", `
		update schema_retags as r
		set position = $4, events = $5, changed = $6, failed = $7, failures = $8, leased_until = now() + $9::bigint * interval '1 microsecond', updated_at = now()
		where r.tenant_id = $1 and r.event_type = $2 and r.worker = $3`,
		tenant, r.eventType, [16]byte(worker), r.Position, r.Events, r.Changed, r.Failed, string(failures), retagLease.Microseconds()))
}

func (s *Postgres) saveRetag(ctx context.Context, tenant domain.TenantID, r *retag, worker domain.UUID) error {
	return pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error { return saveRetag(ctx, tx, tenant, r, worker) })
}

// finishRetag ends a worker's retagging. Every process is notified, since it may remember events with their old tags.
func (s *Postgres) finishRetag(ctx context.Context, tenant domain.TenantID, r *retag, worker domain.UUID) error {
	return s.transact(ctx, tenant, func(tx pgx.Tx) error {
		finish := "update schema_retags as r set finished_at = now(), updated_at = now(), worker = null, leased_until = null where r.tenant_id = $1 and r.event_type = $2 and r.worker = $3"
		if r.expression == "" {
			finish = "delete from schema_retags as r where r.tenant_id = $1 and r.event_type = $2 and r.worker = $3"
		}
		if err := mine(pg.Exec(ctx, tx, "finish a retagging", finish, tenant, r.eventType, [16]byte(worker))); err != nil {
			return err
		}
		return pg.Notify(ctx, tx, pg.SchemasChannel, tenant.String())
	})
}

// releaseRetag lets other workers continue.
func (s *Postgres) releaseRetag(ctx context.Context, tenant domain.TenantID, eventType string, worker domain.UUID) error {
	_, err := pg.ExecUnder(ctx, s.db.App, tenant, "release a retagging",
		"update schema_retags as r set worker = null, leased_until = null where r.tenant_id = $1 and r.event_type = $2 and r.worker = $3",
		tenant, eventType, [16]byte(worker))
	return err
}

// restartRetag restarts a retagging, unless its upcasters are no longer the given ones.
func (s *Postgres) restartRetag(ctx context.Context, tenant domain.TenantID, r *retag) error {
	_, err := pg.ExecUnder(ctx, s.db.App, tenant, "restart a retagging", `
		update schema_retags as r set not_before = now() + $5::bigint * interval '1 microsecond', updated_at = now(), `+restarted+`
		where r.tenant_id = $1 and r.event_type = $2 and r.upcasters = $3 and r.expression = $4`,
		tenant, r.eventType, r.upcasters, r.expression, s.settle.Microseconds())
	return err
}

// ForgetFailures removes what a tenant's retaggings quote of events that they have failed on.
func (s *Postgres) ForgetFailures(ctx context.Context, tenant domain.TenantID) (int64, error) {
	return pg.ExecUnder(ctx, s.db.App, tenant, "remove the failures of retaggings",
		"update schema_retags r set failures = '[]' where r.tenant_id = $1 and r.failures <> '[]'", tenant)
}
