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

// validating is what a rebuild must be to touch the live build: not ended, not asked to be cancelled, and somebody's.
const validating = "r.state = 'validating' and not r.cancel and r.worker is not null"

// HoldProjection makes the live build stand still: readings of the projection's log (domain.Reading) say so from now on.
// The rebuild must be validating, not be asked to be cancelled, and its Worker be the one that has it, else it is
// domain.CodeConflict. It may be repeated.
func (s *Store) HoldProjection(ctx context.Context, rebuild domain.Rebuild) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		if _, err := lockProjection(ctx, tx, rebuild.ProjectionID); err != nil {
			return err
		}
		if err := lockMine(ctx, tx, rebuild, validating); err != nil {
			return err
		}
		held, err := tx.Exec(ctx, `
			update projections p set held_by = $3, revision = p.revision + 1, updated_at = now()
			where p.tenant_id = $1 and p.name = $2 and (p.held_by is null or p.held_by = $3)`,
			rebuild.Owner, rebuild.Name, rebuild.ID)
		switch {
		case err != nil:
			return fmt.Errorf("hold a projection: %w", err)
		case held.RowsAffected() == 0:
			return notHeld(rebuild)
		}
		return nil
	})
}

// ReleaseProjection lets the live build go on after HoldProjection, without a swap. The rebuild's Worker must be the one
// that has it, else it is domain.CodeConflict. A projection that the rebuild does not hold stays as it is.
func (s *Store) ReleaseProjection(ctx context.Context, rebuild domain.Rebuild) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		if _, err := lockProjection(ctx, tx, rebuild.ProjectionID); err != nil {
			return err
		}
		if err := lockMine(ctx, tx, rebuild, running); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			update projections p set held_by = null, revision = p.revision + 1, updated_at = now()
			where p.tenant_id = $1 and p.name = $2 and p.held_by = $3`, rebuild.Owner, rebuild.Name, rebuild.ID)
		if err != nil {
			return fmt.Errorf("release a projection: %w", err)
		}
		return nil
	})
}

// SwapProjection is the commit point of a rebuild: in one transaction the projection gets the new build and definition,
// the rebuild is swapped with its last progress, and the old build is retired and may be dropped at dropAt. It happens
// only if the rebuild is validating, is not asked to be cancelled, has its Worker, and holds the projection; else
// nothing changes and it is domain.CodeConflict, or domain.CodeNotFound where the projection was deleted.
func (s *Store) SwapProjection(ctx context.Context, rebuild domain.Rebuild, dropAt time.Time) error {
	definition, err := json.Marshal(rebuild.Definition)
	if err != nil {
		return fmt.Errorf("write the rebuild's definition: %w", err)
	}
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		old, err := lockProjection(ctx, tx, rebuild.ProjectionID)
		if err != nil {
			return err
		}
		rebuild.State = domain.RebuildSwapped
		if err := s.finishRebuild(ctx, tx, rebuild, validating); err != nil {
			return err
		}
		swapped, err := tx.Exec(ctx, `
			update projections p set build = $4, definition = $5, held_by = null, revision = p.revision + 1, updated_at = now()
			where p.tenant_id = $1 and p.name = $2 and p.held_by = $3`,
			rebuild.Owner, rebuild.Name, rebuild.ID, rebuild.Build, definition)
		switch {
		case err != nil:
			return fmt.Errorf("swap a projection: %w", err)
		case swapped.RowsAffected() == 0:
			return notHeld(rebuild)
		}
		if err := retire(ctx, tx, old, dropAt); err != nil {
			return err
		}
		return deleteOwnFaults(ctx, tx, old)
	})
}

// lockMine locks a rebuild's row if the rebuild's worker is the one in it and the condition holds.
func lockMine(ctx context.Context, tx pgx.Tx, rebuild domain.Rebuild, condition string) error {
	var build int64
	err := tx.QueryRow(ctx, `
		select r.build from rebuilds r
		where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 and r.worker = $4 and `+condition+" for update",
		rebuild.Owner, rebuild.Name, rebuild.ID, text(rebuild.Worker)).Scan(&build)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return notMine(rebuild)
	case err != nil:
		return fmt.Errorf("lock a rebuild: %w", err)
	}
	return nil
}

func notHeld(rebuild domain.Rebuild) error {
	return domain.Errorf(domain.CodeConflict, "", "rebuild %s does not hold projection %q", rebuild.ID, rebuild.Name)
}
