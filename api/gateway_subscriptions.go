package api

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// gatewaySource is what a subscription of a connection is of: a group, or a part of the log. The methods are not called
// concurrently, but deliver may be called again when it has ended.
type gatewaySource interface {
	// deliver sends events until ctx ends, and returns nil then; an error ends the subscription. What it has begun to send when ctx
	// ends it still sends.
	deliver(ctx context.Context) error
	// close gives back what it holds. It takes no longer than ctx.
	close(ctx context.Context)
}

// gatewaySubscription is what a connection knows by a name that its client has given. It is there while there is a subscription of
// the name, or something waits on its lane, whose jobs are the only ones to touch the rest, until the connection ends.
type gatewaySubscription struct {
	name   string
	lane   *gatewayLane
	source gatewaySource // nil: there is no subscription, not yet or no more
	stop   context.CancelFunc
	done   chan struct{} // closed when the delivering has ended; nil: paused
}

// subscribe is SUBSCRIBE.
func (g *gatewayConnection) subscribe(m *gatewayMessage) error {
	f := &m.fields
	name := f.subscriptionField()
	var open func(ctx context.Context) (gatewaySource, *gatewayAnswer, error)
	var err error
	switch {
	case f.has("group") && f.has("source"):
		err = domain.Errorf(domain.CodeInvalidRequest, "source", "group is there as well; give one of them")
	case f.has("group"):
		open, err = g.groupOf(m, name)
	case f.has("source"):
		open, err = g.feedOf(m, name)
	default:
		f.take("group")
		f.take("source")
		if err = f.end(); err == nil {
			err = domain.Errorf(domain.CodeInvalidRequest, "source", "what of is missing: give group, or source, which is {} for the whole log")
		}
	}
	if err != nil {
		return err
	}
	return g.onLane(m, name, true, func(ctx context.Context, sub *gatewaySubscription) error {
		if sub.source != nil {
			return domain.Errorf(domain.CodeAlreadyExists, "subscription", "this connection has a subscription %q; choose another name, or end that first", clip(name, maxSubscriptionName))
		}
		source, answer, err := open(ctx)
		if err != nil {
			return err
		}
		sub.source = source
		g.answer(answer.end())
		g.start(sub)
		return nil
	})
}

// unsubscribe is UNSUBSCRIBE.
func (g *gatewayConnection) unsubscribe(m *gatewayMessage) error {
	return g.onSubscription(m, func(_ context.Context, sub *gatewaySubscription) error {
		g.leave(sub)
		return nil
	})
}

// pause is PAUSE.
func (g *gatewayConnection) pause(m *gatewayMessage) error {
	return g.onSubscription(m, func(_ context.Context, sub *gatewaySubscription) error {
		sub.halt()
		return nil
	})
}

// resume is RESUME.
func (g *gatewayConnection) resume(m *gatewayMessage) error {
	return g.onSubscription(m, func(_ context.Context, sub *gatewaySubscription) error {
		g.start(sub)
		return nil
	})
}

// onSubscription carries out an operation that has no field but the name of its subscription, and answers it.
func (g *gatewayConnection) onSubscription(m *gatewayMessage, do func(context.Context, *gatewaySubscription) error) error {
	name := m.fields.subscriptionField()
	if err := m.fields.end(); err != nil {
		return err
	}
	return g.withSubscription(m, name, func(ctx context.Context, sub *gatewaySubscription) error {
		if err := do(ctx, sub); err != nil {
			return err
		}
		g.answer(answerTo(opOK, m.id).text("subscription", name).end())
		return nil
	})
}

// withSubscription carries something out on the lane of a subscription that is there.
func (g *gatewayConnection) withSubscription(m *gatewayMessage, name string, do func(context.Context, *gatewaySubscription) error) error {
	return g.onLane(m, name, false, func(ctx context.Context, sub *gatewaySubscription) error {
		if sub.source == nil {
			return noSubscription(name)
		}
		return do(ctx, sub)
	})
}

