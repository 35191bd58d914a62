package subscription

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// fillFor is how long a receive that has events asks for more of them. What a partition is at then is waited for, but no longer than
// fillPatience as long. Both are less where the group's ackTimeout is short: the leases of what the receive has already run.
const (
	fillFor      = stepTime
	fillPatience = 8
)

// fill fills up what a member was given by one of its partitions from the others, as far as the receive has room and they have something
// due now. They are asked side by side, since each is a round trip of its own, and each for an equal share of the room; those that
// have given all of theirs, or were not done with looking, are asked again while there is room. What they cannot give, or not in time, comes with the next receive: what
// a partition gives that is not waited for any more goes back. Where ctx ends first everything does.
func (r *receive) fill(ctx context.Context, given []domain.Delivery, within, ackTimeout time.Duration) ([]domain.Delivery, error) {
	patience := min(fillPatience*within, ackTimeout/8)
	until := time.Now().Add(min(within, patience/2))
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	bytes := maxReceiveBytes
	count := func(more []domain.Delivery) {
		for i := range more {
			bytes -= eventBytes(&more[i].Event)
		}
	}
	count(given)
	for left := slices.DeleteFunc(slices.Clone(r.at), func(p *partition) bool { return p == r.giver && !r.more }); ctx.Err() == nil; {
		room, wait := r.limit-len(given), time.Until(until)
		if room <= 0 || bytes <= 0 || len(left) == 0 || wait <= 0 {
			break
		}
		shares := equalShares(room, len(left))
		asked, later := left[:len(shares)], left[len(shares):]
		parts := make([]*receive, len(asked))
		found := make([][]domain.Delivery, len(asked))
		var asking sync.WaitGroup
		for i, p := range asked {
			parts[i] = &receive{
				batch: shares[i], member: r.member, upTo: r.upTo, rest: max(1, bytes/len(asked)),
				done: make(chan struct{}), at: []*partition{p}, tries: 1, looked: true,
			}
			asking.Go(func() { found[i], _ = parts[i].await(patient, wait) }) // what has failed shows in the next receive
		}
		asking.Wait()
		left = slices.Clone(later)
		for i := range parts {
			given = append(given, found[i]...)
			count(found[i])
			if len(found[i]) == shares[i] || parts[i].more {
				left = append(left, asked[i])
			}
		}
	}
	if ctx.Err() != nil {
		r.takeBack(given)
		return nil, context.Cause(ctx)
	}
	return given, nil
}

// equalShares divides a number among so many, each of whom is to have one at least: the first of them, where there is too little.
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

// takeBack gives back what several partitions have given.
func (r *receive) takeBack(given []domain.Delivery) {
	of := make(map[int][]domain.Attempt)
	for i := range given {
		d := &given[i]
		of[d.Partition] = append(of[d.Partition], domain.Attempt{EventID: d.Event.ID, Attempt: d.Attempt})
	}
	for _, p := range r.at {
		if back := of[p.number]; len(back) > 0 {
			p.takeBack(back)
		}
	}
}
