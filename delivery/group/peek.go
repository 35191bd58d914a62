package group

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Peek configures a look at what a group will deliver next.
type Peek struct {
	Limit     int // for each list; 0: domain.DefaultPeek
	Partition int // of a group with partitions; negative: all
}

// Peeked is what a group would deliver and what it waits for, as a receive at this moment would find it. Nothing was
// leased.
type Peeked struct {
	Next      []domain.Delivery // due now, with the attempt numbers they would have; also in a paused group
	InFlight  []domain.Delivery // oldest first
	Retrying  []WaitingRetry    // by due time
	Searching bool              // Next may be incomplete, because the log was not read to its end
}

// WaitingRetry is an event that waits for its next attempt.
type WaitingRetry struct {
	Retry
	Event domain.Event
}

const (
	// peekFor limits how long a peek reads the log, for all partitions together.
	peekFor = 2 * time.Second
	// peeks limits how many peeks a process works on at once. It works on one per tenant.
	peeks = 4
	// peekRead limits how many events in flight are read at once. Each may have the maximum size.
	peekRead = 8
)

// Peek looks at a group without leasing an event or counting an attempt. The partitions of a group have equal shares of
// the limit. Peek keeps the group's progress over events that are not selected, so the next peek continues where the
// last one stopped.
func (g *Groups) Peek(ctx context.Context, tenant domain.TenantID, name string, wanted Peek) (Peeked, error) {
	if wanted.Limit < 0 || wanted.Limit > domain.MaxPeek {
		return Peeked{}, domain.Errorf(domain.CodeInvalidRequest, "limit", "it is %d; it must be from 1 to %d", wanted.Limit, domain.MaxPeek)
	}
	wanted.Limit = cmp.Or(wanted.Limit, domain.DefaultPeek)
	for {
		gr, err := g.use(ctx, tenant, name)
		if err != nil {
			return Peeked{}, err
		}
		found, err := g.peek(ctx, gr, wanted)
		switch failure, ok := errors.AsType[*domain.Error](err); {
		case errors.Is(err, errDropped):
			g.drop(gr, err)
			continue
		case ok && failure.Code == domain.CodeNotFound:
			g.drop(gr, err)
		}
		return found, err
	}
}

// peek implements Peek for a group that is in use.
func (g *Groups) peek(ctx context.Context, gr *group, wanted Peek) (all Peeked, err error) {
	for _, turns := range []chan struct{}{gr.peeking, g.peeking} {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			return Peeked{}, context.Cause(ctx)
		}
	}
	numbers := []int{wanted.Partition}
	switch partitions := max(1, gr.known.Load().Partitions); {
	case wanted.Partition >= partitions:
		return Peeked{}, domain.Errorf(domain.CodeInvalidRequest, "partition", "it is %d; the group's last one is %d", wanted.Partition, partitions-1)
	case wanted.Partition < 0:
		numbers = numbers[:0]
		for number := range partitions {
			numbers = append(numbers, number)
		}
	}
	until := time.Now().Add(peekFor)
	bytes := maxReceiveBytes
	for _, number := range numbers {
		if time.Now().After(until) {
			all.Searching = true
			break
		}
		one, err := g.peekPartition(ctx, gr, number, max(1, wanted.Limit/len(numbers)), &bytes, until)
		if err != nil {
			return Peeked{}, err
		}
		all.Next, all.InFlight, all.Retrying = append(all.Next, one.Next...), append(all.InFlight, one.InFlight...), append(all.Retrying, one.Retrying...)
		all.Searching = all.Searching || one.Searching
	}
	if len(numbers) > 1 {
		byPosition := func(a, b domain.Delivery) int { return cmp.Compare(a.Event.Position, b.Event.Position) }
		slices.SortStableFunc(all.Next, byPosition)
		slices.SortStableFunc(all.InFlight, byPosition)
		slices.SortStableFunc(all.Retrying, byDue)
	}
	all.Next, all.InFlight = all.Next[:min(wanted.Limit, len(all.Next))], all.InFlight[:min(wanted.Limit, len(all.InFlight))]
	all.Retrying = all.Retrying[:min(wanted.Limit, len(all.Retrying))]
	return all, nil
}

func byDue(a, b WaitingRetry) int {
	return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Position, b.Position))
}

