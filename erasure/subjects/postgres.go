package subjects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
)

// Postgres reads and writes the table of erasures. All methods may be called concurrently. An error that a client can
// act on is a *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Postgres struct{ db *pg.DB }

// NewPostgres returns the table of a database.
func NewPostgres(db *pg.DB) *Postgres { return &Postgres{db} }

const columns = `e.erasure_id, coalesce(e.subject, ''), e.subject_hash, e.what, e.reason, e.accept_loss, e.requested_by, e.approved_by, e.state, e.step, e.until,
	e.position, e.counts, e.plan, coalesce(e.problem, ''), e.created_at, e.approved_at, e.finished_at, coalesce(e.receipt, '')`

func scan(row pgx.CollectableRow) (e Erasure, err error) {
	err = row.Scan((*[16]byte)(&e.ID), &e.subject, &e.SubjectHash, &e.What, &e.Reason, &e.AcceptLoss, &e.RequestedBy, &e.ApprovedBy, &e.State, &e.Step, &e.Until,
		&e.Position, &e.Counts, &e.plan, &e.Problem, (*pg.Moment)(&e.CreatedAt), (*pg.Moment)(&e.ApprovedAt), (*pg.Moment)(&e.FinishedAt), &e.Receipt)
	return e, err
}

// MaxUnfinished is how many erasures of a tenant may be unfinished at a time.
const MaxUnfinished = 1000

// put stores a new erasure. If there is one with its id, it returns that.
func (s *Postgres) put(ctx context.Context, tenant domain.TenantID, e Erasure) (kept Erasure, added bool, err error) {
	by, err := json.Marshal(e.RequestedBy)
	if err != nil {
		return Erasure{}, false, fmt.Errorf("write who requests an erasure: %w", err)
	}
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		// A repeated request adds nothing, and is always answered.
		if kept, err = one(ctx, tx, tenant, e.ID); err == nil || !domain.IsCode(err, domain.CodeNotFound) {
			return err
		}
		var unfinished int
		if err := tx.QueryRow(ctx, "select count(*) from erasures e where e.tenant_id = $1 and e.finished_at is null", tenant).Scan(&unfinished); err != nil {
			return fmt.Errorf("count the erasures: %w", err)
		}
		if unfinished >= MaxUnfinished {
			return domain.Errorf(domain.CodeQuotaExceeded, "", "the tenant has %d erasures that are not finished, the most it may have; wait until some are", unfinished)
		}
		done, err := pg.Exec(ctx, tx, "keep an erasure", `
			insert into erasures (tenant_id, erasure_id, subject, subject_hash, what, reason, accept_loss, requested_by, state, until)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			on conflict (tenant_id, erasure_id) do nothing`,
			tenant, [16]byte(e.ID), e.subject, e.SubjectHash, string(e.What), e.Reason, e.AcceptLoss, string(by), string(e.State), e.Until)
		if err != nil {
			return err
		}
		added = done > 0
		kept, err = one(ctx, tx, tenant, e.ID)
		return err
	})
	return kept, added, err
}

func one(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, id domain.UUID) (Erasure, error) {
	e, ok, err := pg.SelectOne(ctx, tx, "read an erasure", scan, "select "+columns+" from erasures e where e.tenant_id = $1 and e.erasure_id = $2", tenant, [16]byte(id))
	if err == nil && !ok {
		err = domain.Errorf(domain.CodeNotFound, "path erasureId", "there is no erasure %s", id)
	}
	return e, err
}

// Erasure returns an erasure, or domain.CodeNotFound.
func (s *Postgres) Erasure(ctx context.Context, tenant domain.TenantID, id domain.UUID) (e Erasure, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		e, err = one(ctx, tx, tenant, id)
		return err
	})
	return e, err
}

// Erasures returns a tenant's erasures with ids before another one (zero: all), the newest first, at most limit.
func (s *Postgres) Erasures(ctx context.Context, tenant domain.TenantID, before domain.UUID, limit int) ([]Erasure, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list the erasures", scan,
		"select "+columns+" from erasures e where e.tenant_id = $1 and (e.erasure_id < $2 or $3) order by e.erasure_id desc limit $4",
		tenant, [16]byte(before), before == domain.UUID{}, limit)
}

