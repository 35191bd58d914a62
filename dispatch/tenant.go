package dispatch

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// tenant is what a dispatcher knows of a tenant that has a consumer at work, asleep or waiting after an error, or whose sources are
// being asked. All others cost nothing.
type tenant struct {
	consumers map[string]*consumer // by name
	looking   bool                 // its sources are being asked
	again     bool                 // and are to be asked again then
	failing   map[int]failing      // sources that could not say its consumers
	retry     *time.Timer          // asks these again; nil: there never were any
}

// failing is a source that has failed.
type failing struct {
	failures int // in a row
	until    time.Time
}

// look has a tenant's consumers run, where this process owns it.
func (d *Dispatcher) look(id domain.TenantID) {
	if !d.config.Owns(id) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.begun(id)
	if t == nil {
		return
	}
	ctx := d.ctx
	d.running.Go(func() { d.lookAt(ctx, id, t, nil) })
}

// begun returns a tenant at whose sources the caller is to look, by lookAt; nil where somebody does so already, who looks once more then,
// or where Run is not running. d.mu must be held.
func (d *Dispatcher) begun(id domain.TenantID) *tenant {
	if d.ctx == nil {
		return nil
	}
	t := d.tenants[id]
	if t == nil {
		t = &tenant{consumers: make(map[string]*consumer)}
		d.tenants[id] = t
	}
	if t.looking {
		t.again = true
		return nil
	}
	t.looking = true
	return t
}

// lookAt asks the sources for a tenant's consumers and has these run, again while that is wanted. admit, where it is given, is
// called before each consumer that does not run already; false ends the work. Where the log grows meanwhile, the rest is run at once.
func (d *Dispatcher) lookAt(ctx context.Context, id domain.TenantID, t *tenant, admit func() (done func(), ok bool)) {
	for {
		lists := d.ask(ctx, id, t)
		d.mu.Lock()
		waiting := d.take(id, t, lists, admit == nil)
		d.mu.Unlock()
		for _, c := range waiting {
			done, ok := admit()
			if !ok {
				break
			}
			d.mu.Lock()
			d.kick(id, t, c, done)
			woken := t.again
			d.mu.Unlock()
			if woken {
				break
			}
		}
		d.mu.Lock()
		if !t.again || ctx.Err() != nil {
			t.looking, t.again = false, false
			d.tidy(id, t)
			d.mu.Unlock()
			return
		}
		t.again = false
		d.mu.Unlock()
		admit = nil // what is new there waits for no turn
	}
}

// ask returns each source's consumers of a tenant; nil of a source that has failed, now or a short while ago.
func (d *Dispatcher) ask(ctx context.Context, id domain.TenantID, t *tenant) [][]Consumer {
	lists := make([][]Consumer, len(d.config.Sources))
	select {
	case d.looking <- struct{}{}:
		defer func() { <-d.looking }()
	case <-ctx.Done():
		return lists
	}
	for i, source := range d.config.Sources {
		d.mu.Lock()
		waits := time.Now().Before(t.failing[i].until)
		d.mu.Unlock()
		if waits {
			continue
		}
		one, cancel := context.WithTimeout(ctx, lookTimeout)
		list, err := source.Consumers(one, id)
		cancel()
		if err == nil && list == nil {
			list = []Consumer{}
		}
		d.mu.Lock()
		switch {
		case err == nil:
			lists[i] = list
			delete(t.failing, i)
		case ctx.Err() == nil && d.config.Owns(id):
			d.failed(id, t, i, err)
		}
		d.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.askAgain(id, t)
	return lists
}

// failed notes that a source could not say its consumers. d.mu must be held.
func (d *Dispatcher) failed(id domain.TenantID, t *tenant, source int, err error) {
	if t.failing == nil {
		t.failing = make(map[int]failing)
	}
	failures := t.failing[source].failures + 1
	if failures == 1 {
		d.config.Log.Warn("a tenant's consumers cannot be listed; trying again", "tenant", id.String(), "error", err)
	}
	t.failing[source] = failing{failures, time.Now().Add(d.pause(failures))}
}

// askAgain has the sources that have failed asked again, when the pause of the first of them is over. d.mu must be held.
func (d *Dispatcher) askAgain(id domain.TenantID, t *tenant) {
	if t.retry != nil {
		t.retry.Stop()
	}
	var next time.Time
	for _, f := range t.failing {
		if next.IsZero() || f.until.Before(next) {
			next = f.until
		}
	}
	if !next.IsZero() {
		t.retry = time.AfterFunc(time.Until(next), func() { d.look(id) })
	}
}

// take makes a tenant's consumers those of the lists, and runs them, or with run false returns those that are to be run.
// d.mu must be held.
func (d *Dispatcher) take(id domain.TenantID, t *tenant, lists [][]Consumer, run bool) (waiting []*consumer) {
	if d.ctx == nil || !d.config.Owns(id) {
		return nil
	}
	listed := make(map[string]struct{})
	for source, list := range lists {
		for _, as := range list {
			listed[as.Name] = struct{}{}
			c := t.consumers[as.Name]
			if c == nil {
				c = &consumer{source: source}
				t.consumers[as.Name] = c
			}
			if c.as.Revision != as.Revision {
				c.failures = 0
				c.stop()
			}
			c.next, c.gone = as, false
			if run || c.running {
				d.kick(id, t, c, nil)
			} else {
				waiting = append(waiting, c)
			}
		}
	}
	for name, c := range t.consumers {
		if _, there := listed[name]; !there && lists[c.source] != nil {
			d.remove(t, name, c)
		}
	}
	return waiting
}

// tidy forgets a tenant for which there is nothing to do. d.mu must be held.
func (d *Dispatcher) tidy(id domain.TenantID, t *tenant) {
	if len(t.consumers) == 0 && !t.looking && len(t.failing) == 0 && d.tenants[id] == t {
		delete(d.tenants, id)
	}
}

// leave stops a tenant's consumers, and forgets it as soon as they have returned. d.mu must be held.
func (d *Dispatcher) leave(id domain.TenantID, t *tenant) {
	if t.retry != nil {
		t.retry.Stop()
	}
	clear(t.failing)
	for name, c := range t.consumers {
		d.remove(t, name, c)
	}
	d.tidy(id, t)
}
