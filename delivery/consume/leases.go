package consume

import (
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// held is an attempt that a round is working on.
type held struct {
	attempt int
	until   time.Time // by this process's clock: before the lease expires
}

// hold records what was delivered.
func (r *Round) hold(deliveries []domain.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsettled += len(deliveries)
	for i := range deliveries {
		d := &deliveries[i]
		r.held[d.Event.ID] = held{d.Attempt, d.Expires}
	}
}

// release forgets attempts that are settled.
func (r *Round) release(attempts []domain.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsettled -= len(attempts)
	for _, a := range attempts {
		if r.held[a.EventID].attempt == a.Attempt {
			delete(r.held, a.EventID)
		}
	}
	select {
	case r.released <- struct{}{}:
	default:
	}
}

// Holds reports whether this round still has the lease of a delivery. If not, the event belongs to another consumer.
func (r *Round) Holds(d *domain.Delivery) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, there := r.held[d.Event.ID]
	return there && h.attempt == d.Attempt && time.Now().Before(h.until)
}

// extendLeases extends the leases repeatedly until ctx ends. Leases may therefore be short, so that another process
// soon continues the work of one that was killed.
func (r *Round) extendLeases(ctx context.Context) {
	every := time.NewTicker(max(r.Lease/4, time.Millisecond))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		r.mu.Lock()
		all := make([]domain.Attempt, 0, len(r.held))
		for id, h := range r.held {
			all = append(all, domain.Attempt{EventID: id, Attempt: h.attempt})
		}
		r.mu.Unlock()
		for some := range slices.Chunk(all, domain.MaxBatchSize) {
			r.extend(ctx, some)
		}
	}
}

func (r *Round) extend(ctx context.Context, attempts []domain.Attempt) {
	until := time.Now().Add(r.Lease)
	ctx, cancel := context.WithTimeout(ctx, r.Lease)
	defer cancel()
	outcomes, err := r.Groups.Extend(ctx, r.Tenant, r.Name, attempts, r.Lease)
	if err != nil {
		return // the next try may be in time; otherwise Holds returns false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, a := range attempts {
		switch {
		case r.held[a.EventID].attempt != a.Attempt: // settled in the meantime
		case outcomes[i] == domain.OutcomeDone:
			r.held[a.EventID] = held{a.Attempt, until}
		default:
			delete(r.held, a.EventID)
		}
	}
}
