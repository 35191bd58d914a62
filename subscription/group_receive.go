package subscription

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Receive asks for events.
type Receive struct {
	Batch  int           // at most so many; 0: the group's batch size
	Wait   time.Duration // for an event where none is due
	Member domain.GroupMemberID
	UpTo   int64 // nothing behind this position that was not delivered yet; 0: there is no such bound
	// Lease is for how long the events are leased, by a consumer that extends its leases for as long as it lives; 0: the group's
	// AckTimeout.
	Lease time.Duration
	// Search is how long the log is looked through where it is not known yet whether something is due, though Wait is over. A group of few
	// events may have to pass over very many others to find its next one.
	Search time.Duration
}

// Received is what a consumer was given.
type Received struct {
	Deliveries []domain.Delivery
	// Searching says, where nothing was given, that something may be due all the same: Search was over before the log's head was reached.
	// What was passed over is kept, so the next receive goes on from there.
	Searching bool
}

// Receive is Poll for consumers that ask again in any case.
func (g *Groups) Receive(ctx context.Context, tenant domain.TenantID, name string, wanted Receive) ([]domain.Delivery, error) {
	received, err := g.Poll(ctx, tenant, name, wanted)
	return received.Deliveries, err
}

// Poll leases events to a consumer: at most 8 MiB of them, or one. It waits for one where none is due. A member is given those of all
// its partitions, each partition's in their order. Where ctx ends before it returns, nothing stays leased. domain.CodeTooManyRequests: too many wait already.
func (g *Groups) Poll(ctx context.Context, tenant domain.TenantID, name string, wanted Receive) (Received, error) {
	if wanted.UpTo < 0 {
		return Received{}, domain.Errorf(domain.CodeInvalidRequest, "upTo", "it is %d; positions begin with 1", wanted.UpTo)
	}
	if wanted.Batch < 0 || wanted.Batch > domain.MaxBatchSize {
		return Received{}, domain.Errorf(domain.CodeInvalidRequest, "batch", "it is %d; it must be from 1 to %d", wanted.Batch, domain.MaxBatchSize)
	}
	until, search := time.Now().Add(wanted.Wait), time.Now().Add(wanted.Search)
	var verified, passed []*partition
	for {
		gr, err := g.use(ctx, tenant, name)
		if err != nil {
			return Received{}, err
		}
		r, err := g.receive(ctx, gr, wanted)
		if err != nil {
			return Received{}, err
		}
		r.verified, r.search = verified, search
		for _, p := range passed {
			if slices.Contains(r.at, p) {
				r.known = append(r.known, p)
			}
		}
		wait, shared := time.Until(until), !wanted.Member.IsZero()
		if wait <= 0 {
			if len(r.at) == 0 {
				return Received{}, nil
			}
			r.tries = len(r.at)
		}
		if shared {
			wait = min(wait, max(g.rosterFor, leastWait)) // then its partitions may be others
		}
		if gr.waiting.Add(1) > maxWaiting {
			gr.waiting.Add(-1)
			return Received{}, domain.Errorf(domain.CodeTooManyRequests, "", "%d receives wait in this group already; try again later", maxWaiting)
		}
		deliveries, err := r.await(ctx, wait)
		gr.waiting.Add(-1)
		switch {
		case errors.Is(err, errForgotten):
			continue
		case shared && err == nil && len(deliveries) == 0 && time.Now().Before(until):
			verified, passed = r.verified, r.known
			continue
		case err != nil:
			return Received{}, err
		case len(deliveries) == 0:
			return Received{Searching: r.searching()}, nil
		}
		timeout := gr.known.Load().AckTimeout
		if wanted.Lease > 0 {
			timeout = min(timeout, wanted.Lease)
		}
		if shared {
			if deliveries, err = r.fill(ctx, deliveries, g.fillFor, timeout); err != nil {
				return Received{}, err
			}
			deliveries = newest(deliveries, gr.known.Load().Ordering == domain.OrderingStream)
			gr.placed.note(deliveries)
		}
		deliveries, err = r.keepTimely(deliveries, timeout)
		return Received{Deliveries: deliveries}, err
	}
}

// receive makes a request to the partitions that a consumer may receive from.
func (g *Groups) receive(ctx context.Context, gr *group, wanted Receive) (*receive, error) {
	known := *gr.known.Load()
	numbers := []int{0}
	switch {
	case known.Partitions > 0 && wanted.Member.IsZero():
		return nil, domain.Errorf(domain.CodeInvalidRequest, "memberId", "group %q has partitions, which its members share: join it, and receive as a member", gr.name)
	case known.Partitions > 0:
		roster, err := g.attend(ctx, gr, wanted.Member)
		if err != nil {
			return nil, err
		}
		// The first is asked first: each in its turn.
		numbers = roster.partitions(wanted.Member)
		if n := uint64(len(numbers)); n > 0 {
			begin := gr.turn.Add(1) % n
			numbers = slices.Concat(numbers[begin:], numbers[:begin])
		}
	case !wanted.Member.IsZero():
		return nil, domain.Errorf(domain.CodeInvalidRequest, "memberId", "group %q has no partitions, and so no members; leave memberId out", gr.name)
	}
	r := &receive{batch: wanted.Batch, member: wanted.Member, upTo: wanted.UpTo, lease: wanted.Lease, done: make(chan struct{}), tries: -1}
	for _, number := range numbers {
		r.at = append(r.at, g.partition(gr, number))
	}
	return r, nil
}
