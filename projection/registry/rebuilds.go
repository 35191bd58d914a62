package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// MaxRebuilds is how many ended rebuilds of a projection are kept, swapped and others counted apart.
const MaxRebuilds = 100

// running is the condition for a rebuild that has not ended. It equals that of the index which allows a projection only
// one such rebuild.
const running = "r.state in ('queued', 'building', 'catching-up', 'validating', 'awaiting-approval')"

const rebuildColumns = `r.tenant_id, r.name, r.rebuild_id, r.build, r.definition, r.options,
	coalesce(r.rollback_of, '00000000-0000-0000-0000-000000000000'), r.by, r.state, r.cancel, r.paused, r.approved, r.worker::text,
	r.events_done, r.events_total, r.events_per_second, r.documents, r.live_before, r.difference, r.loss, r.max_faulted, r.faulted,
	r.fills, r.seeded, r.error, r.previous,
	r.created_at, r.started_at, r.updated_at, r.ended_at`

func scanRebuild(row pgx.CollectableRow) (domain.Rebuild, error) {
	var r domain.Rebuild
	var definition, options, difference, loss, faulted, fills, previous []byte
	err := row.Scan(&r.Owner, &r.Name, &r.ID, &r.Build, &definition, &options,
		&r.RollbackOf, &r.By, &r.State, &r.Cancel, &r.Paused, &r.Approved, (*pg.NullText)(&r.Worker),
		&r.EventsDone, &r.EventsTotal, &r.EventsPerSecond, &r.Documents, &r.LiveBefore, &difference, &loss, &r.MaxFaulted, &faulted, &fills, &r.Seeded, (*pg.NullText)(&r.Error), &previous,
		(*pg.Moment)(&r.CreatedAt), (*pg.Moment)(&r.StartedAt), (*pg.Moment)(&r.UpdatedAt), (*pg.Moment)(&r.EndedAt))
	if err != nil {
		return domain.Rebuild{}, err
	}
	for _, column := range []struct {
		text  []byte // nil: the value is missing
		value any
	}{
		{definition, &r.Definition}, {options, &r.RebuildOptions}, {difference, &r.Difference},
		{loss, &r.Loss}, {faulted, &r.Faulted}, {fills, &r.Fills}, {previous, &r.Previous},
	} {
		if column.text == nil {
			continue
		}
		if err := pg.DecodeStrictly(column.text, column.value); err != nil {
			return domain.Rebuild{}, err
		}
	}
	return r, nil
}

// encodeOrNull encodes the value of a jsonb column as JSON; nil if there is none.
func encodeOrNull[T any](value *T) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", value, err)
	}
	return text, nil
}

// CreateRebuild queues a rebuild; its build number comes from NextBuild. It returns domain.CodeRebuildRunning if the
// projection has a rebuild that has not ended, and domain.CodeNotFound if there is no projection.
func (s *Registry) CreateRebuild(ctx context.Context, rebuild domain.Rebuild) error {
	return s.createRebuild(ctx, rebuild, func(domain.Projection) error { return nil })
}

// CreateRebuildOf is CreateRebuild if the projection still has this revision. Otherwise the error is
// domain.CodePreconditionFailed.
func (s *Registry) CreateRebuildOf(ctx context.Context, rebuild domain.Rebuild, revision int64) error {
	return s.createRebuild(ctx, rebuild, func(p domain.Projection) error { return p.RequireRevision(revision) })
}

func (s *Registry) createRebuild(ctx context.Context, rebuild domain.Rebuild, check func(domain.Projection) error) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		p, err := lockAndReadProjection(ctx, tx, rebuild.ProjectionID)
		if err != nil {
			return err
		}
		if err := check(p); err != nil {
			return err
		}
		return insertRebuild(ctx, tx, rebuild)
	})
}

