package group

import (
	"context"
	"errors"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Due says when a group has something to deliver even if its log does not grow.
type Due struct {
	Now bool      // something is or may be due; a receive finds out
	At  time.Time // otherwise: when something becomes due, by this process's clock; zero: never

	searching bool // the log was not read to its end, and nothing new was found so far
}

// Due returns when an event of a group becomes due: after its retry delay or the group's delay, or when a lease
// expires. A consumer that received nothing may sleep until then, or until the log grows or the group changes. New
// events after the bound of the last receive in this process do not count. Nothing is due in a paused group. Due reads
// the log as a receive does, but leases nothing.
func (g *Groups) Due(ctx context.Context, tenant domain.TenantID, name string) (Due, error) {
	for {
		gr, err := g.use(ctx, tenant, name)
		if err != nil {
			return Due{}, err
		}
		all, err := g.due(ctx, gr)
		if !errors.Is(err, errDropped) {
			return all, err
		}
	}
}

// due implements Due for a group that is in use.
func (g *Groups) due(ctx context.Context, gr *group) (all Due, err error) {
	for number := range max(1, gr.known.Load().Partitions) {
		one, err := g.partition(gr, number).requestDue(ctx)
		if err != nil {
			return Due{}, err
		}
		all.Now = all.Now || one.Now
		if all.At.IsZero() || !one.At.IsZero() && one.At.Before(all.At) {
			all.At = one.At
		}
	}
	return all, nil
}

// dueRequest is a request to a partition for when something is due.
type dueRequest struct {
	done chan struct{} // closed when answered
	due  Due
	err  error
}

func (p *partition) requestDue(ctx context.Context) (Due, error) {
	ask := &dueRequest{done: make(chan struct{})}
	p.mu.Lock()
	switch {
	case p.dropped():
		p.mu.Unlock()
		return Due{}, errDropped
	case len(p.dueRequests) >= maxWaiting:
		p.mu.Unlock()
		return Due{}, domain.Errorf(domain.CodeTooManyRequests, "", "too many ask this group when something is due; try again later")
	}
	p.dueRequests = append(p.dueRequests, ask)
	p.start()
	p.mu.Unlock()
	select {
	case <-ask.done:
		return ask.due, ask.err
	case <-ctx.Done():
		return Due{}, context.Cause(ctx)
	}
}

// findNextNew reads on in the log until it finds a new event to deliver, or the end.
func (s *step) findNextNew(ctx context.Context) error {
	p := s.p
	for p.ahead.next() == nil && time.Since(s.began) < stepTime {
		frontier := p.frontier(p.upTo)
		p.ledger.advanceReadTo(min(p.ahead.scanned, frontier))
		if read, err := p.ahead.readMore(ctx, frontier); err != nil || !read {
			return err
		}
	}
	return nil
}

// nextDue returns when something is due, according to the newest known ledger.
func (p *partition) nextDue() Due {
	l := p.ledger
	if p.row.Group.Paused {
		return Due{}
	}
	now := p.clock.now()
	var due Due
	at := func(micros int64) {
		if here := time.Now().Add(time.UnixMicro(micros).Sub(now)); due.At.IsZero() || here.Before(due.At) {
			due.At = here
		}
		due.Now = due.Now || micros <= now.UnixMicro()
	}
	room := l.inFlight() < p.row.Group.MaxInFlight
	if next := l.nextDue(room); next > 0 {
		at(next)
	}
	if !room || len(l.retries) >= 2*p.row.Group.MaxInFlight {
		return due
	}
	due.Now = due.Now || len(l.freeStreams(1)) > 0
	for i := range l.replays {
		due.Now = due.Now || !l.isHeld(l.replays[i].Stream)
	}
	switch e, frontier := p.ahead.next(), p.frontier(p.upTo); {
	case e == nil:
		due.searching = p.ahead.scanned < frontier
		due.Now = due.Now || due.searching
	case e.Position > frontier:
	default:
		if young := p.endOfDelay(e, now.UnixMicro()); young > 0 {
			at(young)
		} else {
			due.Now = true
		}
	}
	return due
}
