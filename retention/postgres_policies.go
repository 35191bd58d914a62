package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

var retentionQuota = pg.Quota{Items: "retention policies", Table: "retention_policies", Max: MaxPolicies}

// The app login stores requests to retention. The retention login, in retention_run.go, carries them out.

const retentionColumns = `p.category, coalesce(p.max_age_seconds, 0), coalesce(p.max_count, 0), p.compact, p.force, p.revision, p.created_at,
	p.updated_at, p.asked_at, p.spared, p.held_by, p.last_run_at, p.last_error,
	coalesce(f.announced_to, 0), coalesce(f.removed_to, 0), coalesce(f.removed, 0)`

const retentionRows = `retention_policies p left join retention_floors f on f.tenant_id = p.tenant_id and f.category = p.category`

func scanRetention(row pgx.CollectableRow) (Status, error) {
	var status Status
	var seconds int64
	var force, heldBy []byte
	err := row.Scan(&status.Category, &seconds, &status.MaxCount, &status.Compact, &force, &status.Revision, (*pg.Moment)(&status.CreatedAt),
		(*pg.Moment)(&status.UpdatedAt), (*pg.Moment)(&status.AskedAt), &status.Spared, &heldBy, (*pg.Moment)(&status.LastRunAt), (*pg.NullText)(&status.LastError),
		&status.Floor.AnnouncedTo, &status.Floor.RemovedTo, &status.Floor.Removed)
	if err != nil {
		return Status{}, err
	}
	status.MaxAge, status.Floor.Category = time.Duration(seconds)*time.Second, status.Category
	// Fields of a later release, which may run at the same time, are ignored.
	if err := json.Unmarshal(force, &status.Force); err != nil {
		return Status{}, fmt.Errorf("decode a stored policy's force: %w", err)
	}
	if err := json.Unmarshal(heldBy, &status.HeldBy); err != nil {
		return Status{}, fmt.Errorf("decode a stored policy's holds: %w", err)
	}
	return status, nil
}

// RetentionPolicies returns a tenant's policies with their results so far, ordered by category.
func (s *Postgres) RetentionPolicies(ctx context.Context, tenant domain.TenantID) ([]Status, error) {
	var policies []Status
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) (err error) {
		rows, _ := tx.Query(ctx, "select "+retentionColumns+" from "+retentionRows+" where p.tenant_id = $1 order by p.category", tenant)
		if policies, err = pgx.CollectRows(rows, scanRetention); err != nil {
			return fmt.Errorf("list the retention policies: %w", err)
		}
		return nil
	})
	return policies, err
}

// RetentionPolicy returns a category's policy with its results so far, or domain.CodeNotFound if there is none.
func (s *Postgres) RetentionPolicy(ctx context.Context, tenant domain.TenantID, category string) (status Status, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		status, err = readRetention(ctx, tx, tenant, category)
		return err
	})
	return status, err
}

func readRetention(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, category string) (Status, error) {
	rows, _ := tx.Query(ctx, "select "+retentionColumns+" from "+retentionRows+" where p.tenant_id = $1 and p.category = $2", tenant, category)
	status, err := pgx.CollectExactlyOneRow(rows, scanRetention)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Status{}, noRetention(category)
	case err != nil:
		return Status{}, fmt.Errorf("read a retention policy: %w", err)
	}
	return status, nil
}

func noRetention(category string) error {
	return domain.Errorf(domain.CodeNotFound, "category", "there is no retention policy for the category %q; put one at /v1/retention/%s", category, category)
}

// PutRetentionPolicy stores a category's policy, replaces a previous one, and returns the resulting status. The policy
// must have passed its Check. An identical policy changes nothing. Removed events stay removed. A tenant may have
// MaxPolicies; beyond that the error is domain.CodeQuotaExceeded.
func (s *Postgres) PutRetentionPolicy(ctx context.Context, tenant domain.TenantID, policy Policy) (status Status, created bool, err error) {
	policy.Force = Force{
		Groups: pg.NilIfEmpty(policy.Force.Groups), Projections: pg.NilIfEmpty(policy.Force.Projections), Rebuilds: pg.NilIfEmpty(policy.Force.Rebuilds),
	}
	force, err := json.Marshal(policy.Force)
	if err != nil {
		return Status{}, false, fmt.Errorf("write a policy's force: %w", err)
	}
	err = s.changeRetention(ctx, tenant, func(tx pgx.Tx) (changed bool, err error) {
		before, err := readRetention(ctx, tx, tenant, policy.Category)
		switch {
		case err == nil && reflect.DeepEqual(before.Policy, policy):
			status = before
			return false, nil
		case err == nil:
		case !domain.IsCode(err, domain.CodeNotFound):
			return false, err
		default:
			created = true
		}
		// Other rules may remove events before the positions that the last rules had reached.
		_, err = tx.Exec(ctx, `
			insert into retention_policies as p (tenant_id, category, max_age_seconds, max_count, compact, force, revision)
			values ($1, $2, nullif($3::bigint, 0), nullif($4::bigint, 0), $5, $6, $7)
			on conflict (tenant_id, category) do update
			set max_age_seconds = excluded.max_age_seconds, max_count = excluded.max_count, compact = excluded.compact, force = excluded.force,
			  revision = p.revision + 1, updated_at = excluded.updated_at, swept_to = 0, compacted_to = 0`,
			tenant, policy.Category, int64(policy.MaxAge/time.Second), policy.MaxCount, policy.Compact, force, pg.FirstRevision())
		if err != nil {
			return false, fmt.Errorf("keep a retention policy: %w", err)
		}
		if created {
			if err := retentionQuota.Check(ctx, tx, tenant); err != nil {
				return false, err
			}
		}
		status, err = readRetention(ctx, tx, tenant, policy.Category)
		return true, err
	})
	return status, created, err
}

