package socket

import (
	"context"
	"errors"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// ErrStopping is the cause of followers' contexts when the process is about to stop.
var ErrStopping = errors.New("the process is about to end")

// Stopping returns the error for clients that start to follow when the process is about to stop.
func Stopping() error {
	return domain.Errorf(domain.CodeUnavailable, "", "%s; retry, and another process answers", ErrStopping)
}

// Ending ends followers' requests and WebSockets in order, which otherwise would never end.
type Ending struct {
	stopping context.Context // ends with ErrStopping
	cancel   context.CancelCauseFunc

	mu      sync.Mutex
	sockets int
	none    chan struct{} // created by the first waiter; closed when there is no socket
}

func NewEnding() *Ending {
	e := &Ending{}
	e.stopping, e.cancel = context.WithCancelCause(context.Background())
	return e
}

// opened counts a WebSocket. It returns false if the process is about to stop and accepts none.
func (e *Ending) opened() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping.Err() != nil {
		return false
	}
	e.sockets++
	return true
}

// closed counts a WebSocket down.
func (e *Ending) closed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sockets--
	if e.sockets == 0 && e.none != nil {
		close(e.none)
		e.none = nil
	}
}

// Stop ends followers' requests, and closes WebSockets with 1001, so that the clients continue on another process.
// Later followers are ended at once. It returns at once.
func (e *Ending) Stop() {
	// Under the lock, a socket is either counted, and then closed, or refused.
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancel(ErrStopping)
}

// Stopped returns a channel that is closed when the process is about to stop.
func (e *Ending) Stopped() <-chan struct{} { return e.stopping.Done() }

// Wait waits until no WebSocket is open. If ctx ends first, it returns the cause.
func (e *Ending) Wait(ctx context.Context) error {
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

// Until returns a context that ends with ctx, or with ErrStopping as its cause when the process is about to stop. The
// caller must call stop.
func (e *Ending) Until(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(e.stopping, func() { cancel(ErrStopping) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}
