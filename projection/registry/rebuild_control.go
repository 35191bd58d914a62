package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Requests of people for a rebuild are stored in its row. Its worker finds them at its next save, even if another
// process received the request.

// CancelRebuild requests the cancellation of a rebuild; its worker carries it out. It returns domain.CodeConflict if
// the rebuild has ended, and domain.CodeNotFound if there is none.
func (s *Registry) CancelRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error {
	return s.controlRebuild(ctx, id, rebuild, "cancel", "cancel = true")
}

// PauseRebuild requests a pause: the rebuild's worker releases it, and nobody claims it until ResumeRebuild. The errors
// are those of CancelRebuild.
func (s *Registry) PauseRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error {
	return s.controlRebuild(ctx, id, rebuild, "pause", "paused = true")
}

// ResumeRebuild lets a paused rebuild continue. It does not change a rebuild that is not paused. The errors are those
// of CancelRebuild.
func (s *Registry) ResumeRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error {
	return s.controlRebuild(ctx, id, rebuild, "resume", "paused = false")
}

// ApproveRebuild approves the swap of a rebuild that waits for approval now or later. It returns domain.CodeConflict if
// the rebuild needs no approval; the other errors are those of CancelRebuild.
func (s *Registry) ApproveRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error {
	return s.controlRebuild(ctx, id, rebuild, "approve", "approved = true")
}

// controlRebuild changes the row of a rebuild that has not ended; set is one of the SQL fragments above.
func (s *Registry) controlRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, what, set string) error {
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
		_, err = pg.Exec(ctx, tx, what+" a rebuild", "update rebuilds r set "+set+`, updated_at = now()
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3`, id.Owner, id.Name, rebuild)
		return err
	})
}
