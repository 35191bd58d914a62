package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// A fault is a row of the tenant that the event belongs to. So the faults of a shared projection are rows of many
// tenants.

const faultColumns = `f.tenant_id, f.owner, f.name, f.build, f.position, f.event_id, f.stream, f.event_type, f.document_id, f.place,
	f.expression, f.message, f.before, f.at, f.retries, f.retry_at`

func scanFault(row pgx.CollectableRow) (domain.Fault, error) {
	var f domain.Fault
	err := row.Scan(&f.Tenant, &f.Owner, &f.Name, &f.Build, &f.Position, &f.EventID, &f.Stream, &f.EventType, &f.DocumentID, &f.Where,
		&f.Expression, &f.Message, (*[]byte)(&f.Before), (*pg.Moment)(&f.At), &f.Retries, (*pg.Moment)(&f.RetryAt))
	return f, err
}

// PutFault stores the event at which a build has stopped for a tenant, and when the event is tried again. If the build
// had stopped at that event already, PutFault counts a retry and keeps At. Otherwise it replaces the earlier fault, and
// At is the database's current time. It returns the number of retries so far, and how long to wait for the next one.
func (s *Registry) PutFault(ctx context.Context, fault domain.Fault, schedule domain.RetrySchedule) (retries int64, wait time.Duration, err error) {
	schedule = schedule.Jittered()
	err = pg.Under(ctx, s.db.App, fault.Tenant, func(tx pgx.Tx) error {
		arguments := pgx.NamedArgs{
			"tenant": fault.Tenant, "owner": fault.Owner, "name": fault.Name, "build": fault.Build, "position": fault.Position,
			"event": fault.EventID, "stream": fault.Stream, "type": fault.EventType, "document": fault.DocumentID, "place": fault.Where,
			"expression": fault.Expression, "message": fault.Message, "before": jsonOrNull(fault.Before),
		}
		// Two statements: a sharded database refuses to add to now() what a column says.
		err := tx.QueryRow(ctx, `
			select f.retries + 1 from faults f
			where f.tenant_id = @tenant and f.owner = @owner and f.name = @name and f.build = @build and f.position = @position
			for update`, arguments).Scan(&retries)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for the fault before: %w", err)
		}
		wait = schedule.After(retries)
		arguments["retries"], arguments["wait"] = retries, wait.Microseconds()
		_, err = pg.Exec(ctx, tx, "keep a fault", `
			insert into faults as f (tenant_id, owner, name, build, position, event_id, stream, event_type, document_id, place, expression,
			  message, before, retries, retry_at)
			values (@tenant, @owner, @name, @build, @position, @event, @stream, @type, @document, @place, @expression,
			  @message, @before, @retries, now() + @wait::bigint * interval '1 microsecond')
			on conflict (tenant_id, owner, name, build) do update
			  set position = excluded.position, event_id = excluded.event_id, stream = excluded.stream, event_type = excluded.event_type,
			    document_id = excluded.document_id, place = excluded.place, expression = excluded.expression,
			    message = excluded.message, before = excluded.before,
			    at = case when f.position = excluded.position then f.at else excluded.at end,
			    retries = excluded.retries, retry_at = excluded.retry_at`, arguments)
		return err
	})
	return retries, wait, err
}

// jsonOrNull returns a parameter for a jsonb column.
func jsonOrNull(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	return new(string(raw))
}

// Fault returns the event at which a build has stopped for a tenant; ok is false if it has not stopped.
func (s *Registry) Fault(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64) (fault domain.Fault, ok bool, err error) {
	return pg.SelectOneUnder(ctx, s.db.App, tenant, "read a fault", scanFault, "select "+faultColumns+` from faults f
		where f.tenant_id = $1 and f.owner = $2 and f.name = $3 and f.build = $4`, tenant, id.Owner, id.Name, build)
}

// Faults returns the faults of a build for all tenants, in no order.
func (s *Registry) Faults(ctx context.Context, id domain.ProjectionID, build int64) ([]domain.Fault, error) {
	return pg.Select(ctx, s.db.System, "list the faults", scanFault, "select "+faultColumns+` from faults f
		where f.owner = $1 and f.name = $2 and f.build = $3 and ($4 or f.tenant_id = $1)`, id.Owner, id.Name, build, id.Shared())
}

// DeleteFault removes one tenant's fault of a build, if it has one.
func (s *Registry) DeleteFault(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64) error {
	return pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		return deleteFault(ctx, tx, tenant, id, build)
	})
}

// RetryFault removes one tenant's fault of a build, if it has one, and notifies every process to retry the event: see
// ListenRetries.
func (s *Registry) RetryFault(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64) error {
	return s.retry(ctx, tenant, id, func(tx pgx.Tx) error {
		return deleteFault(ctx, tx, tenant, id, build)
	})
}

