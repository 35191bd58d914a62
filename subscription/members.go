package subscription

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// Join makes a member of a group with partitions.
func (g *Groups) Join(ctx context.Context, tenant domain.TenantID, name, label string) (domain.GroupMember, error) {
	return domain.GroupMember{}, notYet()
}

// Heartbeat is a member's sign of life.
func (g *Groups) Heartbeat(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) (domain.GroupMember, error) {
	return domain.GroupMember{}, notYet()
}

// Leave ends a membership: what the member has in flight is delivered to others.
func (g *Groups) Leave(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error {
	return notYet()
}

// Members are those that are alive.
func (g *Groups) Members(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error) {
	return nil, notYet()
}

func notYet() error { return domain.Errorf(domain.CodeUnsupported, "", "this is not there yet") }
