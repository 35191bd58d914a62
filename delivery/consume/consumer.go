package consume

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// consumer is the state of one Consumer. It is running, asleep until something is due, or waiting after an error.
// Dispatcher.mu guards it.
type consumer struct {
	source   int      // index of the source that listed it
	current  Consumer // as it runs, or last ran
	listed   Consumer // as it was last listed
	running  bool
	rerun    bool // run it again when it returns
	unlisted bool // it is no longer listed
	failures int  // consecutive failures
	end      context.CancelFunc
	timer    *time.Timer // wakes the consumer; nil if it never slept
}

// wake makes a consumer run. An idle consumer starts now, and a running one runs again when it returns. A failed one
// waits for the end of its pause. wake calls done, if set, when the run that it starts has ended, or at once if it
// starts none. d.mu must be held.
func (d *Dispatcher) wake(id domain.TenantID, t *tenant, c *consumer, done func()) {
	switch {
	case c.unlisted || d.ctx == nil:
	case c.running:
		c.rerun = true
	case c.failures > 0:
	default:
		d.start(id, t, c, done)
		return
	}
	if done != nil {
		done()
	}
}

// start starts an idle consumer as it was last listed. d.mu must be held.
func (d *Dispatcher) start(id domain.TenantID, t *tenant, c *consumer, done func()) {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.current, c.running, c.rerun = c.listed, true, false
	var ctx context.Context
	ctx, c.end = context.WithCancel(d.ctx)
	d.running.Go(func() { d.run(ctx, id, t, c, done) })
}

// run runs a consumer until nothing is due or it fails.
func (d *Dispatcher) run(ctx context.Context, id domain.TenantID, t *tenant, c *consumer, done func()) {
	for more := true; more; {
		nextRun, err := c.current.Run(ctx)
		if done != nil {
			done()
			done = nil
		}
		more = d.returned(ctx, id, t, c, nextRun, err)
	}
}

// returned records that a consumer's Run has returned. It reports whether to call Run again at once.
func (d *Dispatcher) returned(
	ctx context.Context, id domain.TenantID, t *tenant, c *consumer, nextRun time.Time, err error,
) (more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ended := ctx.Err() != nil
	name := c.current.Name
	if !ended && err == nil {
		c.failures = 0
		if c.rerun && !c.unlisted {
			c.rerun = false
			return true
		}
	}
	c.end()
	c.running = false
	switch {
	case c.unlisted || d.ctx == nil:
		d.forget(id, t, name, c)
	case ended: // it was listed with another revision
		d.start(id, t, c, nil)
	case err != nil:
		c.failures++
		if c.failures == 1 {
			d.config.Log.Warn("a consumer has failed; trying again", "tenant", id.String(), "consumer", name, "error", err)
		} else {
			d.config.Log.Debug("a consumer has failed again", "tenant", id.String(), "consumer", name, "failures", c.failures, "error", err)
		}
		c.timer = time.AfterFunc(d.pause(c.failures), func() { d.resume(id, t, c) })
	case !nextRun.IsZero():
		c.timer = time.AfterFunc(max(time.Until(nextRun), minSleep), func() { d.resume(id, t, c) })
	default:
		d.forget(id, t, name, c)
	}
	return false
}

// resume runs a consumer after its sleep, or after its pause following an error.
func (d *Dispatcher) resume(id domain.TenantID, t *tenant, c *consumer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !c.running && !c.unlisted && d.ctx != nil {
		d.start(id, t, c, nil)
	}
}

// stop makes a running consumer return.
func (c *consumer) stop() {
	if c.running {
		c.end()
	}
}

// remove stops a consumer that is no longer listed. d.mu must be held.
func (d *Dispatcher) remove(t *tenant, name string, c *consumer) {
	c.unlisted = true
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.running {
		c.end() // forgotten when it returns
		return
	}
	delete(t.consumers, name)
}

// forget drops an idle consumer. d.mu must be held.
func (d *Dispatcher) forget(id domain.TenantID, t *tenant, name string, c *consumer) {
	if t.consumers[name] == c {
		delete(t.consumers, name)
	}
	d.forgetIdleTenant(id, t)
}

// pause returns how long to wait after this many consecutive failures.
func (d *Dispatcher) pause(failures int) time.Duration {
	pause := d.config.PauseMin
	for ; failures > 1 && pause < d.config.PauseMax; failures-- {
		pause *= 2
	}
	pause = min(pause, d.config.PauseMax)
	return pause/2 + rand.N(pause/2+1) // spread consumers that failed at the same moment
}
