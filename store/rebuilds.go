package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// running holds for a rebuild that has not ended: the condition of the index that lets a projection have one of them.
const running = "r.state in ('queued', 'building', 'catching-up', 'validating')"

const rebuildColumns = `r.tenant_id, r.name, r.rebuild_id, r.build, r.definition, r.state, r.cancel, r.worker::text,
	r.events_done, r.events_total, r.documents, r.live_before, r.error, r.created_at, r.started_at, r.updated_at, r.ended_at`

func scanRebuild(row pgx.CollectableRow) (domain.Rebuild, error) {
	var r domain.Rebuild
	var definition []byte
	err := row.Scan(&r.Owner, &r.Name, &r.ID, &r.Build, &definition, &r.State, &r.Cancel, (*nullText)(&r.Worker),
		&r.EventsDone, &r.EventsTotal, &r.Documents, &r.LiveBefore, (*nullText)(&r.Error),
		(*moment)(&r.CreatedAt), (*moment)(&r.StartedAt), (*moment)(&r.UpdatedAt), (*moment)(&r.EndedAt))
	if err != nil {
		return domain.Rebuild{}, err
	}
	return r, decodeStrictly(definition, &r.Definition)
}

// CreateRebuild queues a rebuild; its build number is one that NextBuild has given. Where the projection has one that
// has not ended it is domain.CodeRebuildRunning, and without a projection domain.CodeNotFound.
func (s *Store) CreateRebuild(ctx context.Context, rebuild domain.Rebuild) error {
	definition, err := json.Marshal(rebuild.Definition)
	if err != nil {
		return fmt.Errorf("write the rebuild's definition: %w", err)
	}
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		if _, err := lockProjection(ctx, tx, rebuild.ProjectionID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			insert into rebuilds (tenant_id, name, rebuild_id, build, definition, state, events_total)
			values ($1, $2, $3, $4, $5, 'queued', $6)`,
			rebuild.Owner, rebuild.Name, rebuild.ID, rebuild.Build, definition, rebuild.EventsTotal)
		switch {
		case sqlState(err) == uniqueViolation:
			return rebuildRunning(rebuild.ProjectionID)
		case err != nil:
			return fmt.Errorf("create a rebuild: %w", err)
		}
		return nil
	})
}

// Rebuild returns a rebuild; domain.CodeNotFound where there is none.
func (s *Store) Rebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	var found domain.Rebuild
	err := under(ctx, s.app, id.Owner, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, "select "+rebuildColumns+` from rebuilds r
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3`, id.Owner, id.Name, rebuild)
		var err error
		found, err = pgx.CollectExactlyOneRow(rows, scanRebuild)
		if errors.Is(err, pgx.ErrNoRows) {
			return noRebuild(id, rebuild)
		}
		if err != nil {
			return fmt.Errorf("read a rebuild: %w", err)
		}
		return nil
	})
	return found, err
}

// rebuildsListed is how many rebuilds of a projection are listed.
const rebuildsListed = 100

// Rebuilds returns a projection's last 100 rebuilds, the newest first.
func (s *Store) Rebuilds(ctx context.Context, id domain.ProjectionID) ([]domain.Rebuild, error) {
	var rebuilds []domain.Rebuild
	err := under(ctx, s.app, id.Owner, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, "select "+rebuildColumns+` from rebuilds r
			where r.tenant_id = $1 and r.name = $2 order by r.created_at desc, r.rebuild_id desc limit $3`,
			id.Owner, id.Name, rebuildsListed)
		var err error
		if rebuilds, err = pgx.CollectRows(rows, scanRebuild); err != nil {
			return fmt.Errorf("list the rebuilds: %w", err)
		}
		return nil
	})
	return rebuilds, err
}

// RunningRebuilds returns the rebuilds of all owners that have not ended, queued ones too, the oldest first.
func (s *Store) RunningRebuilds(ctx context.Context) ([]domain.Rebuild, error) {
	rows, _ := s.system.Query(ctx, "select "+rebuildColumns+" from rebuilds r where "+running+" order by r.created_at")
	rebuilds, err := pgx.CollectRows(rows, scanRebuild)
	if err != nil {
		return nil, unavailable(fmt.Errorf("list the running rebuilds: %w", err))
	}
	return rebuilds, nil
}

// ClaimRebuild makes worker (a UUID) the one that works on a rebuild, if nobody does, or if who did has not saved for
// staleAfter by the database's clock; a queued one is then building. It returns the rebuild as it is afterwards, or
// false where it has ended, somebody else is at it, or worker itself has claimed it already: of any number of claims at
// one time one wins.
func (s *Store) ClaimRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, worker string, staleAfter time.Duration) (claimed domain.Rebuild, ok bool, err error) {
	err = under(ctx, s.app, id.Owner, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			update rebuilds r set worker = $4, alive_at = now(), started_at = coalesce(r.started_at, now()), updated_at = now(),
			  state = case r.state when 'queued' then 'building' else r.state end
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 and `+running+`
			  and (r.worker is null or r.alive_at < now() - $5::interval)
			returning `+rebuildColumns, id.Owner, id.Name, rebuild, worker, staleAfter)
		var err error
		claimed, err = pgx.CollectExactlyOneRow(rows, scanRebuild)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("claim a rebuild: %w", err)
		}
		ok = true
		return nil
	})
	return claimed, ok && err == nil, err
}

