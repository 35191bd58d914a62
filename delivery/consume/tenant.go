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
	listing   bool                 // its sources are being listed
	relist    bool                 // list them again afterwards
	failing   map[int]failing      // sources that failed to list its consumers
	retry     *time.Timer          // lists failed sources again; nil if none has failed
}

// failing describes a source that has failed.
type failing struct {
	failures int // consecutive
	until    time.Time
}

// refresh runs a tenant's consumers if this process owns the tenant.
func (d *Dispatcher) refresh(id domain.TenantID) {
	if !d.config.Owns(id) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.startListing(id)
	if t == nil {
		return
	}
	ctx := d.ctx
	d.running.Go(func() { d.listAndRun(ctx, id, t, nil) })
}

// startListing returns a tenant for which the caller must call listAndRun. It returns nil if Run is not running, or if
// another goroutine is already listing the tenant's sources. That goroutine then lists them once more. d.mu must be
// held.
func (d *Dispatcher) startListing(id domain.TenantID) *tenant {
	if d.ctx == nil {
		return nil
	}
	t := d.tenants[id]
	if t == nil {
		t = &tenant{consumers: make(map[string]*consumer)}
		d.tenants[id] = t
	}
	if t.listing {
		t.relist = true
		return nil
	}
	t.listing = true
	return t
}

// listAndRun lists a tenant's consumers from the sources and runs them, and repeats this while requested. If admit is
// set, listAndRun calls it before each consumer that is not running yet, and stops starting consumers when ok is false.
// If the log grows meanwhile, the remaining consumers run at once.
func (d *Dispatcher) listAndRun(ctx context.Context, id domain.TenantID, t *tenant, admit func() (done func(), ok bool)) {
	for {
		lists := d.listSources(ctx, id, t)
		d.mu.Lock()
		waiting := d.setConsumers(id, t, lists, admit == nil)
		d.mu.Unlock()
		for _, c := range waiting {
			done, ok := admit()
			if !ok {
				break
			}
			d.mu.Lock()
			d.wake(id, t, c, done)
			woken := t.relist
			d.mu.Unlock()
			if woken {
				break
			}
		}
		d.mu.Lock()
		if !t.relist || ctx.Err() != nil {
			t.listing, t.relist = false, false
			d.forgetIdleTenant(id, t)
			d.mu.Unlock()
			return
		}
		t.relist = false
		d.mu.Unlock()
		admit = nil // new work does not wait for admission
	}
}

// listSources returns each source's consumers of a tenant. The list is nil for a source that has failed now or a short
// while ago.
func (d *Dispatcher) listSources(ctx context.Context, id domain.TenantID, t *tenant) [][]Consumer {
	lists := make([][]Consumer, len(d.config.Sources))
	select {
	case d.listings <- struct{}{}:
		defer func() { <-d.listings }()
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
		one, cancel := context.WithTimeout(ctx, listTimeout)
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
	d.scheduleListing(id, t)
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

// scheduleListing schedules the next listing for when the first pause of a failed source is over. d.mu must be held.
func (d *Dispatcher) scheduleListing(id domain.TenantID, t *tenant) {
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
		t.retry = time.AfterFunc(time.Until(next), func() { d.refresh(id) })
	}
}

// setConsumers replaces a tenant's consumers by those of the lists. If run is set, it runs the new ones; otherwise it
// returns those to run. d.mu must be held.
func (d *Dispatcher) setConsumers(id domain.TenantID, t *tenant, lists [][]Consumer, run bool) (waiting []*consumer) {
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
			if c.current.Revision != as.Revision {
				c.failures = 0
				c.stop()
			}
			c.listed, c.unlisted = as, false
			if run || c.running {
				d.wake(id, t, c, nil)
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

// forgetIdleTenant forgets a tenant that has nothing to do. d.mu must be held.
func (d *Dispatcher) forgetIdleTenant(id domain.TenantID, t *tenant) {
	if len(t.consumers) == 0 && !t.listing && len(t.failing) == 0 && d.tenants[id] == t {
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
	d.forgetIdleTenant(id, t)
}
