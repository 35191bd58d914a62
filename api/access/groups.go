package access

import (
	"context"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// AllowGroup returns nil if the caller has one of scopes for the events of a group. A key with the scope for the whole
// log always has it, so only other keys require a look at the group.
func (c Caller) AllowGroup(ctx context.Context, groups *group.Groups, name string, scopes ...auth.Scope) error {
	if c.Allow("", scopes...) == nil {
		return nil
	}
	selection, err := groups.Selection(ctx, c.Tenant, name)
	if err != nil {
		return err
	}
	if c.AllowSelection(selection, scopes...) == nil {
		return nil
	}
	// The group's selection may have changed, without this process knowing it yet.
	status, err := groups.Get(ctx, c.Tenant, name)
	if err != nil {
		return err
	}
	return c.AllowSelection(status.Selection, scopes...)
}

// AllowOwnGroup returns nil if the caller has one of scopes for a group's events, and the tenant's own consumers use
// the group. Only the service itself consumes from a service group. To change such a group or take its events, a client
// must use the webhook or other feature that the group belongs to.
func (c Caller) AllowOwnGroup(ctx context.Context, groups *group.Groups, name string, scopes ...auth.Scope) error {
	if err := c.AllowGroup(ctx, groups, name, scopes...); err != nil {
		return err
	}
	return RefuseServiceGroup("name", name)
}

// RefuseServiceGroup returns domain.CodeConflict for a service group; where is the place of its name.
func RefuseServiceGroup(where, group string) error {
	kind, name, ok := domain.ParseServiceGroup(group)
	if !ok {
		return nil
	}
	belongs := func(format string, args ...any) error {
		return domain.Errorf(domain.CodeConflict, where, "group %q is a service group of "+format, append([]any{domain.Clip(group, 2*domain.MaxNameBytes)}, args...)...)
	}
	switch kind {
	case domain.ServiceWebhook:
		return belongs("the webhook %s: use /v1/webhooks/%[2]s", name)
	case domain.ServiceReplay:
		return belongs("the replay of the webhook %s: use /v1/webhooks/%[2]s/replay", name)
	case domain.ServiceReactor:
		return belongs("the reactor %s, which is part of this program", name)
	case domain.ServiceChanges:
		return belongs("the projection %s, which publishes its changes: use /v1/projections/%[2]s", name)
	default:
		return belongs("the egress %s, which the operator has configured", name)
	}
}