// decide approves or cancels an erasure that awaits approval. An actor cannot approve what it has requested.
func (s *Postgres) decide(ctx context.Context, tenant domain.TenantID, id domain.UUID, by Actor, state State) (e Erasure, err error) {
	text, err := json.Marshal(by)
	if err != nil {
		return Erasure{}, fmt.Errorf("write who decides on an erasure: %w", err)
	}
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		if e, err = one(ctx, tx, tenant, id); err != nil {
			return err
		}
		switch {
		case e.State == state || state == Running && e.State == Done:
			return nil
		case e.State != AwaitingApproval:
			return domain.Errorf(domain.CodeConflict, "", "the erasure is %s; only one that awaits approval can be approved or cancelled", e.State)
		case state == Running && e.RequestedBy.ID == by.ID:
			return domain.Errorf(domain.CodeForbidden, "", "you have requested this erasure; another actor must approve it")
		}
		var changed int64
		if state == Running {
			changed, err = pg.Exec(ctx, tx, "approve an erasure", `
				update erasures as e set state = 'running', approved_by = $3, approved_at = now()
				where e.tenant_id = $1 and e.erasure_id = $2 and e.state = 'awaiting-approval'`, tenant, [16]byte(id), string(text))
		} else {
			changed, err = pg.Exec(ctx, tx, "cancel an erasure", `
				update erasures as e set state = 'cancelled', finished_at = now(), subject = null
				where e.tenant_id = $1 and e.erasure_id = $2 and e.state = 'awaiting-approval'`, tenant, [16]byte(id))
		}
		if err == nil && changed == 0 {
			err = domain.Errorf(domain.CodeConflict, "", "the erasure has just been approved or cancelled")
		}
		if err == nil {
			e, err = one(ctx, tx, tenant, id)
		}
		return err
	})
	return e, err
}

// acceptLoss lets an erasure proceed although retention has removed events that its documents need. The error is
// domain.CodeConflict if another actor has approved it without that, or if it has ended.
func (s *Postgres) acceptLoss(ctx context.Context, tenant domain.TenantID, id domain.UUID) error {
	changed, err := pg.ExecUnder(ctx, s.db.App, tenant, "accept the loss of events", `
		update erasures as e set accept_loss = true
		where e.tenant_id = $1 and e.erasure_id = $2 and e.finished_at is null and e.approved_by is null`, tenant, [16]byte(id))
	if err == nil && changed == 0 {
		err = domain.Errorf(domain.CodeConflict, "acceptLoss", "erasure %s was approved without it, or has ended; if its problem names a projection, rebuild that one with acceptLoss", id)
	}
	return err
}

// due is an erasure that may proceed.
type due struct {
	tenant domain.TenantID
	id     domain.UUID
}

// ErasuresDue returns the erasures that may proceed and that no worker has, of each tenant the oldest.
func (s *Postgres) ErasuresDue(ctx context.Context) ([]due, error) {
	return pg.Select(ctx, s.db.System, "list the erasures to continue", func(row pgx.CollectableRow) (d due, err error) {
		return d, row.Scan(&d.tenant, (*[16]byte)(&d.id))
	}, `
		select distinct on (e.tenant_id) e.tenant_id, e.erasure_id from erasures e
		where e.state = 'running' and (e.not_before is null or e.not_before <= now()) and (e.leased_until is null or e.leased_until <= now())
		order by e.tenant_id, e.created_at, e.erasure_id`)
}

// lease is how long a worker may proceed without saving.
const lease = time.Minute

// errTaken ends a worker's turn.
var errTaken = errors.New("another worker has taken the erasure over")

func mine(changed int64, err error) error {
	if err == nil && changed == 0 {
		err = errTaken
	}
	return err
}

// claimErasure makes the caller the worker of an erasure that is due.
func (s *Postgres) claimErasure(ctx context.Context, d due, worker domain.UUID) (Erasure, bool, error) {
	return pg.SelectOneUnder(ctx, s.db.App, d.tenant, "take an erasure", scan, `
		update erasures as e set worker = $3, leased_until = now() + $4::bigint * interval '1 microsecond'
		where e.tenant_id = $1 and e.erasure_id = $2 and e.state = 'running'
		  and (e.not_before is null or e.not_before <= now()) and (e.leased_until is null or e.leased_until <= now())
		returning `+columns, d.tenant, [16]byte(d.id), [16]byte(worker), lease.Microseconds())
}

// renew extends the lease of a worker whose step takes long.
func (s *Postgres) renew(ctx context.Context, d due, worker domain.UUID) error {
	return mine(pg.ExecUnder(ctx, s.db.App, d.tenant, "extend the lease of an erasure", `
		update erasures as e set leased_until = now() + $4::bigint * interval '1 microsecond'
		where e.tenant_id = $1 and e.erasure_id = $2 and e.worker = $3`, d.tenant, [16]byte(d.id), [16]byte(worker), lease.Microseconds()))
}

// release lets other workers continue an erasure, after a pause.
func (s *Postgres) release(ctx context.Context, d due, worker domain.UUID, problem string, pause time.Duration) error {
	_, err := pg.ExecUnder(ctx, s.db.App, d.tenant, "release an erasure", `
		update erasures as e set worker = null, leased_until = null, problem = nullif($4, ''),
		  not_before = greatest(e.not_before, now() + $5::bigint * interval '1 microsecond')
		where e.tenant_id = $1 and e.erasure_id = $2 and e.worker = $3`, d.tenant, [16]byte(d.id), [16]byte(worker), problem, pause.Microseconds())
	return err
}

