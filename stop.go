package manifold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// errStopped is the cause with which requests end that were not done in time.
var errStopped = errors.New("the process was stopped")

// stopMargin is how long what was cancelled may take to end.
const stopMargin = 3 * time.Second

// Stop ends the process in order, and returns when nothing of it runs any more: it stops taking connections (and /readyz
// says so on those that are open), lets those go who follow something and go on elsewhere, lets the requests under way
// finish until the configured deadline, cancels the rest, and then ends the background's work, which goes on elsewhere, or
// at the next start, from its checkpoints. When ctx ends first there is no more waiting. What was acknowledged is kept in
// any case. It may be called more than once.
//
// Three seconds after the deadline it returns whatever still runs, such as code of the program's own that does not look at
// its context: the error names that, and the program should exit.
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
	err := p.public.server.Shutdown(drain)
	if err == nil {
		err = p.api.Wait(drain)
	}
	if err == nil && p.admin != nil {
		err = p.admin.server.Shutdown(drain) // the last, so that probes are answered meanwhile
	}
	if err != nil {
		p.log.Warn("some requests were not done in time, and are cancelled", "waited", time.Since(begin).Round(time.Millisecond).String(), "requests", p.answering.left())
		p.endWaiting(context.Cause(drain))
		p.endBackground()
		err = p.closeListeners()
	}
	// Where all requests were answered, what works in the background has the rest of the time.
	last, cancelLast := context.WithCancel(context.Background())
	defer cancelLast()
	defer p.endOverdue()
	defer context.AfterFunc(drain, func() {
		p.endOverdue()
		time.AfterFunc(stopMargin, cancelLast)
	})()
	var left []string
	// What is left of the sockets ends by itself now, within moments.
	if p.api.Wait(last) != nil {
		left = append(left, "WebSockets")
	}
	p.answering.wait(last)
	p.endWaiting(errStopped)
	p.endBackground()
	p.background.wait(last)
	left = append(append(left, p.answering.left()...), p.background.left()...)
	// Connections that are still used are waited for as well.
	var closing running
	closing.spawn("close the databases", func() {
		p.serving.Wait()
		p.close()
	})
	closing.wait(last)
	left = append(left, closing.left()...)
	p.outages.End()
	took := time.Since(begin).Round(time.Millisecond)
	if len(left) > 0 {
		p.log.Warn("stopped, but not everything has ended", "took", took.String(), "left", left)
		return errors.Join(err, fmt.Errorf("stop: this has not ended by the deadline: %s", strings.Join(left, ", ")))
	}
	p.log.Info("stopped", "took", took.String())
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
