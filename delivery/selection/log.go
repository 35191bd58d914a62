package selection

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Log reads tenants' logs.
type Log interface {
	Head(ctx context.Context, tenant domain.TenantID) (domain.Head, error)
	LogSlice(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) (domain.LogSlice, error)
	StreamSlice(ctx context.Context, tenant domain.TenantID, stream string, q domain.StreamQuery) (domain.StreamSlice, error)
	// Floors returns the floors of categories of which an event at or after from was removed. No categories means all.
	Floors(ctx context.Context, tenant domain.TenantID, categories []string, from int64) ([]domain.RetentionFloor, error)
	// PositionAt returns the last position recorded at or before a time, or 0 if there is none.
	PositionAt(ctx context.Context, tenant domain.TenantID, at time.Time) (int64, error)
	// EventPosition returns the position of an event, or domain.CodeNotFound if it does not exist.
	EventPosition(ctx context.Context, tenant domain.TenantID, id domain.EventID) (int64, error)
	// VersionBefore returns the version of a stream's newest event before a position, or 0 if there is none.
	VersionBefore(ctx context.Context, tenant domain.TenantID, stream string, position int64) (int64, error)
}
