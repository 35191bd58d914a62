package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// TenantFaults returns the first limit faults of all builds for a tenant, in no order.
func (s *Registry) TenantFaults(ctx context.Context, tenant domain.TenantID, limit int) ([]domain.Fault, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list a tenant's faults", scanFault,
		"select "+faultColumns+" from faults f where f.tenant_id = $1 limit $2", tenant, limit)
}

// UnreportedBuilds returns the builds with documents that were parked for a tenant at since or later, and that
// MarkParkedReported has not recorded.
func (s *Registry) UnreportedBuilds(ctx context.Context, tenant domain.TenantID, since time.Time) ([]ParkedBuild, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list builds with parked documents without a report", func(row pgx.CollectableRow) (ParkedBuild, error) {
		b := ParkedBuild{Tenant: tenant}
		err := row.Scan(&b.Owner, &b.Name, &b.Build)
		return b, err
	}, `
		select distinct d.owner, d.name, d.build from parked_documents d
		where d.tenant_id = $1 and d.parked_at >= $2 and not d.reported`, tenant, since)
}

// UnreportedParked returns the first limit of these documents of a build, ordered by the time at which they were
// parked.
func (s *Registry) UnreportedParked(ctx context.Context, b ParkedBuild, since time.Time, limit int) ([]domain.ParkedDocument, error) {
	return pg.SelectUnder(ctx, s.db.App, b.Tenant, "list parked documents without a report", scanParked, "select "+parkedColumns+` from parked_documents d
		where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4 and d.parked_at >= $5 and not d.reported
		order by d.parked_at, d.document_id limit $6`, b.Tenant, b.Owner, b.Name, b.Build, since, limit)
}

// MarkParkedReported records that the parking of documents was reported.
func (s *Registry) MarkParkedReported(ctx context.Context, tenant domain.TenantID, documents []domain.ParkedDocument) error {
	documents = slices.SortedFunc(slices.Values(documents), func(a, b domain.ParkedDocument) int { return cmp.Compare(a.ID, b.ID) })
	return pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		var batch pgx.Batch
		for i := range documents {
			d := &documents[i]
			batch.Queue(`
				update parked_documents d set reported = true
				where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4 and d.document_id = $5 and d.parked_at = $6`,
				tenant, d.Owner, d.Name, d.Build, d.ID, d.ParkedAt)
		}
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return fmt.Errorf("mark parked documents as reported: %w", err)
		}
		return nil
	})
}
