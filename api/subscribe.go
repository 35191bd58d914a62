package api

import (
	"context"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/subscription"
)

// Follower follows tenants' logs. *subscription.Tails is one.
type Follower interface {
	Follow(ctx context.Context, tenant domain.TenantID, wanted domain.Follow) (*subscription.Feed, error)
}
