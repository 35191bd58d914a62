package consume

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// goRound runs a round through all tenants whenever one is requested, until ctx ends. A round also runs the consumers
// of tenants whose logs do not grow: another process may have left them with work to do.
func (d *Dispatcher) goRound(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.rounds:
		}
		heads, err := d.config.Heads(ctx, time.Time{})
		if err != nil && ctx.Err() == nil {
			d.wantRound()
			if !failing {
				d.config.Log.Warn("the tenants whose consumers are to be run cannot be listed; trying again", "error", err)
			}
		}
		failing = err != nil
		for _, head := range heads {
			if ctx.Err() != nil {
				return
			}
			d.round(ctx, head.Tenant)
		}
		select {
		case <-ctx.Done():
		case <-time.After(roundPause):
		}
	}
}

// round runs a tenant's consumers, each when admit allows it.
func (d *Dispatcher) round(ctx context.Context, id domain.TenantID) {
	if !d.config.Owns(id) {
		return
	}
	d.mu.Lock()
	t := d.begun(id)
	d.mu.Unlock()
	if t == nil {
		return
	}
	d.lookAt(ctx, id, t, func() (done func(), ok bool) { return d.admit(ctx) })
}

// admit waits until a round may start another consumer. The caller must call done when that consumer has returned. A
// consumer that takes long does not delay the others.
func (d *Dispatcher) admit(ctx context.Context) (done func(), ok bool) {
	select {
	case d.first <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	var once sync.Once
	free := func() { once.Do(func() { <-d.first }) }
	late := time.AfterFunc(firstFor, free)
	return func() {
		late.Stop()
		free()
	}, true
}
