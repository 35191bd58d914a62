package client

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Handler handles an event of a group. If it returns nil, the event is acknowledged. After an error the service
// delivers the event again, until the group's maxAttempts; see also ParkEvent, SkipEvent and RetryEvent. An event may
// arrive more than once.
//
// ctx ends when the lease of the event was lost, or when the consumer cannot wait for the handler any longer.
type Handler func(ctx context.Context, delivery Delivery) error

// ConsumeOptions configure a consumer. Fields that are zero have their defaults.
type ConsumeOptions struct {
	Concurrency int           // how many handlers run at the same time; default 10, at most 1,000
	Member      string        // joins a group with partitions as a member, with this label
	StopTimeout time.Duration // how long running handlers may take after the end of the context; default 30 s
	Retry       Retry         // pauses after failed requests

	// OnError is called with errors of handlers (with their event), and of requests that are sent again. It may be
	// called concurrently.
	OnError func(err error, event *Event)
}

// settlement is what becomes of an event that was not acknowledged, as an error of its handler.
type settlement struct {
	action string
	delay  *float64 // seconds
	reason string
}

func (s *settlement) Error() string { return s.action + ": " + s.reason }

// ParkEvent returns an error for handlers: the event becomes a dead letter.
func ParkEvent(reason string) error { return &settlement{action: "park", reason: reason} }

// SkipEvent returns an error for handlers: the event is settled without having been handled.
func SkipEvent(reason string) error { return &settlement{action: "skip", reason: reason} }

// RetryEvent returns an error for handlers: the event is delivered again after a duration, in place of the group's
// back-off.
func RetryEvent(delay time.Duration, reason string) error {
	seconds := delay.Seconds()
	return &settlement{action: "retry", delay: &seconds, reason: reason}
}

const (
	longPoll    = 20 * time.Second       // how long a request waits for events
	heartbeats  = 15 * time.Second       // a member gives a sign of life so often
	renewals    = 200 * time.Millisecond // how often a consumer looks for leases to extend
	gathers     = time.Millisecond       // how long a consumer waits for running handlers before it receives more
	mostAnswers = 1000                   // in a request

	patience        = 30 * time.Second // how long a call may take, with its retries
	renewalPatience = 10 * time.Second // how long an extension may take: other leases wait for it

	shortestLease = time.Second // of the contract's ackTimeout
	longestLease  = time.Hour

	stopReason = "the consumer was stopped"
)

// errStopped ends what does not have to be finished when a consumer stops.
var errStopped = errors.New(stopReason)

// Consume receives events of a group and calls the handler for each, until ctx ends. Then it receives no more, waits
// until running handlers have returned and their events are settled, and returns nil. If the service refuses the
// consumer, for example because the group was removed, it returns the *ProblemError.
//
// While handlers run, their leases are extended. Several consumers may share a group. Events whose handlers have
// returned when the next request for events is sent are acknowledged by it, the others by separate requests.
func (c *Client) Consume(ctx context.Context, group string, handler Handler, options ConsumeOptions) error {
	k := &consumer{
		client: c.withRetries(), once: c.withoutRetries(), group: group, handler: handler, options: options,
		running: make(map[Attempt]*lease), freed: make(chan struct{}, 1), answers: make(chan answer, mostAnswers),
	}
	// Handlers and answers outlive ctx.
	rest, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var answering, background sync.WaitGroup
	answering.Go(func() { k.sendAnswers(rest) })
	background.Go(func() { k.repeat(rest, renewals, k.renew) })
	background.Go(func() { k.repeat(rest, heartbeats, k.heartbeat) })
	err := k.receive(ctx, rest)
	abandoned := make(chan struct{})
	late := time.AfterFunc(cmp.Or(options.StopTimeout, 30*time.Second), func() {
		defer close(abandoned)
		k.abandon()
	})
	k.answerHandled(k.stopGathering())
	k.handlers.Wait()
	if !late.Stop() {
		<-abandoned
	}
	close(k.answers)
	answering.Wait()
	cancel(errStopped)
	background.Wait()
	k.leave(context.WithoutCancel(ctx))
	return err
}

type consumer struct {
	client  *Client
	once    *Client // sends each request once
	group   string
	handler Handler
	options ConsumeOptions

	handlers sync.WaitGroup
	freed    chan struct{} // a handler has ended
	answers  chan answer

	mu        sync.Mutex
	running   map[Attempt]*lease
	gathering bool      // the next request for events is about to be sent, and takes acknowledgements
	handled   []Attempt // those to acknowledge in it
	memberID  string
}

// lease is the right to handle an event, until its deadline.
type lease struct {
	long   time.Duration
	renew  time.Time
	cancel context.CancelCauseFunc
}

// answer settles an event. A nil settlement acknowledges it.
type answer struct {
	attempt Attempt
	as      *settlement
}

