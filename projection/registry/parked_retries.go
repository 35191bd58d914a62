package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// ParkedBuild is a build that has parked documents of a tenant.
type ParkedBuild struct {
	domain.ProjectionID
	Tenant domain.TenantID
	Build  int64
}

// DueParked returns the first limit builds with parked documents whose automatic replay is due, by tenant.
func (s *Registry) DueParked(ctx context.Context, limit int) ([]ParkedBuild, error) {
	return pg.Select(ctx, s.db.System, "list the parked documents to replay", func(row pgx.CollectableRow) (ParkedBuild, error) {
		var b ParkedBuild
		err := row.Scan(&b.Tenant, &b.Owner, &b.Name, &b.Build)
		return b, err
	}, `
		select distinct d.tenant_id, d.owner, d.name, d.build from parked_documents d
		where d.retry_at <= now() order by d.tenant_id, d.owner, d.name, d.build limit $1`, limit)
}

// ClaimParked returns the ids of the first limit parked documents of a build whose automatic replay is due, and sets
// the next one by the schedule. So no other process replays them now, and one that cannot be replayed waits longer each
// time.
func (s *Registry) ClaimParked(ctx context.Context, b ParkedBuild, schedule domain.RetrySchedule, limit int) (documents []string, err error) {
	schedule = schedule.Jittered()
	err = pg.Under(ctx, s.db.App, b.Tenant, func(tx pgx.Tx) error {
		var retries []time.Time
		rows, _ := tx.Query(ctx, `
			select d.document_id, now() + interval '1 second' * least($6::float8 * power(2, least(d.retries + 1, 30)), $7::float8)
			from parked_documents d
			where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4 and d.retry_at <= now()
			order by d.retry_at limit $5 for update skip locked`,
			b.Tenant, b.Owner, b.Name, b.Build, limit, schedule.First.Seconds(), schedule.Longest.Seconds())
		var document string
		var retry time.Time
		_, err := pgx.ForEachRow(rows, []any{&document, &retry}, func() error {
			documents, retries = append(documents, document), append(retries, retry)
			return nil
		})
		if err != nil {
			return fmt.Errorf("look for parked documents to replay: %w", err)
		}
		_, err = pg.Exec(ctx, tx, "claim parked documents", `
			update parked_documents d set retries = d.retries + 1, retry_at = r.retry_at
			from unnest($5::text[], $6::timestamptz[]) as r (document_id, retry_at)
			where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4 and d.document_id = r.document_id`,
			b.Tenant, b.Owner, b.Name, b.Build, documents, retries)
		return err
	})
	return documents, err
}
