package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// errStopped is the cause with which requests end that miss the deadline.
var errStopped = errors.New("the process was stopped")

// stopMargin is how long cancelled work may take to end.
const stopMargin = 3 * time.Second

// Stop ends the process in order, and returns when all of it has stopped. It takes these steps:
//
//   - It accepts no new connections, and /readyz reports that on the open ones.
//   - It ends the requests of followers, which continue at another process.
//   - It lets the requests under way finish until the configured deadline, and cancels the rest.
//   - It ends the background work, which continues in another process, or at the next start, from its checkpoints.
//
// When ctx ends first, Stop waits no longer. Acknowledged events are kept in any case. Stop may be called more than
// once.
//
// Three seconds after the deadline, Stop returns even if something still runs, such as the program's own code that
// ignores its context. The error names what still runs, and the program should exit.
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
	// Requests under way may wait for projections, so projections continue until the last request is answered.
	p.api.Stop()
	err := p.public.server.Shutdown(drain)
	if err == nil {
		err = p.api.Wait(drain)
	}
	if err == nil && p.admin != nil {
		err = p.admin.server.Shutdown(drain) // last, so that probes are answered meanwhile
	}
	if err != nil {
		p.log.Warn("some requests were not done in time, and are cancelled", "waited", time.Since(begin).Round(time.Millisecond).String(), "requests", p.answering.names())
		p.endWaiting(context.Cause(drain))
		p.endBackground()
		err = p.closeListeners()
	}
	// If all requests were answered in time, the background work has the rest of the time.
	last, cancelLast := context.WithCancel(context.Background())
	defer cancelLast()
	defer p.endOverdue()
	defer context.AfterFunc(drain, func() {
		p.endOverdue()
		time.AfterFunc(stopMargin, cancelLast)
	})()
	var left []string
	// The remaining WebSockets end within moments.
	if p.api.Wait(last) != nil {
		left = append(left, "WebSockets")
	}
	p.answering.wait(last)
	p.endWaiting(errStopped)
	p.endBackground()
	p.background.wait(last)
	left = append(append(left, p.answering.names()...), p.background.names()...)
	// Closing a database also waits for its connections in use.
	var closing tasks
	closing.spawn("close the databases", func() {
		p.serving.Wait()
		p.close()
	})
	closing.wait(last)
	p.closeTraces(last)
	left = append(left, closing.names()...)
	p.outages.End()
	took := time.Since(begin).Round(time.Millisecond)
	if len(left) > 0 {
		p.log.Warn("stopped before all tasks had ended", "took", took.String(), "left", left)
		return errors.Join(err, fmt.Errorf("stop: still running at the deadline: %s", strings.Join(left, ", ")))
	}
	p.log.Info("stopped", "took", took.String())
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// close closes what Start has opened, in reverse order.
func (p *Process) close() {
	for _, undo := range slices.Backward(p.undo) {
		undo()
	}
	p.undo = nil
}
