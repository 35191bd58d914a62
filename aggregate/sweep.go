package aggregate

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	// firstSweep is how long after the start the first sweep comes, so that a process that never lives a day sweeps, too.
	firstSweep = 10 * time.Minute
	// sweepWorth is how many events a snapshot must save reading for the sweep to take it.
	sweepWorth = 10
)

// sweepDaily sweeps soon after the start, and once every s.sweep then.
func (s *States) sweepDaily(ctx context.Context) {
	timer := time.NewTimer(min(firstSweep, s.sweep))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if taken, err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("the sweep for snapshots did not get through", "taken", taken, "error", err)
		}
		timer.Reset(s.sweep)
	}
}

// Sweep takes a snapshot of every stream that moved since about the last sweep and whose newest one lies at least ten
// events back. It returns how many it took. What goes wrong with one stream or tenant is logged, and keeps no other from
// its snapshot; the error is what ended the sweep. Where several processes sweep, the second finds little left to do.
func (s *States) Sweep(ctx context.Context) (taken int, err error) {
	// A quarter more than the time between two sweeps: what is found twice has its snapshot by then.
	since := time.Now().Add(-s.sweep - s.sweep/4)
	heads, err := s.store.Heads(ctx, since)
	if err != nil {
		return 0, err
	}
	for _, head := range heads {
		n, err := s.sweepTenant(ctx, head, since)
		taken += n
		if endsSweep(ctx, err) {
			return taken, err
		}
		if err != nil {
			s.log.Warn("a tenant's snapshots were not taken", "tenant", head.Tenant.String(), "error", err)
		}
	}
	return taken, nil
}

// renewalsWaiting is how many categories may wait to have their snapshots taken anew.
const renewalsWaiting = 1000

// renewal is a category whose streams with events behind a position are to have their snapshots taken anew.
type renewal struct {
	categoryKey
	after int64
}

// Renew has the snapshots of a category's streams taken anew in the background, since what folds them has changed: those
// with at least ten events. It returns at once. Where very many categories wait already, or the process ends before, states
// are folded from further back until their next snapshot.
func (s *States) Renew(tenant domain.TenantID, category string) {
	s.renewals.push(tenant, renewal{categoryKey: categoryKey{tenant, category}})
}

// renew takes the snapshots that Renew asks for: of each category some streams, and then of the next tenant's.
func (s *States) renew(ctx context.Context) {
	for {
		r, done, ok := s.renewals.next(ctx)
		if !ok {
			return
		}
		_, seen, err := s.sweepPage(ctx, r.tenant, r.category, r.after, math.MaxInt64)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("a category's snapshots were not taken anew", "tenant", r.tenant.String(), "category", r.category, "error", err)
		}
		if err == nil && seen < math.MaxInt64 {
			s.renewals.push(r.tenant, renewal{r.categoryKey, seen})
		}
		done()
	}
}

// endsSweep reports whether an error would be that of all others as well.
func endsSweep(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	problem, ok := errors.AsType[*domain.Error](err)
	return ctx.Err() != nil || ok && problem.Code == domain.CodeUnavailable
}

// sweepTenant takes the snapshots of a tenant's streams with events that were recorded after since.
func (s *States) sweepTenant(ctx context.Context, head domain.Head, since time.Time) (taken int, err error) {
	definitions, err := s.store.Aggregates(ctx, head.Tenant)
	if err != nil || len(definitions) == 0 {
		return 0, err
	}
	after, err := s.store.PositionAt(ctx, head.Tenant, since)
	if err != nil {
		return 0, err
	}
	for _, definition := range definitions {
		n, err := s.sweepCategory(ctx, head.Tenant, definition.Category, after, head.Position)
		taken += n
		if err != nil {
			return taken, err
		}
	}
	return taken, nil
}

// sweepCategory takes the snapshots of a category's streams with events in the positions (after, upTo].
func (s *States) sweepCategory(ctx context.Context, tenant domain.TenantID, category string, after, upTo int64) (taken int, err error) {
	for after < upTo && err == nil {
		var n int
		n, after, err = s.sweepPage(ctx, tenant, category, after, upTo)
		taken += n
	}
	return taken, err
}

// sweepPage is sweepCategory for some of the positions, from after on; seen is the last of them.
func (s *States) sweepPage(ctx context.Context, tenant domain.TenantID, category string, after, upTo int64) (taken int, seen int64, err error) {
	f, _, err := s.fold(ctx, tenant, category)
	if err != nil {
		if isTheClients(err) {
			return 0, upTo, nil // removed meanwhile, or not to be compiled any more
		}
		return 0, after, err
	}
	streams, seen, err := s.store.UnsnapshottedStreams(ctx, tenant, category, f.tag, sweepWorth, after, upTo)
	if err != nil {
		return 0, after, err
	}
	for _, stream := range streams {
		key := streamKey{tenant, stream}
		err := s.refresh(ctx, key, f)
		switch {
		case endsSweep(ctx, err):
			return taken, seen, err
		case err != nil:
			s.complain(ctx, key, err)
		default:
			taken++
		}
	}
	return taken, seen, nil
}
