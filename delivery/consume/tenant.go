package consume

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// tenant is the state of a tenant with a consumer that is running, asleep or waiting after an error, or whose sources
// are being listed. Other tenants take no memory.
type tenant struct {
	consumers map[string]*consumer // by name
	looking   bool                 // its sources are being listed
	again     bool                 // list them again afterwards
	failing   map[int]failing      // sources that failed to list its consumers
	retry     *time.Timer          // lists failed sources again; nil if none has failed
}

// failing describes a source that has failed.
type failing struct {
	failures int // consecutive
	until    time.Time
}

// look runs a tenant's consumers if this process owns the tenant.
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

// begun returns a tenant for which the caller must call lookAt. It returns nil if Run is not running, or if another
// goroutine is already listing the tenant's sources. That goroutine then lists them once more. d.mu must be held.
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

// lookAt lists a tenant's consumers from the sources and runs them, and repeats this while requested. If admit is set,
// lookAt calls it before each consumer that is not running yet, and stops starting consumers when ok is false. If the
// log grows meanwhile, the remaining consumers run at once.
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
		admit = nil // new work does not wait for admission
	}
}

// ask returns each source's consumers of a tenant. The list is nil for a source that has failed now or a short while
// ago.
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

// failed records that a source failed to list its consumers. d.mu must be held.
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

// askAgain schedules the next listing for when the first pause of a failed source is over. d.mu must be held.
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

// take makes the lists a tenant's consumers. If run is set, take runs them; otherwise it returns those that are to be
// run. d.mu must be held.
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

// tidy forgets a tenant that has nothing to do. d.mu must be held.
func (d *Dispatcher) tidy(id domain.TenantID, t *tenant) {
	if len(t.consumers) == 0 && !t.looking && len(t.failing) == 0 && d.tenants[id] == t {
		delete(d.tenants, id)
	}
}

// leave stops a tenant's consumers, and forgets the tenant as soon as they have returned. d.mu must be held.
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
