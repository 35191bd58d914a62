package api

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/gateway"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/socket"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/limits"
)

// gateway serves a connection until it ends. asyncapi.yaml specifies its messages.
func (s *Server) gateway(c echo.Context, _ access.Caller) error {
	request := c.Request()
	if isAdmin(request.Context()) {
		return errAdminListener
	}
	if !socket.Requested(request) {
		return domain.Errorf(domain.CodeInvalidRequest, "Upgrade", "this is for WebSockets; /asyncapi.yaml describes what goes over them")
	}
	var known access.Caller
	var admitted *access.Admission
	if len(request.Header["Authorization"]) > 0 || request.URL.Query().Has("ticket") {
		credential, err := s.credentialOf(request, true)
		if err != nil {
			return err
		}
		if known, err = s.callerOf(request.Context(), credential); err != nil {
			return &auth.DenialError{Credential: credential, Err: err}
		}
		if err := known.Credential.RequireSome(gateway.Scopes...); err != nil {
			return &auth.DenialError{Credential: credential, Err: err}
		}
		admitted, err = s.enterAll(request.Context(), known, limits.Connection)
		s.setRateFields(c, known, limits.Connection)
		if err != nil {
			return err
		}
		defer admitted.Close()
	}
	socket, err := socket.Upgrade(c, s.ending, s.stallTimeout)
	if err != nil {
		return err
	}
	gateway.Serve(request.Context(), s.gatewayConfig(), socket, c.Response().Header().Get(problem.HeaderRequestID), known, admitted)
	return nil
}

func (s *Server) gatewayConfig() gateway.Config {
	return gateway.Config{
		Groups: s.config.Groups, Tails: s.config.Follower, Keys: s.config.Keys,
		Publish: func(ctx context.Context, caller access.Caller, p wire.Publication, batch domain.Append) (domain.Appended, error) {
			return s.publishAll(ctx, caller, p, batch, "websocket")
		},
		Caller: s.callerOf, Denied: s.denied("gateway"),
		Send: s.decide, Known: s.known,
		Enter: func(ctx context.Context, caller access.Caller) (*access.Admission, error) {
			return s.enterAll(ctx, caller, limits.Connection)
		},
		Followed:   func(events int) { s.observeFollowed(wire.ByWebSocket, events) },
		Delivered:  func(events int) { s.observeDelivered(wire.ByWebSocket, events) },
		Deliveries: s.deliveries, Tracer: s.config.Tracer, Bodies: s.budgets.bodies, Log: s.log,
		Timeout: s.timeout, StallTimeout: s.stallTimeout, Recheck: s.recheck, Heartbeat: s.heartbeat, AuthTimeout: s.authTimeout,
	}
}
