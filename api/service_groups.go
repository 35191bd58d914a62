package api

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// allowOwnGroup returns nil if the caller has one of scopes for a group's events, and the tenant's own consumers use
// the group. Only the service itself consumes from a service group. To change such a group or take its events, a client
// must use the webhook or other feature that the group belongs to.
func (s *Server) allowOwnGroup(ctx context.Context, caller caller, name string, scopes ...domain.Scope) error {
	if err := s.allowGroup(ctx, caller, name, scopes...); err != nil {
		return err
	}
	return refuseServiceGroup("name", name)
}

// refuseServiceGroup returns domain.CodeConflict for a service group; where is the place of its name.
func refuseServiceGroup(where, group string) error {
	kind, name, ok := domain.ParseServiceGroup(group)
	if !ok {
		return nil
	}
	belongs := func(format string, args ...any) error {
		return domain.Errorf(domain.CodeConflict, where, "group %q is a service group of "+format, append([]any{clip(group, 2*domain.MaxNameBytes)}, args...)...)
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
