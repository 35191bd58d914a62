package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// A reset is registered before it is looked whether all events are there still: as a rebuild that has a worker which never saves.
// So it holds what it is about to read, and of it and a run of retention one sees the other. Where the process dies before the reset,
// somebody takes the row over after a while, finds that it is to be cancelled, and drops the build.

// BeginReset registers that a projection is about to be reset, to a build whose number NextBuild has given: from then on retention
// holds all that is of its source. ResetProjection or AbandonReset must follow, and until then nobody changes the definition.
// domain.CodeRebuildRunning where a rebuild is under way, domain.CodeConflict where the projection's definition is not the given one any
// more, and domain.CodeNotFound without a projection. by is who does it.
func (s *Store) BeginReset(ctx context.Context, build domain.Build, definition domain.Definition, by string) error {
	text, err := json.Marshal(definition)
	if err != nil {
		return fmt.Errorf("write the definition of a projection that is reset: %w", err)
	}
	return under(ctx, s.app, build.Owner, func(tx pgx.Tx) error {
		live, err := lockWhole(ctx, tx, build.ProjectionID)
		if err != nil {
			return err
		}
		// What is held goes by its source, and the new build's table is in its database.
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
		case sqlState(err) == uniqueViolation:
			return rebuildRunning(build.ProjectionID)
		case err != nil:
			return fmt.Errorf("register a reset: %w", err)
		}
		return nil
	})
}

// AbandonReset takes back what BeginReset has registered. It may be repeated.
func (s *Store) AbandonReset(ctx context.Context, build domain.Build) error {
	return under(ctx, s.app, build.Owner, func(tx pgx.Tx) error {
		_, err := takeReset(ctx, tx, build)
		return err
	})
}

// takeReset removes a reset's row. It reports false where somebody else has ended it: since then it has held nothing.
func takeReset(ctx context.Context, tx pgx.Tx, build domain.Build) (held bool, err error) {
	rows, _ := tx.Query(ctx, `
		delete from rebuilds r where r.tenant_id = $1 and r.name = $2 and r.build = $3 and r.worker = r.rebuild_id and `+running+`
		returning true`, build.Owner, build.Name, build.Number)
	taken, err := pgx.CollectRows(rows, pgx.RowTo[bool])
	if err != nil {
		return false, fmt.Errorf("take a reset: %w", err)
	}
	return len(taken) > 0, nil
}
