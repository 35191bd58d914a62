// Package gateway serves the WebSocket of asyncapi.yaml, over which clients publish, follow the log and consume from
// groups.
//
// Serve serves one connection (connection.go). A message (messages.go) starts an operation, which may run on a job
// queue (job_queue.go). A subscription (subscriptions.go) delivers events from the log (feed.go) or from a group
// (group.go). All outgoing messages pass through a send queue (send_queue.go).
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/socket"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// Config is what the gateway uses of the service.
type Config struct {
	Groups *group.Groups
	Tails  *tail.Tails
	Keys   *auth.Keys
	// Caller returns the caller with a credential.
	Caller func(ctx context.Context, credential auth.Credential) (access.Caller, error)
	// Denied counts refused operations.
	Denied func(ctx context.Context, err error)
	// Publish appends the messages of a publication, whose append is batch.
	Publish func(ctx context.Context, caller access.Caller, p wire.Publication, batch domain.Append) (domain.Appended, error)
	// Send sends a command.
	Send func(ctx context.Context, caller access.Caller, command aggregate.Command) (aggregate.Outcome, error)
	// Enter counts a connection for its tenant and its key, until the admission is closed.
	Enter func(ctx context.Context, caller access.Caller) (*access.Admission, error)
	// Known is called for each connection after its key was found to be valid.
	Known func(ctx context.Context)
	// Followed and Delivered report how many events were sent to followers and to consumers of groups.
	Followed, Delivered func(events int)
	// Deliveries records spans of events that were sent to followers and to consumers of groups; nil: none.
	Deliveries *tracing.Deliveries
	// Tracer begins the spans of operations that append; nil: none.
	Tracer *tracing.Tracer
	// Bodies is charged for messages that are being handled.
	Bodies *fairshare.Budget
	Log    *slog.Logger

	Timeout      time.Duration // for one operation
	StallTimeout time.Duration // how long a client may leave a message unfinished
	Recheck      time.Duration // how often the key is checked again
	Heartbeat    time.Duration // the longest time without a message
	AuthTimeout  time.Duration // how long a client may take to send a key
}

// Serve serves a connection until it ends. known is the caller of its request, if that had a key; it was admitted.
func Serve(ctx context.Context, config Config, socket *socket.Conn, requestID string, known access.Caller, admitted *access.Admission) {
	newConnection(config, socket, requestID).serve(ctx, known, admitted)
}

// Scopes are the scopes for the gateway. A key must have at least one of them, for some category. Each operation
// also checks its own.
var Scopes = []auth.Scope{auth.ScopeEventsAppend, auth.ScopeEventsRead, auth.ScopeEventsConsume, auth.ScopeCommandsSend}

var (
	// errFlood ends the connection of a client that keeps sending far more than it may.
	errFlood = domain.Errorf(domain.CodeTooManyRequests, "", "messages come much faster than %d a second", messageRate)
	// errBinary ends the connection of a client that sends binary messages.
	errBinary = errors.New("messages are JSON, as text")
)

// notAuthenticated returns the error that ends the connection of a client that does not authenticate in time.
func notAuthenticated(within time.Duration) error {
	return domain.Errorf(domain.CodeUnauthenticated, "", "there was no AUTH with a working key within %s", within)
}

// closeSocket closes a gateway connection with the code and reason for its cause.
func closeSocket(socket *socket.Conn, cause error) {
	switch {
	case errors.Is(cause, errFlood):
		socket.Close(websocket.StatusPolicyViolation, errFlood.Message)
	case isBusy(cause):
		socket.Close(websocket.StatusTryAgainLater, domain.ClientMessage(cause))
	case errors.Is(cause, errBinary):
		socket.Close(websocket.StatusUnsupportedData, errBinary.Error())
	case errors.Is(cause, websocket.ErrMessageTooBig):
		socket.Close(websocket.StatusMessageTooBig, "the message is too large")
	default:
		socket.CloseFor(cause)
	}
}
