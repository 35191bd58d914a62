package group

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// topUpFor is how long a receive that has events asks other partitions for more. It waits for partitions that are still
// busy then, up to topUpPatience times as long. Both are shorter if the group's ackTimeout is short, because the leases
// of the events already received are running.
const (
	topUpFor      = stepTime
	topUpPatience = 8
	// plannedRounds is how many rounds ask only some partitions. Their counts of ready events may be too high, so later
	// rounds ask all of them.
	plannedRounds = 2
)

// topUp adds events from a member's other partitions to those that one partition gave. It takes as many as the receive
// has room for and as are due now. It asks several partitions concurrently, because each is a separate round trip. Each
// is asked for a share of the room. While there is room, it asks the remaining partitions, and repeats the request to
// partitions that gave their full share or had not finished looking. Events that a partition cannot give in time come
// with the next receive; deliveries that arrive too late go back. If ctx ends first, all deliveries go back.
func (r *receive) topUp(ctx context.Context, given []domain.Delivery, within, ackTimeout time.Duration) ([]domain.Delivery, error) {
	patience := min(topUpPatience*within, ackTimeout/8)
	until := time.Now().Add(min(within, patience/2))
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	left := slices.DeleteFunc(slices.Clone(r.partitions), func(p *partition) bool { return p == r.giver && !r.mayHaveMore })
	for round := 0; ctx.Err() == nil && len(left) > 0; round++ {
		events, bytes, wait := r.limit-len(given), maxReceiveBytes, time.Until(until)
		for i := range given {
			bytes -= eventBytes(&given[i].Event)
		}
		if events <= 0 || bytes <= 0 || wait <= 0 {
			break
		}
		shares := equalShares(events, len(left))
		if round < plannedRounds {
			left, shares = planShares(events, left)
		}
		var more []domain.Delivery
		more, left = r.askForMore(patient, left, shares, bytes, wait)
		given = append(given, more...)
	}
	if ctx.Err() != nil {
		r.giveBack(given)
		return nil, context.Cause(ctx)
	}
	return given, nil
}

// askForMore asks the first partitions, once each, for their shares of events. It returns the partitions that may have
// more, including the rest, which it does not ask.
func (r *receive) askForMore(
	ctx context.Context, partitions []*partition, shares []int, bytes int, wait time.Duration,
) (more []domain.Delivery, left []*partition) {
	asked, later := partitions[:len(shares)], partitions[len(shares):]
	events := 0
	for _, share := range shares {
		events += share
	}
	parts := make([]*receive, len(asked))
	found := make([][]domain.Delivery, len(asked))
	failed := make([]error, len(asked)) // the next receive reports them
	var asking sync.WaitGroup
	for i, p := range asked {
		parts[i] = &receive{
			batch: shares[i], member: r.member, upTo: r.upTo, topUpBytes: max(1, bytes*shares[i]/events),
			interrupted: interruptedNever, done: make(chan struct{}), partitions: []*partition{p}, looksLeft: 1, headRead: true,
		}
		asking.Go(func() { found[i], failed[i] = parts[i].await(ctx, wait) })
	}
	asking.Wait()
	left = slices.Clone(later)
	for i := range parts {
		more = append(more, found[i]...)
		// A step may still work on one that was given up.
		if failed[i] == nil && (len(found[i]) == shares[i] || parts[i].mayHaveMore) {
			left = append(left, asked[i])
		}
	}
	return more, left
}

// planShares orders the partitions, and returns how many events to ask of each of the first ones. Each partition that
// delivers saves its ledger, so it chooses those with the most ready events, as many as it takes to fill the room. The
// first partition and those that may redeliver events are always asked for an equal share, so that no partition is
// passed over for long. If all of them have too few ready events, it returns equal shares for all partitions.
func planShares(events int, partitions []*partition) (order []*partition, shares []int) {
	type offer struct {
		of    *partition
		ready int
	}
	var offers []offer
	each, left := max(1, events/len(partitions)), events
	for i, p := range partitions {
		if i > 0 && !p.mayRedeliver.Load() {
			offers = append(offers, offer{p, int(p.readyEvents.Load())})
			continue
		}
		order = append(order, p)
		if share := min(each, left); share > 0 {
			shares, left = append(shares, share), left-share
		}
	}
	slices.SortStableFunc(offers, func(a, b offer) int { return cmp.Compare(b.ready, a.ready) })
	for _, o := range offers {
		order = append(order, o.of)
		if share := min(o.ready, left); share > 0 {
			shares, left = append(shares, share), left-share
		}
	}
	if left > 0 {
		return partitions, equalShares(events, len(partitions))
	}
	return order, shares
}

// equalShares divides number into equal shares of at least one. If number is smaller than among, only that many shares
// exist.
func equalShares(number, among int) []int {
	shares := make([]int, min(number, among))
	for i := range shares {
		shares[i] = number / len(shares)
		if i < number%len(shares) {
			shares[i]++
		}
	}
	return shares
}

// giveBack returns the deliveries of several partitions.
func (r *receive) giveBack(given []domain.Delivery) {
	of := make(map[int][]domain.Attempt)
	for i := range given {
		d := &given[i]
		of[d.Partition] = append(of[d.Partition], domain.AttemptOf(d))
	}
	for _, p := range r.partitions {
		if back := of[p.number]; len(back) > 0 {
			p.giveBack(back)
		}
	}
}