func noSubscription(name string) error {
	return domain.Errorf(domain.CodeNotFound, "subscription", "this connection has no subscription %q", clip(name, maxSubscriptionName))
}

// onLane carries something out on the lane of a name, which is made where it is to begin, and forgets the name where that leaves
// nothing of it.
func (g *gatewayConnection) onLane(m *gatewayMessage, name string, begin bool, do func(context.Context, *gatewaySubscription) error) error {
	// Under one lock: a name that is found is not forgotten before the job is on its lane.
	g.mu.Lock()
	defer g.mu.Unlock()
	sub := g.subscriptions[name]
	switch {
	case sub != nil:
	case !begin:
		return noSubscription(name)
	case len(g.subscriptions) >= gatewaySubscriptions:
		return domain.Errorf(domain.CodeTooManyRequests, "subscription", "a connection has at most %d subscriptions; end one, or open another connection", gatewaySubscriptions)
	default:
		sub = &gatewaySubscription{name: name, lane: g.newLane()}
		g.subscriptions[name] = sub
	}
	return g.add(sub.lane, m, func(ctx context.Context) error {
		defer g.tidy(sub)
		return do(ctx, sub)
	})
}

// tidy forgets a name of which nothing is left. It is called by a job of its lane.
func (g *gatewayConnection) tidy(sub *gatewaySubscription) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sub.source == nil && sub.lane.idle() {
		delete(g.subscriptions, sub.name)
	}
}

// start has a subscription deliver, unless it does.
func (g *gatewayConnection) start(sub *gatewaySubscription) {
	if sub.done != nil {
		return
	}
	source, done := sub.source, make(chan struct{})
	ctx, stop := context.WithCancel(g.alive)
	sub.stop, sub.done = stop, done
	go func() {
		defer close(done)
		err := g.guarded(func() error { return source.deliver(ctx) })
		if err == nil || ctx.Err() != nil {
			return
		}
		g.endSubscription(sub, source, err)
	}()
}

// endSubscription has a subscription ended whose source cannot go on. Where the connection is ending that does it.
func (g *gatewayConnection) endSubscription(sub *gatewaySubscription, source gatewaySource, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	sub.lane.addFirst(gatewayJob{do: func() {
		defer g.tidy(sub)
		if sub.source != source {
			return // it was ended meanwhile
		}
		g.leave(sub)
		g.answer(answerTo(opEnded, "").text("subscription", sub.name).problem(g.problem(cause)).end())
	}})
}

// halt stops the delivering, and returns when it has ended.
func (sub *gatewaySubscription) halt() {
	if sub.done == nil {
		return
	}
	sub.stop()
	<-sub.done
	sub.stop, sub.done = nil, nil
}

// leave ends a subscription. What its group has in flight is put back even where the connection is to end.
func (g *gatewayConnection) leave(sub *gatewaySubscription) {
	sub.halt()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.alive), drainWithin)
	defer cancel()
	sub.source.close(ctx)
	sub.source = nil
}

// leaveAll ends all subscriptions, when no lane works any more.
func (g *gatewayConnection) leaveAll() {
	var leaving sync.WaitGroup
	for _, sub := range g.subscriptions {
		if sub.source != nil {
			leaving.Go(func() {
				if err := g.guarded(func() error { g.leave(sub); return nil }); err != nil {
					g.end(err)
				}
			})
		}
	}
	leaving.Wait()
}

// The pauses between tries of what has failed for a while: a database that does not answer, say.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// passing says whether an error may be gone when the same is tried again later.
func passing(err error) bool {
	e, fault := clientError(err)
	if fault {
		return true // maybe; the log has it
	}
	switch e.Code {
	case domain.CodeUnavailable, domain.CodeOverloaded, domain.CodeOutcomeUnknown, domain.CodeTooManyRequests:
		return true
	}
	return false
}

// rest waits before a further try, longer each time; false: ctx has ended.
func rest(ctx context.Context, pause *time.Duration) bool {
	*pause = min(max(2**pause, firstPause), maxPause)
	timer := time.NewTimer(*pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