// Retry says that a projection must check again, for a tenant, the event before which it has stopped and the events it
// leaves out. The zero value means every tenant and projection, because notices may have been lost.
type Retry struct {
	Tenant     domain.TenantID
	Projection domain.ProjectionID
}

// retry runs do in a transaction under the tenant and notifies every process after the commit.
func (s *Registry) retry(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, do func(pgx.Tx) error) error {
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		if err := do(tx); err != nil {
			return err
		}
		return pg.Notify(ctx, tx, pg.RetriesChannel, tenant.String()+" "+id.Owner.String()+" "+id.Name)
	})
	if err != nil {
		return err
	}
	s.retries.Notify(Retry{tenant, id})
	return nil
}

// ListenRetries calls retry when any process has requested that an event be retried or skipped, or that parked
// documents be released. It calls retry with zero values if notices may have been lost, including at the start. retry
// must return soon, and is called by several goroutines. ListenRetries blocks until ctx ends, and then returns nil.
func (s *Registry) ListenRetries(ctx context.Context, retry func(tenant domain.TenantID, id domain.ProjectionID)) error {
	defer s.retries.Add(func(r Retry) { retry(r.Tenant, r.Projection) })()
	s.db.ListenOn(ctx, pg.RetriesChannel, func() { retry(domain.TenantID{}, domain.ProjectionID{}) }, func(payload string) {
		r, err := parseRetry(payload)
		if err != nil {
			r = Retry{} // from an unknown sender: check everything, to be safe
		}
		retry(r.Tenant, r.Projection)
	})
	return nil
}

func parseRetry(payload string) (r Retry, err error) {
	parts := strings.SplitN(payload, " ", 3)
	if len(parts) != 3 {
		return Retry{}, fmt.Errorf("%q is not a valid retry notice", payload)
	}
	if r.Tenant, err = domain.ParseTenantID(parts[0]); err != nil {
		return Retry{}, err
	}
	r.Projection.Owner, err = domain.ParseTenantID(parts[1])
	r.Projection.Name = parts[2]
	return r, err
}

// DeleteFaults removes the faults of a build for all tenants, tenant by tenant.
func (s *Registry) DeleteFaults(ctx context.Context, id domain.ProjectionID, build int64) error {
	faults, err := s.Faults(ctx, id, build)
	if err != nil {
		return err
	}
	for _, fault := range faults {
		if err := s.DeleteFault(ctx, fault.Tenant, id, build); err != nil {
			return err
		}
	}
	return nil
}

// deleteOwnFaults removes the faults of a tenant's own build, within a transaction under that tenant. The faults of a
// shared build are rows of other tenants, which no single transaction may touch. They are removed when the build is
// forgotten. Until then nobody reads them, because a fault belongs to a build.
func deleteOwnFaults(ctx context.Context, tx pgx.Tx, build domain.Build) error {
	return deleteFault(ctx, tx, build.Owner, build.ProjectionID, build.Number)
}

func deleteFault(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, id domain.ProjectionID, build int64) error {
	_, err := pg.Exec(ctx, tx, "delete a fault", "delete from faults f where f.tenant_id = $1 and f.owner = $2 and f.name = $3 and f.build = $4",
		tenant, id.Owner, id.Name, build)
	return err
}

// erasedText replaces texts that may quote events or documents.
const erasedText = "erased with the data of a person"

// ForgetTexts removes what a tenant's faults, parked documents, skipped events and rebuilds quote of events and
// documents. The faults themselves stay; the next attempt describes them again. It returns how many rows it has
// changed.
func (s *Registry) ForgetTexts(ctx context.Context, tenant domain.TenantID) (changed int64, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		for _, sql := range [...]string{
			"update faults f set message = $2, before = null where f.tenant_id = $1 and (f.message <> $2 or f.before is not null)",
			"update parked_documents d set message = $2, before = null where d.tenant_id = $1 and (d.message <> $2 or d.before is not null)",
			"update skipped_events e set message = $2 where e.tenant_id = $1 and e.message <> $2",
			"update tenant_builds b set fault = $2 where b.tenant_id = $1 and b.fault <> $2",
			`update rebuilds r set error = case when r.error is not null then $2::text end, difference = r.difference - 'examples', faulted = r.faulted - 'first'
			where r.tenant_id = $1 and (r.error <> $2 or r.difference ? 'examples' or r.faulted ? 'first')`,
		} {
			rows, err := pg.Exec(ctx, tx, "remove what faults quote", sql, tenant, erasedText)
			if err != nil {
				return err
			}
			changed += rows
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return changed, s.ForgetExamples(ctx, tenant)
}
