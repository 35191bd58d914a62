package consume

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// runPasses makes a pass over all tenants whenever one is requested, until ctx ends. A pass also runs the consumers
// of tenants whose logs do not grow: another process may have left them with work to do.
func (d *Dispatcher) runPasses(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.passes:
		}
		heads, err := d.config.Heads(ctx, time.Time{})
		if err != nil && ctx.Err() == nil {
			d.requestPass()
			if !failing {
				d.config.Log.Warn("the tenants cannot be listed, so their consumers do not start; trying again", "error", err)
			}
		}
		failing = err != nil
		for _, head := range heads {
			if ctx.Err() != nil {
				return
			}
			d.passTenant(ctx, head.Tenant)
		}
		select {
		case <-ctx.Done():
		case <-time.After(passPause):
		}
	}
}

// passTenant runs a tenant's consumers, each when admit allows it.
func (d *Dispatcher) passTenant(ctx context.Context, id domain.TenantID) {
	if !d.config.Owns(id) {
		return
	}
	d.mu.Lock()
	t := d.startListing(id)
	d.mu.Unlock()
	if t == nil {
		return
	}
	d.listAndRun(ctx, id, t, func() (done func(), ok bool) { return d.admit(ctx) })
}

// admit waits until a pass may start another consumer. The caller must call done when that consumer has returned. A
// consumer that takes long does not delay the others.
func (d *Dispatcher) admit(ctx context.Context) (done func(), ok bool) {
	select {
	case d.admitted <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	var once sync.Once
	free := func() { once.Do(func() { <-d.admitted }) }
	late := time.AfterFunc(admittedFor, free)
	return func() {
		late.Stop()
		free()
	}, true
}