// insertRebuild queues a rebuild in a transaction that has locked the projection's row.
func insertRebuild(ctx context.Context, tx pgx.Tx, rebuild domain.Rebuild) error {
	definition, err := json.Marshal(rebuild.Definition)
	if err != nil {
		return fmt.Errorf("write the rebuild's definition: %w", err)
	}
	options, err := json.Marshal(rebuild.RebuildOptions)
	if err != nil {
		return fmt.Errorf("write the rebuild's options: %w", err)
	}
	var rollbackOf any
	if rebuild.RollbackOf != (domain.RebuildID{}) {
		rollbackOf = rebuild.RollbackOf
	}
	_, err = tx.Exec(ctx, `
		insert into rebuilds (tenant_id, name, rebuild_id, build, definition, options, rollback_of, by, state, events_total, max_faulted)
		values ($1, $2, $3, $4, $5, $6, $7, $8, 'queued', $9, $10)`,
		rebuild.Owner, rebuild.Name, rebuild.ID, rebuild.Build, definition, options, rollbackOf, rebuild.By, rebuild.EventsTotal, rebuild.MaxFaulted)
	switch {
	case pg.SQLState(err) == pg.UniqueViolation:
		return rebuildRunning(rebuild.ProjectionID)
	case err != nil:
		return fmt.Errorf("create a rebuild: %w", err)
	}
	// Swapped rebuilds are counted separately, so that many failed ones do not push out the one that a rollback needs.
	_, err = pg.Exec(ctx, tx, "forget a projection's oldest rebuilds", `
		delete from rebuilds r where r.tenant_id = $1 and r.name = $2 and r.rebuild_id in (
			select o.rebuild_id from (
				select o.rebuild_id, row_number() over (partition by o.state = 'swapped' order by o.created_at desc, o.rebuild_id desc) as place
				from rebuilds o where o.tenant_id = $1 and o.name = $2 and o.ended_at is not null) as o
			where o.place > $3)`, rebuild.Owner, rebuild.Name, MaxRebuilds)
	if err != nil {
		return err
	}
	return requireNoCycle(ctx, tx, rebuild.ProjectionID, rebuild.Definition)
}

// Rebuild returns a rebuild, or domain.CodeNotFound if there is none.
func (s *Registry) Rebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	found, ok, err := pg.SelectOneUnder(ctx, s.db.App, id.Owner, "read a rebuild", scanRebuild, "select "+rebuildColumns+` from rebuilds r
		where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3`, id.Owner, id.Name, rebuild)
	if err == nil && !ok {
		err = noRebuild(id, rebuild)
	}
	return found, err
}

// Rebuilds returns a projection's last MaxRebuilds rebuilds, newest first.
func (s *Registry) Rebuilds(ctx context.Context, id domain.ProjectionID) ([]domain.Rebuild, error) {
	return pg.SelectUnder(ctx, s.db.App, id.Owner, "list the rebuilds", scanRebuild, "select "+rebuildColumns+` from rebuilds r
		where r.tenant_id = $1 and r.name = $2 order by r.created_at desc, r.rebuild_id desc limit $3`, id.Owner, id.Name, MaxRebuilds)
}

// RunningRebuilds returns the rebuilds of all owners that have not ended, including queued ones, oldest first.
func (s *Registry) RunningRebuilds(ctx context.Context) ([]domain.Rebuild, error) {
	return pg.Select(ctx, s.db.System, "list the running rebuilds", scanRebuild,
		"select "+rebuildColumns+" from rebuilds r where "+running+" order by r.created_at")
}

// ClaimRebuild assigns a rebuild to worker (a UUID) if it has no worker, or if its worker has not saved for staleAfter
// by the database's clock. A queued rebuild then becomes building. ClaimRebuild returns the resulting rebuild. It
// returns false if the rebuild has ended, is paused without a cancellation, or has a worker, even if that is worker
// itself. Of several concurrent claims, exactly one wins.
func (s *Registry) ClaimRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, worker string, staleAfter time.Duration) (claimed domain.Rebuild, ok bool, err error) {
	return pg.SelectOneUnder(ctx, s.db.App, id.Owner, "claim a rebuild", scanRebuild, `
		update rebuilds r set worker = $4, alive_at = now(), started_at = least(r.started_at, now()), updated_at = now(),
		  state = case when r.state = 'queued' then 'building' else r.state end
		where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 and `+running+`
		  and (r.worker is null or r.alive_at < now() - $5::interval) and (r.cancel or not r.paused)
		returning `+rebuildColumns, id.Owner, id.Name, rebuild, worker, staleAfter)
}

