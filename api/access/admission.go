package access

import (
	"context"

	"github.com/manifold-es/manifold/fairshare"
	"github.com/manifold-es/manifold/limits"
)

// Admission is a request or a connection that was let in, and counts towards its caller's limits until it is closed.
// Nil is one without limits.
type Admission struct {
	Place *fairshare.Account // in this process
	Pass  *limits.Pass       // in all processes
}

// Close ends the request.
func (a *Admission) Close() {
	if a == nil {
		return
	}
	a.Place.Close()
	a.Pass.Close()
}

// Message counts one more request over the same connection, or refuses it.
func (a *Admission) Message(ctx context.Context) error {
	if a == nil {
		return nil
	}
	return a.Pass.Message(ctx)
}

// Context returns a context in which appends count towards the caller's limits.
func (a *Admission) Context(ctx context.Context) context.Context {
	if a == nil {
		return ctx
	}
	return limits.With(ctx, a.Pass)
}
