package group

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Receive configures a receive.
type Receive struct {
	Batch  int           // maximum number of events; 0: the group's batch size
	Wait   time.Duration // for an event if none is due
	Member domain.GroupMemberID
	UpTo   int64 // no new events after this position; 0: no bound
	// Lease is the length of the leases. It is for consumers that extend their leases for as long as they live. 0 means
	// the group's AckTimeout.
	Lease time.Duration
	// Search is how long to read the log, even after Wait is over, while it is unknown whether something is due. A
	// group with few events may have to skip very many others to find its next one.
	Search time.Duration
	// Ack are events to acknowledge first. What this makes deliverable may be received.
	Ack []domain.Attempt
	// Together delivers events whose last delivery was interrupted like all others, to a consumer that no event can
	// kill. Otherwise each of them is the only event of its answer, so that the one that kills its consumer is found.
	Together bool
}

// Received is the result of a receive.
type Received struct {
	Deliveries []domain.Delivery
	// Searching reports that nothing was given, but something may be due: Search was over before the log's head was
	// reached. Progress is kept, so the next receive continues from there.
	Searching bool
	// Outcomes are those of Receive.Ack, in its order. They are also set if Poll fails after it has acknowledged.
	Outcomes []domain.Outcome
}

// Receive calls Poll, for consumers that ask again in any case and acknowledge separately.
func (g *Groups) Receive(ctx context.Context, tenant domain.TenantID, name string, wanted Receive) ([]domain.Delivery, error) {
	received, err := g.Poll(ctx, tenant, name, wanted)
	return received.Deliveries, err
}

// Poll leases events to a consumer, at most 8 MiB of them or one event. It waits for one if none is due. A member
// receives events of all its partitions, each partition's in order. If ctx ends before Poll returns, nothing stays
// leased. If too many receives are waiting, it returns domain.CodeTooManyRequests. Acknowledgements that have begun
// take effect even if ctx ends. If Poll fails without outcomes, they may have taken effect; repeating them does no
// harm.
func (g *Groups) Poll(ctx context.Context, tenant domain.TenantID, name string, wanted Receive) (Received, error) {
	if wanted.UpTo < 0 {
		return Received{}, domain.Errorf(domain.CodeInvalidRequest, "upTo", "it is %d; positions begin with 1", wanted.UpTo)
	}
	if wanted.Batch < 0 || wanted.Batch > domain.MaxBatchSize {
		return Received{}, domain.Errorf(domain.CodeInvalidRequest, "batch", "it is %d; it must be from 1 to %d", wanted.Batch, domain.MaxBatchSize)
	}
	until, search := time.Now().Add(wanted.Wait), time.Now().Add(wanted.Search)
	acking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*stepTimeout) // for a step in progress, and the next one
	defer cancel()
	var received Received
	var verified, passed []*partition
	for {
		gr, err := g.use(ctx, tenant, name)
		if err != nil {
			return received, err
		}
		shared := !wanted.Member.IsZero()
		if shared && len(wanted.Ack) > 0 && gr.known.Load().Partitions > 0 { // perhaps of partitions that it no longer receives from
			if received.Outcomes, err = g.answerPartitions(acking, gr, wanted.Ack, newAck); err != nil {
				return received, err
			}
			wanted.Ack = nil
		}
		r, err := g.receive(ctx, gr, wanted)
		if err != nil {
			return received, err
		}
		r.verified, r.searchUntil = verified, search
		for _, p := range passed {
			if slices.Contains(r.partitions, p) {
				r.exhausted = append(r.exhausted, p)
			}
		}
		wait := time.Until(until)
		if wait <= 0 {
			if len(r.partitions) == 0 {
				return received, nil
			}
			r.looksLeft = len(r.partitions)
		}
		if shared {
			wait = min(wait, max(g.assignmentFor, leastWait)) // after that, its partitions may have changed
		}
		if gr.waiting.Add(1) > maxWaiting {
			gr.waiting.Add(-1)
			return received, domain.Errorf(domain.CodeTooManyRequests, "", "%d receives wait in this group already; try again later", maxWaiting)
		}
		deliveries, err := r.await(ctx, wait)
		gr.waiting.Add(-1)
		if r.ack != nil && r.ack.done != nil { // it was queued
			outcomes, failed := r.partitions[0].awaitAnswer(acking, r.ack)
			if failed != nil {
				err = failed
			} else {
				received.Outcomes, wanted.Ack = outcomes, nil
			}
		}
		switch {
		case errors.Is(err, errDropped):
			continue
		case shared && err == nil && len(deliveries) == 0 && time.Now().Before(until):
			verified, passed = r.verified, r.exhausted
			continue
		case err != nil:
			return received, err
		case len(deliveries) == 0:
			received.Searching = r.searching()
			return received, nil
		}
		timeout := gr.known.Load().AckTimeout
		if wanted.Lease > 0 {
			timeout = min(timeout, wanted.Lease)
		}
		if shared && !deliveries[0].Alone {
			if deliveries, err = r.topUp(ctx, deliveries, g.topUpFor, timeout); err != nil {
				return received, err
			}
			deliveries = withoutStale(deliveries, gr.known.Load().Ordering == domain.OrderingStream)
		}
		if shared {
			gr.placed.note(deliveries)
		}
		received.Deliveries, err = r.keepTimely(deliveries, timeout)
		return received, err
	}
}

// receive creates a request to the partitions that a consumer may receive from.
func (g *Groups) receive(ctx context.Context, gr *group, wanted Receive) (*receive, error) {
	known := *gr.known.Load()
	numbers := []int{0}
	switch {
	case known.Partitions > 0 && wanted.Member.IsZero():
		return nil, domain.Errorf(domain.CodeInvalidRequest, "memberId", "group %q has partitions, which its members share: join it, and receive as a member", gr.name)
	case known.Partitions > 0:
		assigned, err := g.attendMember(ctx, gr, wanted.Member)
		if err != nil {
			return nil, err
		}
		// Begin with a random partition, so that every partition is the first one from time to time.
		numbers = assigned.partitions(wanted.Member)
		if n := len(numbers); n > 0 {
			begin := rand.IntN(n)
			numbers = slices.Concat(numbers[begin:], numbers[:begin])
		}
	case !wanted.Member.IsZero():
		return nil, domain.Errorf(domain.CodeInvalidRequest, "memberId", "group %q has no partitions, and so no members; leave memberId out", gr.name)
	}
	r := &receive{batch: wanted.Batch, member: wanted.Member, upTo: wanted.UpTo, lease: wanted.Lease, done: make(chan struct{}), looksLeft: -1}
	if wanted.Together {
		r.interrupted = interruptedTogether
	}
	if known.Partitions == 0 && len(wanted.Ack) > 0 {
		r.ack = newAck(wanted.Ack)
	}
	for _, number := range numbers {
		r.partitions = append(r.partitions, g.partition(gr, number))
	}
	return r, nil
}
