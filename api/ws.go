package api

import (
	"errors"
	"time"

	"github.com/coder/websocket"
	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/domain"
)

// gatewayScopes are the scopes for the gateway. A key must have at least one of them, for some category. Each operation
// also checks its own.
var gatewayScopes = []domain.Scope{domain.ScopeEventsAppend, domain.ScopeEventsRead, domain.ScopeEventsConsume}

// gateway serves a connection until it ends. asyncapi.yaml specifies its messages.
func (s *Server) gateway(c echo.Context, _ caller) error {
	request := c.Request()
	if isAdmin(request.Context()) {
		return errAdminListener
	}
	if !wantsSocket(request) {
		return domain.Errorf(domain.CodeInvalidRequest, "Upgrade", "this is for WebSockets; /asyncapi.yaml describes what goes over them")
	}
	var known caller
	if len(request.Header["Authorization"]) > 0 || request.URL.Query().Has("ticket") {
		credential, err := s.credentialOf(request, true)
		if err == nil {
			err = credential.RequireSome(gatewayScopes...)
		}
		if err != nil {
			return err
		}
		known = caller{tenant: credential.Tenant, credential: credential}
		under, err := s.enter(known)
		if err != nil {
			return err
		}
		defer under.Close()
	}
	socket, err := s.upgrade(c)
	if err != nil {
		return err
	}
	newGatewayConnection(s, socket, c.Response().Header().Get(headerRequestID)).serve(request.Context(), known)
	return nil
}

var (
	// errFlood ends the connection of a client that keeps sending far more than it may.
	errFlood = domain.Errorf(domain.CodeTooManyRequests, "", "messages come much faster than %d a second", gatewayRate)
	// errBinary ends the connection of a client that sends binary messages.
	errBinary = errors.New("messages are JSON, as text")
)

// speechless returns the error that ends the connection of a client that does not authenticate in time.
func speechless(within time.Duration) error {
	return domain.Errorf(domain.CodeUnauthenticated, "", "there was no AUTH with a working key within %s", within)
}

// leaveGateway closes a gateway connection with the code and reason for its cause.
func leaveGateway(socket *socket, cause error) {
	switch {
	case errors.Is(cause, errFlood):
		socket.close(websocket.StatusPolicyViolation, errFlood.Message)
	case isBusy(cause):
		socket.close(websocket.StatusTryAgainLater, domain.ClientMessage(cause))
	case errors.Is(cause, errBinary):
		socket.close(websocket.StatusUnsupportedData, errBinary.Error())
	case errors.Is(cause, websocket.ErrMessageTooBig):
		socket.close(websocket.StatusMessageTooBig, "the message is too large")
	default:
		socket.leave(cause)
	}
}
