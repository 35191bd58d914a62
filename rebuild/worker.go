package rebuild

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
)

// Run works on rebuilds and drops retired builds until ctx ends. It then gives back the rebuilds it was working on, so
// that another process can continue them at once, and returns nil.
func (r *Rebuilds) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { r.movePublicNames(ctx, "") })
	all.Go(func() { r.dropBuilds(ctx) })
	poll := time.NewTimer(0)
	defer poll.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-poll.C:
		}
		r.moveNamesAfterOutage(ctx, &all)
		r.rebuildLost(ctx)
		r.settleStrayBuilds(ctx)
		if err := r.claim(ctx, &all); err != nil && ctx.Err() == nil {
			r.config.Log.Warn("rebuilds to work on cannot be listed; trying again", "error", err)
		}
		poll.Reset(r.config.Poll)
	}
	all.Wait()
	return nil
}

// claim starts to work on every unclaimed rebuild that is not paused, as far as there is room. Rebuilds that this
// process works on check for requests.
func (r *Rebuilds) claim(ctx context.Context, all *sync.WaitGroup) error {
	running, err := r.config.Store.RunningRebuilds(ctx)
	if err != nil {
		return err
	}
	for _, rebuild := range running {
		r.mu.Lock()
		active := r.active[rebuild.ID]
		r.mu.Unlock()
		if active != nil {
			notify(active.beatNow)
			continue
		}
		if _, out := r.outage(rebuild.Definition.Database); (out || rebuild.Paused) && !rebuild.Cancel {
			continue
		}
		if err := r.claimOne(ctx, rebuild, all); err != nil {
			return err
		}
	}
	return nil
}

// claimOne starts to work on a rebuild, unless there is no room or another process has it.
func (r *Rebuilds) claimOne(ctx context.Context, rebuild domain.Rebuild, all *sync.WaitGroup) error {
	select {
	case r.slots <- struct{}{}:
	default:
		return nil
	}
	claimed, ok, err := r.config.Store.ClaimRebuild(ctx, rebuild.ProjectionID, rebuild.ID, r.worker, r.config.StaleAfter)
	if err != nil || !ok {
		<-r.slots
		return err
	}
	w := newWork(r, claimed, rebuild.State == domain.RebuildQueued)
	r.mu.Lock()
	r.active[claimed.ID] = w
	r.mu.Unlock()
	all.Go(func() {
		w.run(ctx)
		w.freeSlot()
		r.mu.Lock()
		delete(r.active, claimed.ID)
		r.mu.Unlock()
		if ctx.Err() == nil {
			r.Wake() // there is room for another one
		}
	})
	return nil
}

func (r *Rebuilds) outage(database string) (projection.Outage, bool) {
	if r.config.Outages == nil {
		return projection.Outage{}, false
	}
	return r.config.Outages(database)
}

// keep returns how long the replaced build stays.
func (r *Rebuilds) keep(row domain.Rebuild) time.Duration {
	if row.Keep > 0 {
		return row.Keep
	}
	return r.config.Keep
}

// settleTenantBuilds cleans up after what a rebuild has ended or replaced.
func (r *Rebuilds) settleTenantBuilds(ctx context.Context, row domain.Rebuild) {
	if err := r.config.Store.SettleTenantBuilds(ctx, time.Now().Add(r.keep(row))); err != nil && ctx.Err() == nil {
		r.config.Log.Warn("some ended tenant builds could not be cleaned up; trying again", "error", err)
	}
}

// driver returns the driver of a database, or an error if this process has none.
func (r *Rebuilds) driver(database string) (drivers.Driver, error) {
	if driver := r.config.Drivers[database]; driver != nil {
		return driver, nil
	}
	return nil, fmt.Errorf("there is no database %q in this process's configuration", database)
}

// sleep waits, or returns ctx's cause if ctx ends first.
func sleep(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait):
		return nil
	}
}

// notify puts an element into a channel with room for one, unless there is one already.
func notify(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
