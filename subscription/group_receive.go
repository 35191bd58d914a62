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
}

// Receive leases events to a consumer: at most 8 MiB of them, or one. It waits for one where none is due. A member is given those of all
// its partitions, each partition's in their order. Where ctx ends before it returns, nothing stays leased. domain.CodeTooManyRequests: too many wait already.
func (g *Groups) Receive(ctx context.Context, tenant domain.TenantID, name string, wanted Receive) ([]domain.Delivery, error) {
	if wanted.UpTo < 0 {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "upTo", "it is %d; positions begin with 1", wanted.UpTo)
	}
	if wanted.Batch < 0 || wanted.Batch > domain.MaxBatchSize {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "batch", "it is %d; it must be from 1 to %d", wanted.Batch, domain.MaxBatchSize)
	}
	until := time.Now().Add(wanted.Wait)
	var verified []*partition
	for {
		gr, err := g.use(ctx, tenant, name)
		if err != nil {
			return nil, err
		}
		r, err := g.receive(ctx, gr, wanted)
		if err != nil {
			return nil, err
		}
		r.verified = verified
		wait, shared := time.Until(until), !wanted.Member.IsZero()
		if wait <= 0 {
			if len(r.at) == 0 {
				return nil, nil
			}
			r.tries = len(r.at)
		}
		if shared {
			wait = min(wait, max(g.rosterFor, leastWait)) // then its partitions may be others
		}
		if gr.waiting.Add(1) > maxWaiting {
			gr.waiting.Add(-1)
			return nil, domain.Errorf(domain.CodeTooManyRequests, "", "%d receives wait in this group already; try again later", maxWaiting)
		}
		deliveries, err := r.await(ctx, wait)
		gr.waiting.Add(-1)
		switch {
		case errors.Is(err, errForgotten):
			continue
		case shared && err == nil && len(deliveries) == 0 && time.Now().Before(until):
			verified = r.verified
			continue
		case shared && len(deliveries) > 0:
			if deliveries, err = r.fill(ctx, deliveries, g.fillFor); err == nil {
				gr.placed.note(deliveries)
			}
		}
		return deliveries, err
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
	r := &receive{batch: wanted.Batch, member: wanted.Member, upTo: wanted.UpTo, done: make(chan struct{}), tries: -1}
	for _, number := range numbers {
		r.at = append(r.at, g.partition(gr, number))
	}
	return r, nil
}
