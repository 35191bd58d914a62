package aggregate

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	// firstSweep is how long after the start the first sweep comes, so that a process that never lives a day sweeps, too.
	firstSweep = 10 * time.Minute
	// sweepWorth is how many events a snapshot must save reading for the sweep to take it.
	sweepWorth = 10
	// sweepTurn is how long the snapshots of one tenant are taken while other tenants wait, and then to the end of a stream.
	sweepTurn = time.Second
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
// its snapshot; tenants take turns; the error is what ended the sweep. Where several processes sweep, the second finds little left to do.
func (s *States) Sweep(ctx context.Context) (taken int, err error) {
	// A quarter more than the time between two sweeps: what is found twice has its snapshot by then.
	since := time.Now().Add(-s.sweep - s.sweep/4)
	heads, err := s.store.Heads(ctx, since)
	if err != nil {
		return 0, err
	}
	waiting := make([]sweeping, len(heads))
	for i, head := range heads {
		waiting[i].head = head
	}
	for len(waiting) > 0 { // each tenant has a turn
		left := waiting[:0]
		for _, w := range waiting {
			n, ended, err := s.sweepTenant(ctx, &w, since)
			taken += n
			switch {
			case endsSweep(ctx, err):
				return taken, err
			case err != nil:
				s.log.Warn("a tenant's snapshots were not taken", "tenant", w.head.Tenant.String(), "error", err)
			case !ended:
				left = append(left, w)
			}
		}
		waiting = left
	}
	return taken, nil
}

// sweeping is how far a sweep has come with a tenant.
type sweeping struct {
	head domain.Head
	left []renewal // its categories; nil: not looked up yet
}

// renewalsWaiting is how many categories may wait to have their snapshots taken anew.
const renewalsWaiting = 1000

// renewal is a category whose streams with events in the positions (after, upTo] are to have their snapshots taken anew.
type renewal struct {
	categoryKey
	after, upTo int64
	page        int64  // up to where streams were looked up behind after, of which some have had their turn; 0: not yet
	stream      string // the last of these, as bytes
}

// Renew has the snapshots of a category's streams taken anew in the background, since what folds them has changed: those
// with at least ten events. It returns at once. Where very many categories wait already, or the process ends before, states
// are folded from further back until their next snapshot.
func (s *States) Renew(tenant domain.TenantID, category string) {
	s.renewals.push(tenant, renewal{categoryKey: categoryKey{tenant, category}, upTo: math.MaxInt64})
}

// renew takes the snapshots that Renew asks for: of each category for some time, and then of the next tenant's.
func (s *States) renew(ctx context.Context) {
	for {
		r, done, ok := s.renewals.next(ctx)
		if !ok {
			return
		}
		_, err := s.sweepTurn(ctx, &r)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("a category's snapshots were not taken anew", "tenant", r.tenant.String(), "category", r.category, "error", err)
		}
		if err == nil && r.after < r.upTo {
			s.renewals.push(r.tenant, r)
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

// sweepTenant takes snapshots of a tenant's streams with events that were recorded after since, for one turn.
func (s *States) sweepTenant(ctx context.Context, w *sweeping, since time.Time) (taken int, ended bool, err error) {
	tenant := w.head.Tenant
	if w.left == nil {
		definitions, err := s.store.Aggregates(ctx, tenant)
		if err != nil || len(definitions) == 0 {
			return 0, true, err
		}
		after, err := s.store.PositionAt(ctx, tenant, since)
		if err != nil {
			return 0, false, err
		}
		for _, definition := range definitions {
			w.left = append(w.left, renewal{categoryKey: categoryKey{tenant, definition.Category}, after: after, upTo: w.head.Position})
		}
	}
	r := &w.left[0]
	if r.after < r.upTo {
		taken, err = s.sweepTurn(ctx, r)
	}
	if r.after >= r.upTo {
		w.left = w.left[1:]
	}
	return taken, len(w.left) == 0, err
}

// sweepTurn takes snapshots of a category's streams, of at least one and for s.turn, and notes in r how far it has come.
func (s *States) sweepTurn(ctx context.Context, r *renewal) (taken int, err error) {
	f, _, err := s.fold(ctx, r.tenant, r.category)
	if err != nil {
		if isTheClients(err) {
			r.after = r.upTo // removed meanwhile, or not to be compiled any more
			return 0, nil
		}
		return 0, err
	}
	streams, seen, err := s.store.UnsnapshottedStreams(ctx, r.tenant, r.category, f.tag, sweepWorth, r.after, cmp.Or(r.page, r.upTo))
	if err != nil {
		return 0, err
	}
	until := time.Now().Add(s.turn)
	slices.Sort(streams)
	next, had := slices.BinarySearch(streams, r.stream)
	if had {
		next++ // it is found again where its snapshot cannot be taken
	}
	for i, stream := range streams[next:] {
		if i > 0 && !time.Now().Before(until) {
			r.page = seen
			return taken, nil
		}
		key := streamKey{r.tenant, stream}
		err := s.refresh(ctx, key, f)
		switch {
		case endsSweep(ctx, err):
			return taken, err
		case err != nil:
			s.complain(ctx, key, err)
		default:
			taken++
		}
		r.stream = stream
	}
	r.after, r.page, r.stream = seen, 0, ""
	return taken, nil
}
