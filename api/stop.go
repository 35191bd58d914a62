package api

import (
	"context"
	"errors"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// errStopping is the cause of followers' contexts when the process is about to stop.
var errStopping = errors.New("the process is about to end")

// leaving returns the error for clients that start to follow when the process is about to stop.
func leaving() error {
	return domain.Errorf(domain.CodeUnavailable, "", "%s; retry, and another process answers", errStopping)
}

// ending ends followers' requests and WebSockets in order, which otherwise would never end.
type ending struct {
	stopping context.Context // ends with errStopping
	stop     context.CancelCauseFunc

	mu      sync.Mutex
	sockets int
	none    chan struct{} // created by the first waiter; closed when there is no socket
}

func newEnding() *ending {
	e := &ending{}
	e.stopping, e.stop = context.WithCancelCause(context.Background())
	return e
}

// opened counts a WebSocket. It returns false if the process is about to stop and accepts none.
func (e *ending) opened() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping.Err() != nil {
		return false
	}
	e.sockets++
	return true
}

// closed counts a WebSocket down.
func (e *ending) closed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sockets--
	if e.sockets == 0 && e.none != nil {
		close(e.none)
		e.none = nil
	}
}

// Stop ends followers' requests, and closes WebSockets with 1001, so that the clients continue on another process.
// Later followers are ended at once. Stop returns at once and does not affect other requests.
func (s *Server) Stop() {
	// Under the lock, a socket is either counted, and then closed, or refused.
	s.ending.mu.Lock()
	defer s.ending.mu.Unlock()
	s.ending.stop(errStopping)
}

// Wait waits until no WebSocket is open. If ctx ends first, Wait returns its cause. http.Server.Shutdown does not wait
// for WebSockets.
func (s *Server) Wait(ctx context.Context) error {
	e := s.ending
	e.mu.Lock()
	if e.sockets == 0 {
		e.mu.Unlock()
		return nil
	}
	if e.none == nil {
		e.none = make(chan struct{})
	}
	none := e.none
	e.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// untilStop returns a context that ends with ctx, or with errStopping as its cause when the process is about to stop.
// The caller must call stop.
func (s *Server) untilStop(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(s.ending.stopping, func() { cancel(errStopping) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}
