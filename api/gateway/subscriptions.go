package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/domain"
)

// eventSource is the source of a subscription's events: a group, or a part of the log. Its methods are not called
// concurrently. deliver may be called again after it has returned.
type eventSource interface {
	// deliver sends events until ctx ends, and then returns nil. It finishes sending what it has begun. An error ends
	// the subscription.
	deliver(ctx context.Context) error
	// close returns unanswered events and frees resources. It takes no longer than ctx.
	close(ctx context.Context, how ending)
}

// subscription is the state for a subscription name that the client has chosen. It exists while there is such a
// subscription or its queue has jobs. Only these jobs access the other fields, until the connection ends.
type subscription struct {
	name   string
	queue  *jobQueue
	source eventSource // nil: there is no subscription
	stop   context.CancelFunc
	done   chan struct{} // closed when delivery has ended; nil: paused
}

// subscribe handles SUBSCRIBE.
func (g *connection) subscribe(m *clientMessage) error {
	f := &m.fields
	name := f.subscriptionField()
	var open func(ctx context.Context) (eventSource, *reply, error)
	var err error
	switch {
	case f.has("group") && f.has("source"):
		err = domain.Errorf(domain.CodeInvalidRequest, "source", "source and group cannot be combined; give one of them")
	case f.has("group"):
		open, err = g.groupOf(m, name)
	case f.has("source"):
		open, err = g.feedOf(m, name)
	default:
		f.field("group")
		f.field("source")
		if err = f.end(); err == nil {
			err = domain.Errorf(domain.CodeInvalidRequest, "source", "nothing to subscribe to: give group, or source, which is {} for the whole log")
		}
	}
	if err != nil {
		return err
	}
	return g.onQueue(m, name, true, func(ctx context.Context, sub *subscription) error {
		if sub.source != nil {
			return domain.Errorf(domain.CodeAlreadyExists, "subscription", "this connection has a subscription %q; choose another name, or end that first", domain.Clip(name, maxSubscriptionName))
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
func (g *connection) unsubscribe(m *clientMessage) error {
	return g.onSubscription(m, func(_ context.Context, sub *subscription) error {
		g.leave(sub)
		return nil
	})
}

// pause handles PAUSE.
func (g *connection) pause(m *clientMessage) error {
	return g.onSubscription(m, func(_ context.Context, sub *subscription) error {
		sub.stopDelivery()
		return nil
	})
}

// resume handles RESUME.
func (g *connection) resume(m *clientMessage) error {
	return g.onSubscription(m, func(_ context.Context, sub *subscription) error {
		g.start(sub)
		return nil
	})
}

// onSubscription runs and answers an operation whose only field is the name of its subscription.
func (g *connection) onSubscription(m *clientMessage, do func(context.Context, *subscription) error) error {
	name := m.fields.subscriptionField()
	if err := m.fields.end(); err != nil {
		return err
	}
	return g.withSubscription(m, name, func(ctx context.Context, sub *subscription) error {
		if err := do(ctx, sub); err != nil {
			return err
		}
		g.answer(replyTo(opOK, m.id).text("subscription", name).end())
		return nil
	})
}

// withSubscription runs do on the job queue of an existing subscription.
func (g *connection) withSubscription(m *clientMessage, name string, do func(context.Context, *subscription) error) error {
	return g.onQueue(m, name, false, func(ctx context.Context, sub *subscription) error {
		if sub.source == nil {
			return noSubscription(name)
		}
		return do(ctx, sub)
	})
}

func noSubscription(name string) error {
	return domain.Errorf(domain.CodeNotFound, "subscription", "this connection has no subscription %q", domain.Clip(name, maxSubscriptionName))
}

// onQueue runs do on the job queue of a name. It creates the queue if begin is set, and deletes the name if nothing of
// it is left afterwards.
func (g *connection) onQueue(m *clientMessage, name string, begin bool, do func(context.Context, *subscription) error) error {
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
	case len(g.subscriptions) >= maxSubscriptions:
		return domain.Errorf(domain.CodeTooManyRequests, "subscription", "a connection has at most %d subscriptions; end one, or open another connection", maxSubscriptions)
	default:
		sub = &subscription{name: name, queue: g.newJobQueue()}
		g.subscriptions[name] = sub
	}
	return g.add(sub.queue, m, func(ctx context.Context) error {
		defer g.deleteIfUnused(sub)
		return do(ctx, sub)
	})
}

// deleteIfUnused deletes a name of which nothing is left. Only a job of its queue may call it.
func (g *connection) deleteIfUnused(sub *subscription) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sub.source == nil && sub.queue.idle() {
		delete(g.subscriptions, sub.name)
	}
}

// start starts delivery unless it is running.
func (g *connection) start(sub *subscription) {
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
func (g *connection) endSubscription(sub *subscription, source eventSource, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	sub.queue.addFirst(queuedJob{do: func() {
		defer g.deleteIfUnused(sub)
		if sub.source != source {
			return // it was ended meanwhile
		}
		g.leave(sub)
		g.answer(replyTo(opEnded, "").text("subscription", sub.name).problem(g.problem(cause)).end())
	}})
}

// stopDelivery stops delivery and returns when it has ended.
func (sub *subscription) stopDelivery() {
	if sub.done == nil {
		return
	}
	sub.stop()
	<-sub.done
	sub.stop, sub.done = nil, nil
}

// leave ends a subscription. It returns unanswered events to the group even if the connection is to close.
func (g *connection) leave(sub *subscription) {
	g.leaveAs(sub, endedCleanly)
}

func (g *connection) leaveAs(sub *subscription, how ending) {
	sub.stopDelivery()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.alive), drainWithin)
	defer cancel()
	sub.source.close(ctx, how)
	sub.source = nil
}

// ending says how a subscription ends.
type ending uint8

const (
	endedCleanly ending = iota // by the client, which is alive, or by the service
	diedWithMany               // the connection broke while the client had several events of groups, or none
	diedWithOne                // the connection broke while the client had one event
)

// leaveAll ends all subscriptions. All job queues must have stopped. broke means that the client may have died.
func (g *connection) leaveAll(broke bool) {
	each := func(do func(*subscription)) {
		var leaving sync.WaitGroup
		for _, sub := range g.subscriptions {
			if sub.source != nil {
				leaving.Go(func() {
					if err := g.guarded(func() error { do(sub); return nil }); err != nil {
						g.end(err)
					}
				})
			}
		}
		leaving.Wait()
	}
	each((*subscription).stopDelivery)
	how := endedCleanly
	switch {
	case broke && g.unsettled.Load() == 1:
		how = diedWithOne
	case broke:
		how = diedWithMany
	}
	each(func(sub *subscription) { g.leaveAs(sub, how) })
}

// The pauses between retries after a temporary failure, such as a database that does not answer.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// isTemporary reports whether a later retry may succeed.
func isTemporary(err error) bool {
	e, fault := problem.Of(err)
	if fault {
		return true // possibly; the log has the error
	}
	switch e.Code {
	case domain.CodeUnavailable, domain.CodeOverloaded, domain.CodeOutcomeUnknown, domain.CodeTooManyRequests:
		return true
	}
	return false
}

// pauseBeforeRetry waits before a retry, longer each time. It returns false if ctx has ended.
func pauseBeforeRetry(ctx context.Context, pause *time.Duration) bool {
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
