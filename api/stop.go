package api

import (
	"context"
	"errors"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// errStopping is the cause with which the contexts of those end who follow something, when the process is about to end.
var errStopping = errors.New("the process is about to end")

// leaving is what they are told who come to follow when the process is about to end.
func leaving() error {
	return domain.Errorf(domain.CodeUnavailable, "", "%s; ask again, and another one answers", errStopping)
}

// ending lets those go in order who would stay for ever: who follow something, and who hold a WebSocket.
type ending struct {
	stopping context.Context // ends with errStopping
	stop     context.CancelCauseFunc

	mu      sync.Mutex
	sockets int
	none    chan struct{} // made by the first who waits; closed when there is no socket
}

func newEnding() *ending {
	e := &ending{}
	e.stopping, e.stop = context.WithCancelCause(context.Background())
	return e
}

// opened counts a WebSocket; false: the process is about to end, and takes none.
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

// Stop lets those go who follow something: their answers end, and their WebSockets are closed with 1001, so that they go
// on elsewhere. Whoever comes later to follow is let go at once. It returns at once; other requests are not its business.
func (s *Server) Stop() {
	// Under the lock: a socket is either counted, and told, or refused.
	s.ending.mu.Lock()
	defer s.ending.mu.Unlock()
	s.ending.stop(errStopping)
}

// Wait waits until there is no WebSocket any more, or ctx ends, whose cause it returns then. http.Server.Shutdown knows
// nothing of them.
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

// untilStop is ctx, ended with errStopping as its cause when the process is about to end. stop must be called.
func (s *Server) untilStop(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(s.ending.stopping, func() { cancel(errStopping) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}