// DeleteRetentionPolicy removes a category's policy, or returns domain.CodeNotFound if there is none. After it returns,
// the policy removes no more events. Removed events stay removed.
func (s *Postgres) DeleteRetentionPolicy(ctx context.Context, tenant domain.TenantID, category string) error {
	return s.changeRetention(ctx, tenant, func(tx pgx.Tx) (changed bool, err error) {
		gone, err := tx.Exec(ctx, "delete from retention_policies p where p.tenant_id = $1 and p.category = $2", tenant, category)
		switch {
		case err != nil:
			return false, fmt.Errorf("remove a retention policy: %w", err)
		case gone.RowsAffected() == 0:
			return false, noRetention(category)
		}
		return true, nil
	})
}

// AskRetention requests a run of a policy as soon as possible and returns the policy's status, in which AskedAt shows
// whether the run is still to come. It returns domain.CodeNotFound if there is no policy.
func (s *Postgres) AskRetention(ctx context.Context, tenant domain.TenantID, category string) (status Status, err error) {
	err = s.changeRetention(ctx, tenant, func(tx pgx.Tx) (changed bool, err error) {
		// Use the clock's time, not the transaction's: a run that ends an earlier request must not end this one.
		_, err = tx.Exec(ctx, "update retention_policies p set asked_at = statement_timestamp() where p.tenant_id = $1 and p.category = $2", tenant, category)
		if err != nil {
			return false, fmt.Errorf("ask for a run of a retention policy: %w", err)
		}
		status, err = readRetention(ctx, tx, tenant, category)
		return true, err
	})
	return status, err
}

// changeRetention runs do in a transaction under the tenant. If do reports a change, changeRetention notifies every
// process after the commit.
func (s *Postgres) changeRetention(ctx context.Context, tenant domain.TenantID, do func(pgx.Tx) (changed bool, err error)) error {
	changed := false
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) (err error) {
		if changed, err = do(tx); err != nil || !changed {
			return err
		}
		return pg.Notify(ctx, tx, pg.RetentionChannel, tenant.String())
	})
	if err == nil && changed {
		s.db.RetentionChanged.Notify(tenant)
	}
	return err
}

// ListenRetention calls changed when any process has changed a tenant's policies or requested a run. It calls changed
// with domain.Everyone if notices may have been lost, including at the start. changed must return soon, and is called
// by several goroutines. ListenRetention blocks until ctx ends, and then returns nil.
func (s *Postgres) ListenRetention(ctx context.Context, changed func(tenant domain.TenantID)) error {
	defer s.db.RetentionChanged.Add(changed)()
	s.db.ListenTenants(ctx, pg.RetentionChannel, changed)
	return nil
}

// RetentionDue returns the policies of all tenants, in no order. It also returns, with revision 0, categories without a
// policy for which an interrupted run has announced further removals.
func (s *Postgres) RetentionDue(ctx context.Context) ([]Due, error) {
	rows, _ := s.db.System.Query(ctx, `
		select p.tenant_id, p.category, p.revision, coalesce(l.head, 0), p.asked_at is not null
		from retention_policies p left join logs l on l.tenant_id = p.tenant_id
		union all
		select f.tenant_id, f.category, 0, 0, false from retention_floors f
		where f.announced_to > f.removed_to
		  and not exists (select 1 from retention_policies p where p.tenant_id = f.tenant_id and p.category = f.category)`)
	due, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (due Due, err error) {
		return due, row.Scan(&due.Tenant, &due.Category, &due.Revision, &due.Head, &due.Asked)
	})
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list the retention policies of all: %w", err))
	}
	return due, nil
}
