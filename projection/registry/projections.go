package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/pg"
)

// MaxProjections is how many unshared projections a tenant may have.
const MaxProjections = 1000

// Shared projections are rows of domain.Everyone, which no tenant's key can ever select.
//
// Lock order: a transaction that locks several rows locks the projection's first and then a rebuild's, so that no two
// wait for each other.

const projectionColumns = "p.tenant_id, p.name, p.definition, p.build, p.version, p.revision, p.held_by::text, p.created_at, p.updated_at"

func scanProjection(row pgx.CollectableRow) (domain.Projection, error) {
	return scanProjectionAnd(row)
}

// scanProjectionAnd reads a row of projectionColumns and more.
func scanProjectionAnd(row pgx.CollectableRow, more ...any) (domain.Projection, error) {
	var p domain.Projection
	var definition []byte
	err := row.Scan(append([]any{&p.Owner, &p.Name, &definition, &p.Build, &p.Version, &p.Revision, (*pg.NullText)(&p.HeldBy),
		(*pg.Moment)(&p.CreatedAt), (*pg.Moment)(&p.UpdatedAt)}, more...)...)
	if err != nil {
		return domain.Projection{}, err
	}
	return p, pg.DecodeStrictly(definition, &p.Definition)
}

// CreateProjection creates a projection with its first build, whose number comes from NextBuild. It stores the
// definition as a version made by by. Version, Revision and times are the database's. If the owner already has the
// name, the error is domain.CodeAlreadyExists. A tenant may have MaxProjections; beyond that the error is
// domain.CodeQuotaExceeded.
func (s *Registry) CreateProjection(ctx context.Context, projection domain.Projection, by string) error {
	definition, err := json.Marshal(projection.Definition)
	if err != nil {
		return fmt.Errorf("write the projection's definition: %w", err)
	}
	return s.changeProjection(ctx, projection.ProjectionID, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into projections (tenant_id, name, definition, build) values ($1, $2, $3, $4)",
			projection.Owner, projection.Name, definition, projection.Build)
		switch {
		case pg.SQLState(err) == pg.UniqueViolation:
			return domain.Errorf(domain.CodeAlreadyExists, "name", "a projection named %q already exists", projection.Name)
		case err != nil:
			return fmt.Errorf("create a projection: %w", err)
		}
		if err := limits.Projections.Check(ctx, tx, projection.Owner, MaxProjections); err != nil {
			return err
		}
		if err := requireNoCycle(ctx, tx, projection.ProjectionID, projection.Definition); err != nil {
			return err
		}
		if err := removeAnnounced(ctx, tx, projection.ProjectionID, projection.Build); err != nil {
			return err
		}
		// If the name was used before, its versions continue.
		version, err := insertVersion(ctx, tx, domain.ProjectionVersion{
			ProjectionID: projection.ProjectionID, Definition: projection.Definition, Cause: domain.VersionCreated, By: by,
		})
		if err != nil || version == 1 {
			return err
		}
		_, err = pg.Exec(ctx, tx, "set the version of a projection",
			"update projections p set version = $3 where p.tenant_id = $1 and p.name = $2", projection.Owner, projection.Name, version)
		return err
	})
}

// Projection returns a projection, or domain.CodeNotFound if there is none.
func (s *Registry) Projection(ctx context.Context, id domain.ProjectionID) (domain.Projection, error) {
	projection, ok, err := pg.SelectOneUnder(ctx, s.db.App, id.Owner, "read a projection", scanProjection,
		"select "+projectionColumns+" from projections p where p.tenant_id = $1 and p.name = $2", id.Owner, id.Name)
	if err == nil && !ok {
		err = noProjection(id)
	}
	return projection, err
}

// Projections returns an owner's projections, ordered by name.
func (s *Registry) Projections(ctx context.Context, owner domain.TenantID) ([]domain.Projection, error) {
	return pg.SelectUnder(ctx, s.db.App, owner, "list the projections", scanProjection,
		"select "+projectionColumns+" from projections p where p.tenant_id = $1 order by p.name", owner)
}

// AllProjections returns the projections of all owners that were changed after since, the greatest UpdatedAt that the
// caller has seen; zero: all. It never returns removed projections.
//
// UpdatedAt is when the change's transaction began, but others see the change only after its end. So recent changes are
// returned repeatedly if they are at most 10 s older than since, which is the longest that a transaction may be idle.
func (s *Registry) AllProjections(ctx context.Context, since time.Time) ([]domain.Projection, error) {
	return pg.Select(ctx, s.db.System, "list all projections", scanProjection, "select "+projectionColumns+` from projections p
		where p.updated_at > $1
		  or p.updated_at > $1 - interval '10 seconds' and p.updated_at > now() - interval '30 seconds'`, since)
}

// NextBuild takes the owner's next build number, which is above all numbers taken before.
func (s *Registry) NextBuild(ctx context.Context, owner domain.TenantID) (int64, error) {
	number, _, err := pg.SelectOneUnder(ctx, s.db.App, owner, "take a build number", pgx.RowTo[int64], `
		insert into build_numbers as b (tenant_id, last) values ($1, 1)
		on conflict (tenant_id) do update set last = b.last + 1 returning b.last`, owner)
	return number, err
}

