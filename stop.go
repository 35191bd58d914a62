package manifold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// errStopped is the cause with which requests end that were not done in time.
var errStopped = errors.New("the process was stopped")

// lastWords bounds the closing of WebSockets when there is no more waiting.
const lastWords = 10 * time.Second

// Stop ends the process in order, and returns when nothing of it runs any more: it stops taking connections (and /readyz
// says so on those that are open), lets those go who follow something and go on elsewhere, lets the requests under way
// finish until the configured deadline, cancels the rest, and then ends the background's work, which goes on elsewhere, or
// at the next start, from its checkpoints. When ctx ends first there is no more waiting. What was acknowledged is kept in
// any case. It may be called more than once.
func (p *Process) Stop(ctx context.Context) error {
	p.stopOnce.Do(func() { p.stopErr = p.stop(ctx) })
	return p.stopErr
}

func (p *Process) stop(ctx context.Context) error {
	p.stopping.Store(true)
	p.log.Info("stopping", "deadline", p.config.ShutdownDeadline.String())
	begin := time.Now()
	drain, cancel := context.WithTimeoutCause(ctx, p.config.ShutdownDeadline, errStopped)
	defer cancel()
	// The requests under way may wait for projections: those go on until the last request has been answered.
	p.api.Stop()
	err := p.server.Shutdown(drain)
	if err == nil {
		err = p.api.Wait(drain)
	}
	if err != nil {
		p.log.Warn("some requests were not done in time, and are cancelled", "waited", time.Since(begin).Round(time.Millisecond).String())
		p.endWaiting(context.Cause(drain))
		err = p.server.Close()
	}
	// What is left of the sockets ends by itself now, within moments.
	last, cancelLast := context.WithTimeout(context.Background(), lastWords)
	defer cancelLast()
	if waiting := p.api.Wait(last); waiting != nil {
		err = errors.Join(err, fmt.Errorf("WebSockets were left behind: %w", waiting))
	}
	p.serving.Wait()
	p.endWaiting(errStopped)
	p.endBackground()
	p.background.Wait()
	p.close()
	p.log.Info("stopped", "took", time.Since(begin).Round(time.Millisecond).String())
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// close closes what Start has opened, the last first.
func (p *Process) close() {
	for _, undo := range slices.Backward(p.undo) {
		undo()
	}
	p.undo = nil
}
