package api

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// gatewaySource is the source of a subscription's events: a group, or a part of the log. Its methods are not called
// concurrently. deliver may be called again after it has returned.
type gatewaySource interface {
	// deliver sends events until ctx ends, and then returns nil. It finishes sending what it has begun. An error ends
	// the subscription.
	deliver(ctx context.Context) error
	// close returns unanswered events and frees resources. It takes no longer than ctx.
	close(ctx context.Context)
}

// gatewaySubscription is the state for a subscription name that the client has chosen. It exists while there is such a
// subscription or its queue has jobs. Only these jobs access the other fields, until the connection ends.
type gatewaySubscription struct {
	name   string
	queue  *gatewayJobQueue
	source gatewaySource // nil: there is no subscription
	stop   context.CancelFunc
	done   chan struct{} // closed when delivery has ended; nil: paused
}

// subscribe handles SUBSCRIBE.
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
			err = domain.Errorf(domain.CodeInvalidRequest, "source", "nothing to subscribe to: give group, or source, which is {} for the whole log")
		}
	}
	if err != nil {
		return err
	}
	return g.onQueue(m, name, true, func(ctx context.Context, sub *gatewaySubscription) error {
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

// unsubscribe handles UNSUBSCRIBE.
func (g *gatewayConnection) unsubscribe(m *gatewayMessage) error {
	return g.onSubscription(m, func(_ context.Context, sub *gatewaySubscription) error {
		g.leave(sub)
		return nil
	})
}

// pause handles PAUSE.
func (g *gatewayConnection) pause(m *gatewayMessage) error {
	return g.onSubscription(m, func(_ context.Context, sub *gatewaySubscription) error {
		sub.halt()
		return nil
	})
}

// resume handles RESUME.
func (g *gatewayConnection) resume(m *gatewayMessage) error {
	return g.onSubscription(m, func(_ context.Context, sub *gatewaySubscription) error {
		g.start(sub)
		return nil
	})
}

// onSubscription runs and answers an operation whose only field is the name of its subscription.
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

// withSubscription runs do on the job queue of an existing subscription.
func (g *gatewayConnection) withSubscription(m *gatewayMessage, name string, do func(context.Context, *gatewaySubscription) error) error {
	return g.onQueue(m, name, false, func(ctx context.Context, sub *gatewaySubscription) error {
		if sub.source == nil {
			return noSubscription(name)
		}
		return do(ctx, sub)
	})
}

func noSubscription(name string) error {
	return domain.Errorf(domain.CodeNotFound, "subscription", "this connection has no subscription %q", clip(name, maxSubscriptionName))
}

// onQueue runs do on the job queue of a name. It creates the queue if begin is set, and deletes the name if nothing of
// it is left afterwards.
func (g *gatewayConnection) onQueue(m *gatewayMessage, name string, begin bool, do func(context.Context, *gatewaySubscription) error) error {
	// One lock for both: a name that was found is not deleted before its job is on the queue.
	g.mu.Lock()
	defer g.mu.Unlock()
	sub := g.subscriptions[name]
	switch {
	case g.ended:
		return nil
	case sub != nil:
	case !begin:
		return noSubscription(name)
	case len(g.subscriptions) >= gatewaySubscriptions:
		return domain.Errorf(domain.CodeTooManyRequests, "subscription", "a connection has at most %d subscriptions; end one, or open another connection", gatewaySubscriptions)
	default:
		sub = &gatewaySubscription{name: name, queue: g.newJobQueue()}
		g.subscriptions[name] = sub
	}
	return g.add(sub.queue, m, func(ctx context.Context) error {
		defer g.tidy(sub)
		return do(ctx, sub)
	})
}

// tidy deletes a name of which nothing is left. Only a job of its queue may call it.
func (g *gatewayConnection) tidy(sub *gatewaySubscription) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sub.source == nil && sub.queue.idle() {
		delete(g.subscriptions, sub.name)
	}
}

// start starts delivery unless it is running.
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

// endSubscription ends a subscription whose source has failed. A closing connection ends its subscriptions itself.
func (g *gatewayConnection) endSubscription(sub *gatewaySubscription, source gatewaySource, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	sub.queue.addFirst(gatewayJob{do: func() {
		defer g.tidy(sub)
		if sub.source != source {
			return // it was ended meanwhile
		}
		g.leave(sub)
		g.answer(answerTo(opEnded, "").text("subscription", sub.name).problem(g.problem(cause)).end())
	}})
}

// halt stops delivery and returns when it has ended.
func (sub *gatewaySubscription) halt() {
	if sub.done == nil {
		return
	}
	sub.stop()
	<-sub.done
	sub.stop, sub.done = nil, nil
}

// leave ends a subscription. It returns unanswered events to the group even if the connection is to close.
func (g *gatewayConnection) leave(sub *gatewaySubscription) {
	sub.halt()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.alive), drainWithin)
	defer cancel()
	sub.source.close(ctx)
	sub.source = nil
}

// leaveAll ends all subscriptions. All job queues must have stopped.
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

// The pauses between retries after a temporary failure, such as a database that does not answer.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// passing reports whether a later retry may succeed.
func passing(err error) bool {
	e, fault := clientError(err)
	if fault {
		return true // possibly; the log has the error
	}
	switch e.Code {
	case domain.CodeUnavailable, domain.CodeOverloaded, domain.CodeOutcomeUnknown, domain.CodeTooManyRequests:
		return true
	}
	return false
}

// rest waits before a retry, longer each time. It returns false if ctx has ended.
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
