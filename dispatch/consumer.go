package dispatch

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// consumer is a Consumer that runs, sleeps until something is due, or waits after an error. Dispatcher.mu is its lock.
type consumer struct {
	source   int      // that has listed it
	as       Consumer // as it runs, or ran last
	next     Consumer // as it was listed last
	running  bool
	again    bool // it is to be run again when it has returned
	gone     bool // it is no longer listed
	failures int  // in a row
	end      context.CancelFunc
	timer    *time.Timer // runs it; nil: it was never asleep
}

// kick has a consumer run: now, when it has returned, or where it has failed when its pause is over. done, where given, is
// called when its run has ended, or there is none. d.mu must be held.
func (d *Dispatcher) kick(id domain.TenantID, t *tenant, c *consumer, done func()) {
	switch {
	case c.gone || d.ctx == nil:
	case c.running:
		c.again = true
	case c.failures > 0:
	default:
		d.begin(id, t, c, done)
		return
	}
	if done != nil {
		done()
	}
}

// begin runs a consumer that does not run, as it was listed last. d.mu must be held.
func (d *Dispatcher) begin(id domain.TenantID, t *tenant, c *consumer, done func()) {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.as, c.running, c.again = c.next, true, false
	var ctx context.Context
	ctx, c.end = context.WithCancel(d.ctx)
	d.running.Go(func() { d.run(ctx, id, t, c, done) })
}

// run runs a consumer until nothing is due, or it fails.
func (d *Dispatcher) run(ctx context.Context, id domain.TenantID, t *tenant, c *consumer, done func()) {
	for more := true; more; {
		again, err := c.as.Run(ctx)
		if done != nil {
			done()
			done = nil
		}
		more = d.returned(ctx, id, t, c, again, err)
	}
}

// returned notes that a consumer's Run has returned, and reports whether it is to be called again at once.
func (d *Dispatcher) returned(ctx context.Context, id domain.TenantID, t *tenant, c *consumer, again time.Time, err error) (more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ended := ctx.Err() != nil
	name := c.as.Name
	if !ended && err == nil {
		c.failures = 0
		if c.again && !c.gone {
			c.again = false
			return true
		}
	}
	c.end()
	c.running = false
	switch {
	case c.gone || d.ctx == nil:
		d.forget(id, t, name, c)
	case ended: // listed with another revision
		d.begin(id, t, c, nil)
	case err != nil:
		c.failures++
		if c.failures == 1 {
			d.config.Log.Warn("a consumer has failed; trying again", "tenant", id.String(), "consumer", name, "error", err)
		} else {
			d.config.Log.Debug("a consumer has failed again", "tenant", id.String(), "consumer", name, "failures", c.failures, "error", err)
		}
		c.timer = time.AfterFunc(d.pause(c.failures), func() { d.resume(id, t, c) })
	case !again.IsZero():
		c.timer = time.AfterFunc(max(time.Until(again), leastSleep), func() { d.resume(id, t, c) })
	default:
		d.forget(id, t, name, c)
	}
	return false
}

// resume runs a consumer that has slept, or waited after an error.
func (d *Dispatcher) resume(id domain.TenantID, t *tenant, c *consumer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !c.running && !c.gone && d.ctx != nil {
		d.begin(id, t, c, nil)
	}
}

// stop has a consumer that runs return.
func (c *consumer) stop() {
	if c.running {
		c.end()
	}
}

// remove stops a consumer that is no longer listed. d.mu must be held.
func (d *Dispatcher) remove(t *tenant, name string, c *consumer) {
	c.gone = true
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.running {
		c.end() // it is forgotten when it has returned
		return
	}
	delete(t.consumers, name)
}

// forget lets go of a consumer that does not run. d.mu must be held.
func (d *Dispatcher) forget(id domain.TenantID, t *tenant, name string, c *consumer) {
	if t.consumers[name] == c {
		delete(t.consumers, name)
	}
	d.tidy(id, t)
}

// pause is how long to wait after so many failures in a row.
func (d *Dispatcher) pause(failures int) time.Duration {
	pause := d.config.PauseMin
	for ; failures > 1 && pause < d.config.PauseMax; failures-- {
		pause *= 2
	}
	pause = min(pause, d.config.PauseMax)
	return pause/2 + rand.N(pause/2+1) // apart from others that have failed at the same moment
}
