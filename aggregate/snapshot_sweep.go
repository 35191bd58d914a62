package aggregate

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	// firstSweep is when the first sweep follows the start, so that a process that never runs for a day sweeps, too.
	firstSweep = 10 * time.Minute
	// minSweepEvents is how many events a snapshot must save from being read for the sweep to take it.
	minSweepEvents = 10
	// sweepTurnTime is how long one tenant's snapshots are taken while other tenants wait; the stream under way is
	// finished.
	sweepTurnTime = time.Second
)

// sweepDaily sweeps soon after the start, and then every s.sweep.
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
			s.log.Warn("the sweep for snapshots did not finish", "taken", taken, "error", err)
		}
		timer.Reset(s.sweep)
	}
}

// Sweep takes a snapshot of every stream that moved since about the last sweep and whose newest snapshot lies at least
// ten events back. It returns how many it took. Tenants take turns. A failure of one stream or tenant is logged, and
// does not affect others; the error is what ended the sweep. If several processes sweep, the second finds little to do.
func (s *States) Sweep(ctx context.Context) (taken int, err error) {
	// Look back a quarter more than the interval between sweeps: streams found twice have their snapshot by then.
	since := time.Now().Add(-s.sweep - s.sweep/4)
	heads, err := s.events.Heads(ctx, since)
	if err != nil {
		return 0, err
	}
	waiting := make([]tenantSweep, len(heads))
	for i, head := range heads {
		waiting[i].head = head
	}
	for len(waiting) > 0 { // each tenant gets a turn
		left := waiting[:0]
		for _, w := range waiting {
			n, ended, err := s.sweepTenant(ctx, &w, since)
			taken += n
			switch {
			case endsSweep(ctx, err):
				return taken, err
			case err != nil:
				s.log.Warn("a tenant's snapshots could not be taken", "tenant", w.head.Tenant.String(), "error", err)
			case !ended:
				left = append(left, w)
			}
		}
		waiting = left
	}
	return taken, nil
}

// tenantSweep is a sweep's progress with a tenant.
type tenantSweep struct {
	head domain.Head
	left []renewal // its categories; nil: not read yet
}

// maxRenewals is how many categories may wait to have their snapshots taken again.
const maxRenewals = 1000

// renewal is a category whose streams with events in the positions (after, upTo] must have their snapshots taken again.
type renewal struct {
	categoryKey
	after, upTo int64
	page        int64  // the end of the current page of streams after after, some of which are done; 0: none yet
	stream      string // the last finished stream of the page, in byte order
}

// Renew schedules new snapshots of a category's streams with at least ten events, since their fold has changed. It
// returns at once. If very many categories wait already, or the process ends first, states are folded from further back
// until their next snapshot.
func (s *States) Renew(tenant domain.TenantID, category string) {
	s.renewals.push(tenant, renewal{categoryKey: categoryKey{tenant, category}, upTo: math.MaxInt64})
}

// renew takes the snapshots that Renew schedules: of each category for some time, and then of the next tenant's.
func (s *States) renew(ctx context.Context) {
	for {
		r, done, ok := s.renewals.next(ctx)
		if !ok {
			return
		}
		_, err := s.sweepTurn(ctx, &r)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("a category's snapshots could not be taken again", "tenant", r.tenant.String(), "category", r.category, "error", err)
		}
		if err == nil && r.after < r.upTo {
			s.renewals.push(r.tenant, r)
		}
		done()
	}
}

// endsSweep reports whether an error would affect every other stream as well.
func endsSweep(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || domain.IsCode(err, domain.CodeUnavailable))
}

// sweepTenant takes snapshots of a tenant's streams with events recorded after since, for one turn.
func (s *States) sweepTenant(ctx context.Context, w *tenantSweep, since time.Time) (taken int, ended bool, err error) {
	tenant := w.head.Tenant
	if w.left == nil {
		definitions, err := s.store.Aggregates(ctx, tenant)
		if err != nil || len(definitions) == 0 {
			return 0, true, err
		}
		after, err := s.events.PositionAt(ctx, tenant, since)
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

// sweepTurn takes snapshots of a category's streams, at least one and for s.turnTime, and records its progress in r.
func (s *States) sweepTurn(ctx context.Context, r *renewal) (taken int, err error) {
	f, err := s.fold(ctx, r.tenant, r.category)
	if err != nil {
		if isClientError(err) {
			r.after = r.upTo // removed meanwhile, or no longer compiles
			return 0, nil
		}
		return 0, err
	}
	streams, seen, err := s.store.UnsnapshottedStreams(ctx, r.tenant, r.category, f.tag, minSweepEvents, r.after, cmp.Or(r.page, r.upTo))
	if err != nil {
		return 0, err
	}
	until := time.Now().Add(s.turnTime)
	slices.Sort(streams)
	next, had := slices.BinarySearch(streams, r.stream)
	if had {
		next++ // find it again if its snapshot cannot be taken
	}
	for i, stream := range streams[next:] {
		if i > 0 && !time.Now().Before(until) {
			r.page = seen
			return taken, nil
		}
		key := streamKey{r.tenant, stream}
		err := s.takeNewest(ctx, key, f)
		switch {
		case endsSweep(ctx, err):
			return taken, err
		case err != nil:
			s.logFailure(ctx, key, err)
		default:
			taken++
		}
		r.stream = stream
	}
	r.after, r.page, r.stream = seen, 0, ""
	return taken, nil
}