// SaveRebuild stores state, progress and sign of life of the rebuild's worker. It returns the rebuild with the requests
// made meanwhile: Cancel, Paused, Approved. It returns domain.CodeConflict if the rebuild has ended or has another
// worker; the caller must then stop. It does not accept a final state: see EndRebuild and SwapProjection.
func (s *Registry) SaveRebuild(ctx context.Context, rebuild domain.Rebuild) (saved domain.Rebuild, err error) {
	difference, err := encodeOrNull(rebuild.Difference)
	if err != nil {
		return domain.Rebuild{}, err
	}
	var loss []byte
	if len(rebuild.Loss) > 0 {
		if loss, err = json.Marshal(rebuild.Loss); err != nil {
			return domain.Rebuild{}, fmt.Errorf("write a rebuild's loss: %w", err)
		}
	}
	faulted, err := encodeOrNull(rebuild.Faulted)
	if err != nil {
		return domain.Rebuild{}, err
	}
	fills, err := encodeFills(rebuild)
	if err != nil {
		return domain.Rebuild{}, err
	}
	return s.saveRebuild(ctx, rebuild, "difference = @difference, loss = @loss, faulted = @faulted, fills = @fills,",
		pgx.NamedArgs{"difference": difference, "loss": loss, "faulted": faulted, "fills": fills})
}

// BeatRebuild is SaveRebuild without difference, loss and faulted tenants, which are found once and may be long.
func (s *Registry) BeatRebuild(ctx context.Context, rebuild domain.Rebuild) (saved domain.Rebuild, err error) {
	fills, err := encodeFills(rebuild)
	if err != nil {
		return domain.Rebuild{}, err
	}
	return s.saveRebuild(ctx, rebuild, "fills = @fills,", pgx.NamedArgs{"fills": fills})
}

// encodeFills encodes how far a rebuild's fills are; nil if there are none.
func encodeFills(rebuild domain.Rebuild) ([]byte, error) {
	if len(rebuild.Fills) == 0 {
		return nil, nil
	}
	return encodeOrNull(&rebuild.Fills)
}

// progressColumns are assigned from progressArgs.
const progressColumns = `state = @state, events_done = @eventsDone, events_total = @eventsTotal, events_per_second = @eventsPerSecond,
	documents = @documents, live_before = @liveBefore, seeded = @seeded, error = @error, `

// progressArgs returns what identifies a rebuild and its worker, the values of progressColumns, and more.
func progressArgs(rebuild domain.Rebuild, more pgx.NamedArgs) pgx.NamedArgs {
	args := pgx.NamedArgs{
		"owner": rebuild.Owner, "name": rebuild.Name, "id": rebuild.ID, "worker": pg.TextOrNull(rebuild.Worker),
		"state": rebuild.State, "eventsDone": rebuild.EventsDone, "eventsTotal": rebuild.EventsTotal, "eventsPerSecond": rebuild.EventsPerSecond,
		"documents": rebuild.Documents, "liveBefore": rebuild.LiveBefore, "seeded": rebuild.Seeded, "error": pg.TextOrNull(rebuild.Error),
	}
	maps.Copy(args, more)
	return args
}

