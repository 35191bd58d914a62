package registry

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// A reset is registered before the check that all events still exist. Its row is a rebuild with a worker that never
// saves. So it holds the events that it is about to read, and either the reset sees a retention run or the run sees the
// reset. If the process dies before the reset, another process eventually takes over the row, finds it to be cancelled,
// and drops the build.

// BeginReset registers that a projection is about to be reset to a build whose number comes from NextBuild. From then
// on, everything from its source is held against retention. ResetProjection or AbandonReset must follow, and until then
// nobody can change the definition. It returns domain.CodeRebuildRunning if a rebuild is running, domain.CodeConflict
// if the definition is no longer the given one, and domain.CodeNotFound if there is no projection. by says who resets
// it.
func (s *Registry) BeginReset(ctx context.Context, build domain.Build, definition domain.Definition, by string) error {
	text, err := json.Marshal(definition)
	if err != nil {
		return fmt.Errorf("write the definition of a projection that is reset: %w", err)
	}
	return pg.Under(ctx, s.db.App, build.Owner, func(tx pgx.Tx) error {
		live, err := lockAndReadProjection(ctx, tx, build.ProjectionID)
		if err != nil {
			return err
		}
		// The hold depends on the definition's source, and the new build's table is in its database.
		if same, err := sameJSON(live.Definition, definition); err != nil || !same {
			if err == nil {
				err = definitionChanged(build.ProjectionID)
			}
			return err
		}
		_, err = tx.Exec(ctx, `
			insert into rebuilds (tenant_id, name, rebuild_id, build, definition, by, state, cancel, worker, alive_at, started_at)
			values ($1, $2, $3, $4, $5, $6, 'building', true, $3, now(), now())`,
			build.Owner, build.Name, domain.NewRebuildID(), build.Number, text, by)
		switch {
		case pg.SQLState(err) == pg.UniqueViolation:
			return rebuildRunning(build.ProjectionID)
		case err != nil:
			return fmt.Errorf("register a reset: %w", err)
		}
		return nil
	})
}

// AbandonReset undoes BeginReset. It may be repeated.
func (s *Registry) AbandonReset(ctx context.Context, build domain.Build) error {
	return pg.Under(ctx, s.db.App, build.Owner, func(tx pgx.Tx) error {
		_, err := removeReset(ctx, tx, build)
		return err
	})
}

// removeReset removes a reset's row. It returns false if another process has ended the reset, which then holds nothing.
func removeReset(ctx context.Context, tx pgx.Tx, build domain.Build) (held bool, err error) {
	deleted, err := pg.Exec(ctx, tx, "remove a reset", `
		delete from rebuilds r where r.tenant_id = $1 and r.name = $2 and r.build = $3 and r.worker = r.rebuild_id and `+running,
		build.Owner, build.Name, build.Number)
	return deleted > 0, err
}
