package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// What people ask of a rebuild is kept in its row. Whoever works on it finds it there with the next save, also where that
// is another process than the one that was asked.

// CancelRebuild asks for a rebuild to be cancelled; its worker does it. One that has ended is domain.CodeConflict, one
// that is not there domain.CodeNotFound.
func (s *Store) CancelRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error {
	return s.orderRebuild(ctx, id, rebuild, "cancel", "cancel = true")
}

// PauseRebuild asks for a rebuild to rest: its worker gives it back, and nobody claims it until ResumeRebuild. Errors are
// those of CancelRebuild.
func (s *Store) PauseRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error {
	return s.orderRebuild(ctx, id, rebuild, "pause", "paused = true")
}

// ResumeRebuild lets a rebuild go on after PauseRebuild; one that does not rest stays as it is. Errors are those of
// CancelRebuild.
func (s *Store) ResumeRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error {
	return s.orderRebuild(ctx, id, rebuild, "resume", "paused = false")
}

// ApproveRebuild lets a rebuild swap that waits for it or will. One that needs no approval is domain.CodeConflict; the
// other errors are those of CancelRebuild.
func (s *Store) ApproveRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error {
	return s.orderRebuild(ctx, id, rebuild, "approve", "approved = true")
}

// orderRebuild changes the row of a rebuild that has not ended; set is one of the texts above.
func (s *Store) orderRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, what, set string) error {
	return s.changeProjection(ctx, id, func(tx pgx.Tx) error {
		var state domain.RebuildState
		var manual bool
		err := tx.QueryRow(ctx, `
			select r.state, coalesce((r.options->>'manual')::boolean, false) from rebuilds r
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 for update`, id.Owner, id.Name, rebuild).Scan(&state, &manual)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return noRebuild(id, rebuild)
		case err != nil:
			return fmt.Errorf("lock a rebuild: %w", err)
		case state.Ended():
			return domain.Errorf(domain.CodeConflict, "", "rebuild %s has ended already: it is %s", rebuild, state)
		case what == "approve" && !manual:
			return domain.Errorf(domain.CodeConflict, "", "rebuild %s needs no approval: it was started with approve auto", rebuild)
		}
		_, err = tx.Exec(ctx, "update rebuilds r set "+set+`, updated_at = now()
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3`, id.Owner, id.Name, rebuild)
		if err != nil {
			return fmt.Errorf("%s a rebuild: %w", what, err)
		}
		return nil
	})
}