// saveRebuild stores a rebuild's progress; set is one of the SQL fragments above, and more holds its values.
func (s *Registry) saveRebuild(ctx context.Context, rebuild domain.Rebuild, set string, more pgx.NamedArgs) (domain.Rebuild, error) {
	if rebuild.State.Ended() {
		return domain.Rebuild{}, fmt.Errorf("save a rebuild: %s is a final state", rebuild.State)
	}
	err := pg.Under(ctx, s.db.App, rebuild.Owner, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			update rebuilds r set `+progressColumns+set+` alive_at = now(), updated_at = now()
			where r.tenant_id = @owner and r.name = @name and r.rebuild_id = @id and r.worker = @worker and `+running+`
			returning r.cancel, r.paused, r.approved`, progressArgs(rebuild, more)).
			Scan(&rebuild.Cancel, &rebuild.Paused, &rebuild.Approved)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return notOwned(rebuild)
		case err != nil:
			return fmt.Errorf("save a rebuild: %w", err)
		}
		return nil
	})
	return rebuild, err
}

// ReleaseRebuild releases a rebuild before its end, so that another worker need not wait until this one counts as dead.
// It does nothing if another worker has the rebuild.
func (s *Registry) ReleaseRebuild(ctx context.Context, rebuild domain.Rebuild) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		_, err := pg.Exec(ctx, tx, "release a rebuild", `
			update rebuilds r set worker = null, updated_at = now()
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 and r.worker = $4 and `+running,
			rebuild.Owner, rebuild.Name, rebuild.ID, pg.TextOrNull(rebuild.Worker))
		return err
	})
}

// EndRebuild ends a rebuild without a swap, as cancelled, failed or reported, with its last progress. It releases the
// live build if the rebuild held it, and retires the new build, which may be dropped at dropAt. If the new build is
// live for a tenant, it is not retired. Only the rebuild's worker may call it or, if the rebuild is unclaimed, a caller
// with an empty Worker. Otherwise it returns domain.CodeConflict. ReleaseTenant releases tenants that the rebuild still
// holds.
func (s *Registry) EndRebuild(ctx context.Context, rebuild domain.Rebuild, dropAt time.Time) error {
	switch rebuild.State {
	case domain.RebuildCancelled, domain.RebuildFailed, domain.RebuildReported:
	default:
		return fmt.Errorf("end a rebuild: %s is not how one ends without a swap", rebuild.State)
	}
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		// Lock the projection's row first, as everywhere. It exists, since deleting it ends the rebuild.
		live, err := lockProjection(ctx, tx, rebuild.ProjectionID)
		if domain.IsCode(err, domain.CodeNotFound) {
			return notOwned(rebuild)
		}
		if err != nil {
			return err
		}
		if err := releaseHold(ctx, tx, rebuild); err != nil {
			return err
		}
		if err := s.finishRebuild(ctx, tx, rebuild, running); err != nil {
			return err
		}
		if live.Number == rebuild.Build {
			return nil // this rebuild moves tenants back to the build of all others
		}
		return retire(ctx, tx, rebuild.NewBuild(), dropAt)
	})
}

// finishRebuild stores a rebuild's final state if it still has the same worker and the condition holds.
func (s *Registry) finishRebuild(ctx context.Context, tx pgx.Tx, rebuild domain.Rebuild, condition string) error {
	difference, err := encodeOrNull(rebuild.Difference)
	if err != nil {
		return err
	}
	faulted, err := encodeOrNull(rebuild.Faulted)
	if err != nil {
		return err
	}
	changed, err := pg.Exec(ctx, tx, "end a rebuild", `
		update rebuilds r set `+progressColumns+`difference = @difference, faulted = @faulted, fills = null, worker = null, ended_at = now(), updated_at = now()
		where r.tenant_id = @owner and r.name = @name and r.rebuild_id = @id and r.worker is not distinct from @worker and `+condition,
		progressArgs(rebuild, pgx.NamedArgs{"difference": difference, "faulted": faulted}))
	if err == nil && changed == 0 {
		err = notOwned(rebuild)
	}
	return err
}

// ForgetExamples removes a tenant's documents from the examples of differences in rebuilds of shared projections, and
// its faults from their lists of faulted tenants.
func (s *Registry) ForgetExamples(ctx context.Context, tenant domain.TenantID) error {
	return pg.Under(ctx, s.db.App, domain.Everyone, func(tx pgx.Tx) error {
		_, err := pg.Exec(ctx, tx, "remove a tenant's documents from rebuilds' examples", `
			update rebuilds r set difference = jsonb_set(r.difference, '{examples}', coalesce((
			  select jsonb_agg(e.example) from jsonb_array_elements(r.difference->'examples') as e (example)
			  where e.example->>'tenant' <> $2), '[]'))
			where r.tenant_id = $1 and r.difference->'examples' @> jsonb_build_array(jsonb_build_object('tenant', $2::text))`,
			domain.Everyone, tenant.String())
		if err != nil {
			return err
		}
		_, err = pg.Exec(ctx, tx, "remove a tenant's faults from rebuilds", `
			update rebuilds r set faulted = jsonb_set(r.faulted, '{first}', coalesce((
			  select jsonb_agg(f.fault) from jsonb_array_elements(r.faulted->'first') as f (fault)
			  where f.fault->>'tenant' <> $2), '[]'))
			where r.tenant_id = $1 and r.faulted->'first' @> jsonb_build_array(jsonb_build_object('tenant', $2::text))`,
			domain.Everyone, tenant.String())
		return err
	})
}

func rebuildRunning(id domain.ProjectionID) error {
	return domain.Errorf(domain.CodeRebuildRunning, "", "a rebuild of projection %q is under way; wait for its end, or cancel it", id.Name)
}

func noRebuild(id domain.ProjectionID, rebuild domain.RebuildID) error {
	return domain.Errorf(domain.CodeNotFound, "", "projection %q has no rebuild %s", id.Name, rebuild)
}

func notOwned(rebuild domain.Rebuild) error {
	return domain.Errorf(domain.CodeConflict, "", "rebuild %s has ended, is being cancelled, is in another phase, or is run by another process", rebuild.ID)
}