// peekPartition makes a step as a receive would, on a separate ledger that is never saved.
func (g *Groups) peekPartition(ctx context.Context, gr *group, number, limit int, bytes *int, until time.Time) (Peeked, error) {
	p := &partition{groups: g, group: gr, number: number, streams: streamsAhead{maxBytes: scarceBytes}}
	if err := p.readLedger(ctx, false); err != nil {
		return Peeked{}, err
	}
	p.ahead.maxBytes = scarceBytes
	if !p.row.Group.Paused && min(gr.head.Load(), p.ends())-p.ledger.readTo > aheadWindow {
		if err := g.passOver(ctx, gr, number, until); err != nil {
			return Peeked{}, err
		}
		if err := p.readLedger(ctx, false); err != nil {
			return Peeked{}, err
		}
	}
	l, now := p.ledger, p.clock.now().UnixMicro()
	var leases []*lease
	for _, le := range l.leases {
		if !le.ended && !le.due() {
			copied := *le
			leases = append(leases, &copied)
		}
	}
	l.expireLeases(now, p.row.Group.MaxAttempts)
	r := &receive{batch: limit, topUpBytes: max(1, *bytes), interrupted: interruptedTogether}
	r.reset(limit, now)
	s := &step{p: p, receives: []*receive{r}, served: []*receive{r}, mayHaveMore: true}
	for s.mayHaveMore && len(r.deliveries) < limit && time.Now().Before(until) {
		l.saved()
		p.ahead.saved(l.readTo)
		s.mayHaveMore, s.counts, s.began = false, stepCounts{}, time.Now()
		if err := s.deliver(ctx, now, s.beginLeases()); err != nil {
			return Peeked{}, err
		}
	}
	found := Peeked{Next: r.deliveries, Searching: s.mayHaveMore && len(r.deliveries) < limit}
	*bytes -= r.bytes
	for _, d := range found.Next {
		leases = slices.DeleteFunc(leases, func(le *lease) bool { return le.id == d.Event.ID })
	}
	err := g.peekWaiting(ctx, p, &found, leases, limit, bytes)
	return found, err
}

// peekWaiting adds the events that are in flight and those that wait for a retry.
func (g *Groups) peekWaiting(ctx context.Context, p *partition, found *Peeked, leases []*lease, limit int, bytes *int) error {
	slices.SortFunc(leases, func(a, b *lease) int { return cmp.Compare(a.position, b.position) })
	leases = leases[:min(limit, len(leases))]
	for _, le := range leases {
		found.InFlight = append(found.InFlight, domain.Delivery{
			Event:   domain.Event{ID: le.id, Stream: le.stream, Version: le.version, Position: le.position, Type: le.eventType},
			Attempt: le.attempt, Base: le.base, Replays: le.replays, Partition: p.number, AckDeadline: time.UnixMicro(le.deadline).UTC(),
		})
	}
	for _, retry := range p.ledger.retries {
		found.Retrying = append(found.Retrying, WaitingRetry{Retry: *retry, Event: domain.Event{
			ID: retry.EventID, Stream: retry.Stream, Version: retry.Version, Position: retry.Position,
		}})
	}
	slices.SortFunc(found.Retrying, byDue)
	found.Retrying = found.Retrying[:min(limit, len(found.Retrying))]
	var events []*domain.Event
	for i := range found.InFlight {
		events = append(events, &found.InFlight[i].Event)
	}
	for i := range found.Retrying {
		events = append(events, &found.Retrying[i].Event)
	}
	read, err := g.readEvents(ctx, p.group.tenant, events, bytes)
	if err != nil {
		return err
	}
	// Leave out what is too much for one response.
	found.InFlight = found.InFlight[:min(read, len(found.InFlight))]
	found.Retrying = found.Retrying[:min(max(0, read-len(leases)), len(found.Retrying))]
	return nil
}

// readEvents fills in events by their positions until bytes is used up, and returns how many it processed. Events that
// are no longer in the log stay unchanged.
func (g *Groups) readEvents(ctx context.Context, tenant domain.TenantID, events []*domain.Event, bytes *int) (read int, err error) {
	for read < len(events) && (*bytes > 0 || read == 0) {
		part := events[read:min(read+peekRead, len(events))]
		positions := make([]int64, len(part))
		for i, e := range part {
			positions[i] = e.Position
		}
		found, err := g.config.Events.ReadPositions(ctx, tenant, positions)
		if err != nil {
			return read, err
		}
		for i := range found {
			*bytes -= eventBytes(&found[i])
			for _, e := range part {
				if e.Position == found[i].Position {
					*e = found[i]
				}
			}
		}
		read += len(part)
	}
	return read, nil
}

// passOver makes a partition look for its next event in the log until the given time.
func (g *Groups) passOver(ctx context.Context, gr *group, number int, until time.Time) error {
	for time.Now().Before(until) {
		due, err := g.partition(gr, number).requestDue(ctx)
		if err != nil || !due.searching {
			return err
		}
	}
	return nil
}
