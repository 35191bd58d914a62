package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// SkipEvent records that a projection skips the event before which the tenant's build has stopped, and notifies every
// process to continue. The event's id and the message come from the fault. It returns domain.CodeConflict if the build
// has not stopped before that position. It returns the row; if the event was skipped already, that is the first one.
func (s *Registry) SkipEvent(ctx context.Context, skip domain.SkippedEvent, build int64) (domain.SkippedEvent, error) {
	var skipped domain.SkippedEvent
	err := s.retry(ctx, skip.Tenant, skip.ProjectionID, func(tx pgx.Tx) error {
		var message string
		err := tx.QueryRow(ctx, `
			delete from faults as f where f.tenant_id = $1 and f.owner = $2 and f.name = $3 and f.build = $4 and f.position = $5
			returning f.event_id, f.message`, skip.Tenant, skip.Owner, skip.Name, build, skip.Position).Scan(&skip.EventID, &message)
		if errors.Is(err, pgx.ErrNoRows) {
			return domain.Errorf(domain.CodeConflict, "position", "projection %q has not stopped at the event at position %d; its state shows whether it has stopped, and where", skip.Name, skip.Position)
		}
		if err != nil {
			return fmt.Errorf("skip an event: %w", err)
		}
		skip.Message = message
		skipped, err = putSkipped(ctx, tx, skip)
		return err
	})
	return skipped, err
}

// PutSkipped records that a projection skips an event, wherever its builds have stopped.
func (s *Registry) PutSkipped(ctx context.Context, skip domain.SkippedEvent) (domain.SkippedEvent, error) {
	var skipped domain.SkippedEvent
	err := s.retry(ctx, skip.Tenant, skip.ProjectionID, func(tx pgx.Tx) (err error) {
		skipped, err = putSkipped(ctx, tx, skip)
		return err
	})
	return skipped, err
}

func putSkipped(ctx context.Context, tx pgx.Tx, skip domain.SkippedEvent) (domain.SkippedEvent, error) {
	skipped, _, err := pg.SelectOne(ctx, tx, "record a skipped event", scanSkipped, `
		insert into skipped_events as e (tenant_id, owner, name, version, position, event_id, message, reason, by, lasting)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, true)
		on conflict (tenant_id, owner, name, version, position) do update set lasting = true, documents = null
		returning `+skippedColumns,
		skip.Tenant, skip.Owner, skip.Name, skip.Version, skip.Position, skip.EventID, skip.Message, skip.Reason, skip.By)
	return skipped, err
}

const skippedColumns = "e.tenant_id, e.owner, e.name, e.version, e.lasting, e.position, e.documents, e.event_id, e.message, e.reason, e.by, e.at"

func scanSkipped(row pgx.CollectableRow) (domain.SkippedEvent, error) {
	var e domain.SkippedEvent
	err := row.Scan(&e.Tenant, &e.Owner, &e.Name, &e.Version, &e.Lasting, &e.Position, &e.Documents, &e.EventID, &e.Message, &e.Reason, &e.By, (*pg.Moment)(&e.At))
	return e, err
}

// WithdrawSkip ends the skipping of the event at a position for a tenant, whatever version of the definition the skip
// was for. Documents that were folded without the event stay so until the next rebuild. It returns domain.CodeNotFound
// if the event is not skipped.
func (s *Registry) WithdrawSkip(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, position int64) error {
	return s.retry(ctx, tenant, id, func(tx pgx.Tx) error {
		deleted, err := pg.Exec(ctx, tx, "withdraw a skip",
			"delete from skipped_events e where e.tenant_id = $1 and e.owner = $2 and e.name = $3 and e.position = $4",
			tenant, id.Owner, id.Name, position)
		if err == nil && deleted == 0 {
			err = domain.Errorf(domain.CodeNotFound, "position", "projection %q skips no event at position %d", id.Name, position)
		}
		return err
	})
}

// SkippedEvents returns the first limit events that a projection skips for a tenant, for all versions of its
// definition, ordered by position and version.
func (s *Registry) SkippedEvents(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, limit int) ([]domain.SkippedEvent, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list the skipped events", scanSkipped, "select "+skippedColumns+` from skipped_events e
		where e.tenant_id = $1 and e.owner = $2 and e.name = $3 order by e.position, e.version limit $4`, tenant, id.Owner, id.Name, limit)
}
