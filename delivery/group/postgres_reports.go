package group

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// GroupDeadLetter is a dead letter with the name of its group.
type GroupDeadLetter struct {
	Group string
	domain.DeadLetter
}

// UnreportedDeadLetters returns the first limit dead letters of all groups of a tenant that were parked at since or
// later, and whose last parking MarkReported has not recorded, ordered by the time of that parking.
func (s *Postgres) UnreportedDeadLetters(ctx context.Context, tenant domain.TenantID, since time.Time, limit int) ([]GroupDeadLetter, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list dead letters without a report", func(row pgx.CollectableRow) (GroupDeadLetter, error) {
		var d GroupDeadLetter
		err := row.Scan(&d.Group, &d.Partition, &d.Position, &d.EventID, &d.Stream, &d.Version, &d.Type, &d.Attempt, &d.Base, &d.Reason,
			(*pg.Moment)(&d.FirstParkedAt), (*pg.Moment)(&d.ParkedAt))
		return d, err
	}, `
		select d.name, d.partition, d.position, d.event_id, d.stream_id, d.stream_version, d.event_type, d.attempt, d.base, d.reason,
			d.first_parked_at, d.parked_at
		from dead_letters as d
		where d.tenant_id = $1 and d.parked_at >= $2 and d.reported_at is distinct from d.parked_at
		order by d.parked_at, d.name, d.position limit $3`, tenant, since, limit)
}

// MarkReported records that the parking of dead letters, as UnreportedDeadLetters has returned them, was reported. It
// ignores those that have changed since.
func (s *Postgres) MarkReported(ctx context.Context, tenant domain.TenantID, letters []GroupDeadLetter) error {
	byGroup := make(map[string][]GroupDeadLetter)
	for _, d := range letters {
		byGroup[d.Group] = append(byGroup[d.Group], d)
	}
	for _, name := range slices.Sorted(maps.Keys(byGroup)) {
		err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error { return markReported(ctx, tx, tenant, name, byGroup[name]) })
		if err != nil && !domain.IsCode(err, domain.CodeNotFound) { // the group was removed, with its dead letters
			return err
		}
	}
	return nil
}

func markReported(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string, letters []GroupDeadLetter) error {
	if err := holdGroup(ctx, tx, tenant, name); err != nil {
		return err
	}
	partitions := make(map[int]bool)
	for _, d := range letters {
		partitions[d.Partition] = true
	}
	// Deliveries change dead letters while they hold these rows.
	if err := lockLedgers(ctx, tx, tenant, name, slices.Sorted(maps.Keys(partitions))); err != nil {
		return err
	}
	var batch pgx.Batch
	for _, d := range letters { // one by one, as SaveLedger removes them
		batch.Queue(`
			update dead_letters as d set reported_at = d.parked_at
			where d.tenant_id = $1 and d.name = $2 and d.position = $3 and d.parked_at = $4`, tenant, name, d.Position, d.ParkedAt)
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("mark dead letters as reported: %w", err)
	}
	return nil
}
