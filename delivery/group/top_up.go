package group

import (
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
)

// topUp adds events from a member's other partitions to those that one partition gave. It takes as many as the receive
// has room for and as are due now. It asks the partitions concurrently, because each is a separate round trip, and asks
// each for an equal share of the room. While there is room, it asks again those that gave their full share or had not
// finished looking. Events that a partition cannot give in time come with the next receive; deliveries that arrive too
// late go back. If ctx ends first, all deliveries go back.
func (r *receive) topUp(ctx context.Context, given []domain.Delivery, within, ackTimeout time.Duration) ([]domain.Delivery, error) {
	patience := min(topUpPatience*within, ackTimeout/8)
	until := time.Now().Add(min(within, patience/2))
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	left := slices.DeleteFunc(slices.Clone(r.partitions), func(p *partition) bool { return p == r.giver && !r.mayHaveMore })
	for ctx.Err() == nil && len(left) > 0 {
		events, bytes, wait := r.limit-len(given), maxReceiveBytes, time.Until(until)
		for i := range given {
			bytes -= eventBytes(&given[i].Event)
		}
		if events <= 0 || bytes <= 0 || wait <= 0 {
			break
		}
		var more []domain.Delivery
		more, left = r.askForMore(patient, left, events, bytes, wait)
		given = append(given, more...)
	}
	if ctx.Err() != nil {
		r.giveBack(given)
		return nil, context.Cause(ctx)
	}
	return given, nil
}

// askForMore asks partitions, once each, for equal shares of the room. It returns the partitions that may have more,
// and those that it did not ask because the room is smaller than their number.
func (r *receive) askForMore(ctx context.Context, partitions []*partition, events, bytes int, wait time.Duration) (more []domain.Delivery, left []*partition) {
	shares := equalShares(events, len(partitions))
	asked, later := partitions[:len(shares)], partitions[len(shares):]
	parts := make([]*receive, len(asked))
	found := make([][]domain.Delivery, len(asked))
	failed := make([]error, len(asked)) // the next receive reports them
	var asking sync.WaitGroup
	for i, p := range asked {
		parts[i] = &receive{
			batch: shares[i], member: r.member, upTo: r.upTo, topUpBytes: max(1, bytes/len(asked)),
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
