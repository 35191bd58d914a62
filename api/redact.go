package api

import (
	"context"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
)

func (s operations) RedactEvent(ctx context.Context, caller access.Caller, request openapi.RedactEventRequest) (*openapi.Response, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	event, err := s.config.Log.RedactEvent(ctx, tenant.ID, request.Position, request.Body.Reason)
	if err != nil {
		return nil, err
	}
	s.log.Warn("the operator has redacted an event", "tenant", tenant.ID.String(), "position", event.Position, "event", event.ID.String(),
		"stream", event.Stream, "version", event.Version, "type", event.Type, "reason", request.Body.Reason, "by", caller.By())
	return openapi.OK(eventAnswer(event)), nil
}