// receive receives events until ctx ends, or the service refuses. Handlers get a context from rest.
func (k *consumer) receive(ctx, rest context.Context) error {
	for failures := 1; ctx.Err() == nil; {
		err := k.receiveOnce(ctx, rest)
		if err == nil {
			failures = 1
			continue
		}
		if ctx.Err() != nil {
			break
		}
		var problem *ProblemError
		if errors.As(err, &problem) && problem.permanent() && !k.forgetMember(problem) {
			return err
		}
		k.report(err, nil)
		if sleep(ctx, k.options.Retry.pause(failures)) != nil {
			break
		}
		failures++
	}
	return nil
}

// vacancy waits until a handler may begin, and up to a millisecond longer while others run, so that the next request
// acknowledges all that end in this time. It returns how many may begin, 0 if ctx has ended.
func (k *consumer) vacancy(ctx context.Context) int {
	concurrency := min(1000, cmp.Or(k.options.Concurrency, 10))
	k.mu.Lock()
	k.gathering = true
	k.mu.Unlock()
	var gathered <-chan time.Time
	for late := false; ; {
		k.mu.Lock()
		free := concurrency - len(k.running)
		k.mu.Unlock()
		if free == concurrency || free > 0 && late {
			return free
		}
		if free > 0 && gathered == nil {
			gathered = time.After(gathers)
		}
		select {
		case <-k.freed:
		case <-gathered:
			late = true
		case <-ctx.Done():
			return 0
		}
	}
}

// stopGathering returns the events to acknowledge in the request that is sent now. Events whose handlers return later
// are acknowledged separately.
func (k *consumer) stopGathering() []Attempt {
	k.mu.Lock()
	defer k.mu.Unlock()
	handled := k.handled
	k.handled, k.gathering = nil, false
	return handled
}

// answerHandled acknowledges events separately.
func (k *consumer) answerHandled(handled []Attempt) {
	for _, attempt := range handled {
		k.answers <- answer{attempt, nil}
	}
}

// forgetMember reports whether the error may mean that the member was removed, for its silence. It joins again then.
func (k *consumer) forgetMember(problem *ProblemError) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	removed := k.memberID != "" && problem.Status == http.StatusNotFound
	if removed {
		k.memberID = ""
	}
	return removed
}