// SaveRebuild stores state, progress and the sign of life of the rebuild's worker. It reports whether somebody asked for
// the rebuild to be cancelled. Where the rebuild has ended or another worker has it, it is domain.CodeConflict, and the
// caller must stop. A final state is not for it: see EndRebuild and SwapProjection.
func (s *Store) SaveRebuild(ctx context.Context, rebuild domain.Rebuild) (cancel bool, err error) {
	if rebuild.State.Ended() {
		return false, fmt.Errorf("save a rebuild: %s is a final state", rebuild.State)
	}
	err = under(ctx, s.app, rebuild.Owner, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			update rebuilds r set state = $5, events_done = $6, events_total = $7, documents = $8, live_before = $9, error = $10,
			  alive_at = now(), updated_at = now()
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 and r.worker = $4 and `+running+`
			returning r.cancel`,
			rebuild.Owner, rebuild.Name, rebuild.ID, text(rebuild.Worker), rebuild.State,
			rebuild.EventsDone, rebuild.EventsTotal, rebuild.Documents, rebuild.LiveBefore, text(rebuild.Error)).Scan(&cancel)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return notMine(rebuild)
		case err != nil:
			return fmt.Errorf("save a rebuild: %w", err)
		}
		return nil
	})
	return cancel, err
}

// ReleaseRebuild gives a rebuild back before its end, so that another worker need not wait until this one counts as
// dead. It does nothing where another one has it.
func (s *Store) ReleaseRebuild(ctx context.Context, rebuild domain.Rebuild) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			update rebuilds r set worker = null, updated_at = now()
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 and r.worker = $4 and `+running,
			rebuild.Owner, rebuild.Name, rebuild.ID, text(rebuild.Worker))
		if err != nil {
			return fmt.Errorf("release a rebuild: %w", err)
		}
		return nil
	})
}

// CancelRebuild asks for a rebuild to be cancelled; its worker does it. One that has ended is domain.CodeConflict, one
// that is not there domain.CodeNotFound.
func (s *Store) CancelRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error {
	return s.changeProjection(ctx, id, func(tx pgx.Tx) error {
		var state domain.RebuildState
		err := tx.QueryRow(ctx, `
			select r.state from rebuilds r
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 for update`, id.Owner, id.Name, rebuild).Scan(&state)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return noRebuild(id, rebuild)
		case err != nil:
			return fmt.Errorf("lock a rebuild: %w", err)
		case state.Ended():
			return domain.Errorf(domain.CodeConflict, "", "rebuild %s has ended already: it is %s", rebuild, state)
		}
		_, err = tx.Exec(ctx, `
			update rebuilds r set cancel = true, updated_at = now()
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3`, id.Owner, id.Name, rebuild)
		if err != nil {
			return fmt.Errorf("cancel a rebuild: %w", err)
		}
		return nil
	})
}

// EndRebuild ends a rebuild as cancelled or failed, with its last progress: it lets go of the live build if the rebuild
// held it, and retires the new build, which may be dropped at dropAt. Only the rebuild's worker may (or, for one that
// nobody has claimed, whoever passes an empty Worker); else it is domain.CodeConflict.
func (s *Store) EndRebuild(ctx context.Context, rebuild domain.Rebuild, dropAt time.Time) error {
	if rebuild.State != domain.RebuildCancelled && rebuild.State != domain.RebuildFailed {
		return fmt.Errorf("end a rebuild: %s is not how one ends without a swap", rebuild.State)
	}
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		// The projection's row first, as everywhere. The row is there: deleting it ends the rebuild.
		_, err := tx.Exec(ctx, `
			update projections p set held_by = null, revision = p.revision + 1, updated_at = now()
			where p.tenant_id = $1 and p.name = $2 and p.held_by = $3`, rebuild.Owner, rebuild.Name, rebuild.ID)
		if err != nil {
			return fmt.Errorf("let go of the projection: %w", err)
		}
		if err := s.finishRebuild(ctx, tx, rebuild, running); err != nil {
			return err
		}
		return retire(ctx, tx, rebuild.NewBuild(), dropAt)
	})
}

// finishRebuild stores a rebuild's final state if its worker is still the one in it and the condition holds.
func (s *Store) finishRebuild(ctx context.Context, tx pgx.Tx, rebuild domain.Rebuild, condition string) error {
	done, err := tx.Exec(ctx, `
		update rebuilds r set state = $5, events_done = $6, events_total = $7, documents = $8, live_before = $9, error = $10,
		  worker = null, ended_at = now(), updated_at = now()
		where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 and r.worker is not distinct from $4 and `+condition,
		rebuild.Owner, rebuild.Name, rebuild.ID, text(rebuild.Worker), rebuild.State,
		rebuild.EventsDone, rebuild.EventsTotal, rebuild.Documents, rebuild.LiveBefore, text(rebuild.Error))
	switch {
	case err != nil:
		return fmt.Errorf("end a rebuild: %w", err)
	case done.RowsAffected() == 0:
		return notMine(rebuild)
	}
	return nil
}

func rebuildRunning(id domain.ProjectionID) error {
	return domain.Errorf(domain.CodeRebuildRunning, "", "a rebuild of projection %q is under way; wait for its end, or cancel it", id.Name)
}

func noRebuild(id domain.ProjectionID, rebuild domain.RebuildID) error {
	return domain.Errorf(domain.CodeNotFound, "", "projection %q has no rebuild %s", id.Name, rebuild)
}

func notMine(rebuild domain.Rebuild) error {
	return domain.Errorf(domain.CodeConflict, "", "rebuild %s has ended, is being cancelled, is not where this step begins, or another process has it", rebuild.ID)
}
