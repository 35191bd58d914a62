package api

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/subscription"
)

// Groups keeps groups and delivers events to their consumers. *subscription.Groups does.
type Groups interface {
	Put(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition) (status domain.GroupStatus, created bool, err error)
	Get(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error)
	List(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.GroupStatus, error)
	Delete(ctx context.Context, tenant domain.TenantID, name string) error
	Pause(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.GroupStatus, error)
	Seek(ctx context.Context, tenant domain.TenantID, name string, to domain.From) (domain.GroupStatus, error)

	Receive(ctx context.Context, tenant domain.TenantID, name string, wanted subscription.Receive) ([]domain.Delivery, error)
	Ack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error)
	Nack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, nack domain.Nack) ([]domain.Outcome, error)
	Extend(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, by time.Duration) ([]domain.Outcome, error)

	DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]subscription.DeadLetter, error)
	Replay(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)
	Discard(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)

	Join(ctx context.Context, tenant domain.TenantID, name, label string) (domain.GroupMember, error)
	Heartbeat(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) (domain.GroupMember, error)
	Leave(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error
	Members(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error)
}
