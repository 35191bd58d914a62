package projection

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// FaultStore is what the catalog needs from Manifold's own database for events that cannot be folded.
type FaultStore interface {
	AsideStore
	RetryFault(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64) error
	SkipEvent(ctx context.Context, skip domain.SkippedEvent, build int64) (domain.SkippedEvent, error)
	PutSkipped(ctx context.Context, skip domain.SkippedEvent) (domain.SkippedEvent, error)
	WithdrawSkip(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, position int64) error
	SkippedEvents(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, limit int) ([]domain.SkippedEvent, error)
	ParkedDocuments(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, after string, limit int) ([]domain.ParkedDocument, error)
	CountParked(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64) (int64, error)
	ParkedDocument(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, document string) (domain.ParkedDocument, bool, error)
	RemoveParked(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, document string, position int64) error
	ParkedEvents(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, document string, after int64, limit int) ([]domain.Event, error)
	Unpark(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, document string, done []int64, failure *domain.ParkedDocument) (left bool, err error)
	UnparkHeld(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, document string,
		fold func(ctx context.Context, removedAt int64, waiting func(ctx context.Context, after int64, limit int) ([]domain.Event, error)) (done []int64, failure *domain.ParkedDocument, err error),
	) (left bool, err error)
	DiscardParked(ctx context.Context, skip domain.SkippedEvent, build int64, document string, folded int64) error
}