// DeleteProjection removes a projection, retires its live build, and cancels a running rebuild, whose worker notices at
// its next save. The builds may be dropped at dropAt. It stores the removal by by as the projection's last version. It
// returns domain.CodeNotFound if there is no such projection.
func (s *Registry) DeleteProjection(ctx context.Context, id domain.ProjectionID, dropAt time.Time, by string) error {
	err := s.changeProjection(ctx, id, func(tx pgx.Tx) error {
		live, err := lockProjection(ctx, tx, id)
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, `
			update rebuilds r set state = 'cancelled', cancel = true, worker = null, ended_at = now(), updated_at = now()
			where r.tenant_id = $1 and r.name = $2 and `+running+`
			returning r.build, coalesce(r.definition->>'database', '')`, id.Owner, id.Name)
		begun, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (domain.Build, error) {
			build := domain.Build{ProjectionID: id}
			return build, row.Scan(&build.Number, &build.Database)
		})
		if err != nil {
			return fmt.Errorf("cancel the projection's rebuild: %w", err)
		}
		for _, build := range append(begun, live) {
			if err := retire(ctx, tx, build, dropAt); err != nil {
				return err
			}
		}
		var kept []byte
		err = tx.QueryRow(ctx, "delete from projections p where p.tenant_id = $1 and p.name = $2 returning p.definition", id.Owner, id.Name).Scan(&kept)
		if err != nil {
			return fmt.Errorf("delete a projection: %w", err)
		}
		removed := domain.ProjectionVersion{ProjectionID: id, Cause: domain.VersionRemoved, By: by}
		if err := pg.DecodeStrictly(kept, &removed.Definition); err != nil {
			return err
		}
		if _, err := insertVersion(ctx, tx, removed); err != nil {
			return err
		}
		return deleteOwnFaults(ctx, tx, live)
	})
	if err != nil {
		return err
	}
	// Until then, appends fold into builds that remain for a while, and could refuse events because of them.
	return s.endInlineOf(ctx, id)
}

// ResetProjection makes an empty build live at once, which follows from position 0, and retires the old one. BeginReset
// must have registered the build's number; from now on, the new build holds what the registration held. It returns
// domain.CodeUnavailable if the reset took so long that it counted as dead. It may be repeated.
func (s *Registry) ResetProjection(ctx context.Context, id domain.ProjectionID, build int64, dropAt time.Time) error {
	return s.changeProjection(ctx, id, func(tx pgx.Tx) error {
		live, err := lockProjection(ctx, tx, id)
		if err != nil {
			return err
		}
		held, err := removeReset(ctx, tx, domain.Build{ProjectionID: id, Number: build})
		switch {
		case err != nil:
			return err
		case !held:
			return domain.Errorf(domain.CodeUnavailable, "", "resetting projection %q took too long, and was abandoned; try again", id.Name)
		}
		_, err = pg.Exec(ctx, tx, "reset a projection", `
			update projections p set build = $3, revision = p.revision + 1, updated_at = now()
			where p.tenant_id = $1 and p.name = $2`, id.Owner, id.Name, build)
		if err != nil {
			return err
		}
		if err := removeAnnounced(ctx, tx, id, build); err != nil {
			return err
		}
		if err := retire(ctx, tx, live, dropAt); err != nil {
			return err
		}
		return deleteOwnFaults(ctx, tx, live)
	})
}

const (
	// deadlockAttempts is how often changeProjection tries a change whose transaction ends in a deadlock.
	deadlockAttempts = 3
	// deadlockPause is the pause before the second attempt. Without it, the change may lock the same rows again before
	// the transaction that waits for them wakes up. The next pause is twice as long.
	deadlockPause = 100 * time.Millisecond
)

// changeProjection runs do in a transaction under the projection's owner, and notifies every process after the commit.
// If the database rolls the transaction back because of a deadlock, it runs do again. On a cluster, concurrent changes
// of one row of a reference table can deadlock, since each locks the row on several nodes.
func (s *Registry) changeProjection(ctx context.Context, id domain.ProjectionID, do func(pgx.Tx) error) error {
	var err error
	for attempt := range deadlockAttempts {
		select {
		case <-time.After(time.Duration(attempt) * deadlockPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err = pg.Under(ctx, s.db.App, id.Owner, func(tx pgx.Tx) error {
			if err := do(tx); err != nil {
				return err
			}
			return pg.Notify(ctx, tx, pg.ProjectionsChannel, "")
		})
		if pg.SQLState(err) != pg.Deadlock {
			break
		}
	}
	if err != nil {
		return err
	}
	s.db.ProjectionsChanged.Notify(struct{}{})
	return nil
}

// lockProjection locks a projection's row and returns the live build, without its indexes, or domain.CodeNotFound if
// there is none.
func lockProjection(ctx context.Context, tx pgx.Tx, id domain.ProjectionID) (domain.Build, error) {
	live := domain.Build{ProjectionID: id}
	err := tx.QueryRow(ctx, `
		select p.build, coalesce(p.definition->>'database', '') from projections p
		where p.tenant_id = $1 and p.name = $2 for update`, id.Owner, id.Name).Scan(&live.Number, &live.Database)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return domain.Build{}, noProjection(id)
	case err != nil:
		return domain.Build{}, fmt.Errorf("lock a projection: %w", err)
	}
	return live, nil
}

func noProjection(id domain.ProjectionID) error {
	return domain.Errorf(domain.CodeNotFound, "", "there is no projection %q", id.Name)
}

// projectionsPoll is the time between two checks for changes without a notice.
const projectionsPoll = 10 * time.Second

// ListenProjections calls changed when any process has created, changed or removed a projection or a rebuild, and every
// 10 s regardless. A rebuild's progress is not a change. changed must return soon, and is called by several goroutines.
// ListenProjections blocks until ctx ends, and then returns nil.
func (s *Registry) ListenProjections(ctx context.Context, changed func()) error {
	defer s.db.ProjectionsChanged.Add(func(struct{}) { changed() })()
	var poll sync.WaitGroup
	defer poll.Wait()
	poll.Go(func() {
		ticker := time.NewTicker(projectionsPoll)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				changed()
			}
		}
	})
	s.db.ListenOn(ctx, pg.ProjectionsChannel, changed, func(string) { changed() })
	return nil
}
