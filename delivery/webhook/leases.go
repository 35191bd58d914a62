package webhook

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Leases of webhook events are short, so that another process soon sends the events of a process that was killed. A
// round extends its leases while it works on the events.

// held is an attempt that a round is working on.
type held struct {
	attempt int
	until   time.Time // by this process's clock: before the lease expires
}

// hold records what was delivered.
func (r *round) hold(deliveries []domain.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range deliveries {
		d := &deliveries[i]
		r.held[d.Event.ID] = held{d.Attempt, d.Expires}
	}
}

// release forgets attempts that are settled or given back.
func (r *round) release(attempts []domain.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range attempts {
		if r.held[a.EventID].attempt == a.Attempt {
			delete(r.held, a.EventID)
		}
	}
}

// holds reports whether this round still has the lease of a job's event. If not, the event belongs to another consumer.
func (r *round) holds(j *job) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, there := r.held[j.delivery.Event.ID]
	return there && h.attempt == j.delivery.Attempt && time.Now().Before(h.until)
}

// extend extends the leases repeatedly until ctx ends.
func (r *round) extend(ctx context.Context) {
	every := time.NewTicker(max(r.c.webhooks.pace.lease/4, time.Millisecond))
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
		for len(all) > 0 && ctx.Err() == nil {
			some := all[:min(len(all), domain.MaxBatchSize)]
			all = all[len(some):]
			r.extendSome(ctx, some)
		}
	}
}

func (r *round) extendSome(ctx context.Context, attempts []domain.Attempt) {
	c := r.c
	length := c.webhooks.pace.lease
	until := time.Now().Add(length)
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	outcomes, err := c.webhooks.config.Groups.Extend(ctx, c.tenant, c.group, attempts, length)
	if err != nil {
		return // the next try may be in time; otherwise holds returns false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, a := range attempts {
		h := r.held[a.EventID]
		switch {
		case h.attempt != a.Attempt: // settled in the meantime
		case outcomes[i] == domain.OutcomeDone:
			r.held[a.EventID] = held{a.Attempt, until}
		default:
			delete(r.held, a.EventID)
		}
	}
}