// saveProgress saves how far a step is, and extends the lease. It is also for the retention login.
func saveProgress(ctx context.Context, tx pgx.Tx, d due, worker domain.UUID, e *Erasure) error {
	counts, plan, err := e.notes()
	if err != nil {
		return err
	}
	return mine(pg.Exec(ctx, tx, "save an erasure", `
		update erasures as e set position = $4, counts = $5, plan = $6, leased_until = now() + $7::bigint * interval '1 microsecond'
		where e.tenant_id = $1 and e.erasure_id = $2 and e.worker = $3`,
		d.tenant, [16]byte(d.id), [16]byte(worker), e.Position, counts, plan, lease.Microseconds()))
}

// notes returns the counts and the plan as JSON.
func (e *Erasure) notes() (counts, plan string, err error) {
	countsText, err := json.Marshal(e.Counts)
	if err != nil {
		return "", "", fmt.Errorf("write the counts of an erasure: %w", err)
	}
	planText, err := json.Marshal(e.plan)
	if err != nil {
		return "", "", fmt.Errorf("write the plan of an erasure: %w", err)
	}
	return string(countsText), string(planText), nil
}

// unfinished returns which of a tenant's erasures run, this one and others.
func (s *Postgres) unfinished(ctx context.Context, d due) (eventlog.Unfinished, error) {
	of := eventlog.Unfinished{Erasure: d.id}
	err := pg.Under(ctx, s.db.App, d.tenant, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			select coalesce(array_agg(e.erasure_id) filter (where e.erasure_id <> $2), '{}'), now() from erasures e
			where e.tenant_id = $1 and e.state = 'running'`, d.tenant, [16]byte(d.id)).Scan(&of.Others, (*pg.Moment)(&of.At))
	})
	if err != nil {
		return eventlog.Unfinished{}, fmt.Errorf("list the erasures that are not finished: %w", err)
	}
	return of, nil
}

// advance begins the next step, after a pause. If it notifies, every process forgets what it remembers of the tenant's
// events.
func (s *Postgres) advance(ctx context.Context, d due, worker domain.UUID, e *Erasure, pause time.Duration) error {
	counts, plan, err := e.notes()
	if err != nil {
		return err
	}
	erased := ""
	if e.Step == StepRows {
		erased = "erased_at = now(), "
	}
	return pg.Under(ctx, s.db.App, d.tenant, func(tx pgx.Tx) error {
		err := mine(pg.Exec(ctx, tx, "begin the next step of an erasure", `
			update erasures as e set `+erased+`step = $4, position = 0, counts = $5, plan = $6, problem = null,
			  not_before = now() + $7::bigint * interval '1 microsecond', leased_until = now() + $8::bigint * interval '1 microsecond'
			where e.tenant_id = $1 and e.erasure_id = $2 and e.worker = $3`,
			d.tenant, [16]byte(d.id), [16]byte(worker), string(e.Step), counts, plan, pause.Microseconds(), lease.Microseconds()))
		if err != nil || e.Step != StepSettle && e.Step != StepDocuments {
			return err
		}
		return pg.Notify(ctx, tx, pg.ErasuresChannel, d.tenant.String())
	})
}

// erasedAt returns when the last events were erased, and the database's time.
func (s *Postgres) erasedAt(ctx context.Context, d due) (erased, now time.Time, err error) {
	err = pg.Under(ctx, s.db.App, d.tenant, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select e.erased_at, now() from erasures e where e.tenant_id = $1 and e.erasure_id = $2", d.tenant, [16]byte(d.id)).
			Scan((*pg.Moment)(&erased), (*pg.Moment)(&now))
	})
	return erased, now, err
}

// finish ends an erasure with its receipt, and forgets the subject.
func (s *Postgres) finish(ctx context.Context, d due, worker domain.UUID, receipt string, now time.Time) error {
	return mine(pg.ExecUnder(ctx, s.db.App, d.tenant, "finish an erasure", `
		update erasures as e set state = 'done', finished_at = $5, receipt = $4, subject = null, plan = '{}', problem = null, worker = null, leased_until = null
		where e.tenant_id = $1 and e.erasure_id = $2 and e.worker = $3`, d.tenant, [16]byte(d.id), [16]byte(worker), receipt, now))
}

// ListenErasures calls changed whenever an erasure has changed a tenant's stored events, until ctx ends;
// domain.Everyone means that of any tenant may have changed. It returns nil.
func (s *Postgres) ListenErasures(ctx context.Context, changed func(tenant domain.TenantID)) error {
	s.db.ListenTenants(ctx, pg.ErasuresChannel, changed)
	return nil
}

// TenantsWithErasures returns the tenants that have erasures, finished or not.
func (s *Postgres) TenantsWithErasures(ctx context.Context) ([]domain.TenantID, error) {
	scan := func(row pgx.CollectableRow) (tenant domain.TenantID, err error) {
		return tenant, row.Scan((*[16]byte)(&tenant))
	}
	return pg.Select(ctx, s.db.System, "list the tenants with erasures", scan, "select distinct e.tenant_id from erasures as e")
}