func (k *consumer) receiveOnce(ctx, rest context.Context) error {
	member, err := k.member(ctx)
	if err != nil {
		return err
	}
	free := k.vacancy(ctx)
	if free == 0 {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, longPoll+patience)
	defer cancel()
	request := Receive{Batch: free, Wait: longPoll.Seconds(), MemberId: member, Ack: k.stopGathering()}
	client := k.client
	if len(request.Ack) > 0 {
		client = k.once // a limit of receives must not delay acknowledgements: nothing extends their leases
	}
	response, err := client.Receive(call, k.group, request)
	var sent time.Time
	if err == nil {
		sent, _ = http.ParseTime(response.Header.Get("Date"))
	}
	got, err := Read[Deliveries](response, err)
	if err != nil {
		k.answerHandled(request.Ack)
		return err
	}
	if sent.IsZero() {
		sent = time.Now()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gathering = true
	for _, delivery := range got.Deliveries {
		long := leaseLength(delivery.AckDeadline, sent)
		attempt := Attempt{Id: delivery.Event.Id, Attempt: delivery.Attempt}
		handling, end := context.WithCancelCause(rest)
		k.running[attempt] = &lease{long: long, renew: time.Now().Add(long / 2), cancel: end}
		k.handlers.Go(func() { k.handle(handling, delivery, attempt) })
	}
	return nil
}

// leaseLength returns how long a lease lasts. The deadline is by the clock of the service's database, and sent by that
// of its process, in whole seconds, rounded down. These two clocks should agree; the consumer's does not matter. A
// length that no group can have shows that they differ: the lease may be as short as the shortest then.
func leaseLength(deadline, sent time.Time) time.Duration {
	length := deadline.Sub(sent) - time.Second
	if length < shortestLease || length > longestLease {
		return shortestLease
	}
	return length
}

// member returns the id of the consumer as a member of its group, "" if it is none.
func (k *consumer) member(ctx context.Context) (string, error) {
	k.mu.Lock()
	id := k.memberID
	k.mu.Unlock()
	if k.options.Member == "" || id != "" {
		return id, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	joined, err := Read[SubscriptionMember](k.client.JoinSubscription(ctx, k.group, JoinSubscription{Label: k.options.Member}))
	if err == nil {
		k.mu.Lock()
		k.memberID = joined.MemberId
		k.mu.Unlock()
	}
	return joined.MemberId, err
}

func (k *consumer) leave(ctx context.Context) {
	if k.memberID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := Read[struct{}](k.client.LeaveSubscription(ctx, k.group, k.memberID)); err != nil {
		k.report(err, nil)
	}
}

// handle calls the handler for an event, and settles it.
func (k *consumer) handle(ctx context.Context, delivery Delivery, attempt Attempt) {
	err := k.handler(ctx, delivery)
	as, ok := errors.AsType[*settlement](err)
	if err != nil && !ok {
		k.report(err, &delivery.Event)
		as = &settlement{action: "retry", reason: err.Error()}
	}
	k.settle(attempt, as, nil)
}

// settle ends a lease, unless it has ended, and cancels the handler's context with a cause. It answers the event, or
// leaves an acknowledgement to the next request for events.
func (k *consumer) settle(attempt Attempt, as *settlement, cause error) {
	k.mu.Lock()
	held := k.end(attempt, cause)
	later := held && as == nil && k.gathering
	if later {
		k.handled = append(k.handled, attempt)
	}
	k.mu.Unlock()
	if held && !later {
		k.answers <- answer{attempt, as}
	}
}

// end ends a lease. It reports whether the consumer had it. The caller has locked mu.
func (k *consumer) end(attempt Attempt, cause error) bool {
	held, ok := k.running[attempt]
	if !ok {
		return false
	}
	delete(k.running, attempt)
	held.cancel(cause)
	select {
	case k.freed <- struct{}{}:
	default:
	}
	return true
}

// abandon gives back the events of handlers that still run.
func (k *consumer) abandon() {
	k.mu.Lock()
	var late []Attempt
	for attempt := range k.running {
		late = append(late, attempt)
	}
	k.mu.Unlock()
	for _, attempt := range late {
		k.settle(attempt, &settlement{action: "retry", delay: new(float64), reason: stopReason}, errStopped)
	}
}

// sendAnswers sends answers, as many as have collected in one request, until the channel is closed.
func (k *consumer) sendAnswers(ctx context.Context) {
	for first := range k.answers {
		waiting := []answer{first}
		for collected := true; collected && len(waiting) < mostAnswers; {
			select {
			case next, open := <-k.answers:
				if collected = open; open {
					waiting = append(waiting, next)
				}
			default:
				collected = false
			}
		}
		for len(waiting) > 0 {
			as := waiting[0].as
			var ids []Attempt
			var others []answer
			for _, a := range waiting {
				if a.as == as || a.as != nil && as != nil && a.as.equal(as) {
					ids = append(ids, a.attempt)
				} else {
					others = append(others, a)
				}
			}
			waiting = others
			if err := k.send(ctx, ids, as); err != nil {
				k.report(err, nil) // their leases expire, and the events are delivered again
			}
		}
	}
}

func (s *settlement) equal(other *settlement) bool {
	return s.action == other.action && s.reason == other.reason && (s.delay == nil) == (other.delay == nil) &&
		(s.delay == nil || *s.delay == *other.delay)
}

func (k *consumer) send(ctx context.Context, ids []Attempt, as *settlement) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if as == nil {
		_, err := Read[Answers](k.client.AckEvents(ctx, k.group, Attempts{Ids: ids}))
		return err
	}
	reason := strings.ToValidUTF8(as.reason[:min(len(as.reason), 1000)], "")
	nack := Nack{Ids: ids, Action: as.action, Delay: as.delay, Reason: strings.ReplaceAll(reason, "\x00", "")}
	_, err := Read[Answers](k.client.NackEvents(ctx, k.group, nack))
	return err
}

// repeat calls a function at an interval, until ctx ends.
func (k *consumer) repeat(ctx context.Context, interval time.Duration, call func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := call(ctx); err != nil && ctx.Err() == nil {
			k.report(err, nil)
		}
	}
}

// renew extends leases of which half is over.
func (k *consumer) renew(ctx context.Context) error {
	now := time.Now()
	k.mu.Lock()
	var due []Attempt
	for attempt, held := range k.running {
		if now.After(held.renew) {
			held.renew = now.Add(held.long / 2)
			due = append(due, attempt)
		}
	}
	k.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, renewalPatience)
	defer cancel()
	got, err := Read[Answers](k.client.ExtendEvents(ctx, k.group, Extend{Ids: due}))
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, result := range got.Results {
		if result.Outcome != "done" {
			k.end(Attempt{Id: result.Id, Attempt: result.Attempt}, errors.New("the lease was lost: "+result.Outcome))
		}
	}
	return nil
}

// heartbeat sends the member's sign of life.
func (k *consumer) heartbeat(ctx context.Context) error {
	k.mu.Lock()
	id := k.memberID
	k.mu.Unlock()
	if id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := Read[SubscriptionMember](k.client.HeartbeatSubscription(ctx, k.group, id))
	return err
}

func (k *consumer) report(err error, event *Event) {
	if k.options.OnError != nil {
		k.options.OnError(err, event)
	}
}
