package gateway

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/semaphore"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// receiveWait is how long one receive for a connection waits.
const receiveWait = 20 * time.Second

// connectionEnded is the reason given for events that the client asked more time for and did not answer.
const connectionEnded = "the subscription ended before it was answered"

// groupSource receives from a group for a connection.
//
// Events in flight are counted both for the subscription and for the connection. While the group has no events, a
// receive waits for one event only, so that it reserves little of the connection's limit. When an event arrives,
// further receives ask for the rest.
//
// An event whose last delivery was interrupted is sent when the connection has no other event in flight, and the next
// one follows when it is settled. So if the client dies again, the event is the cause.
type groupSource struct {
	g              *connection
	group          string
	subscribed     string // the client's name for the subscription
	member         domain.GroupMemberID
	joined         bool // the membership belongs to this subscription only
	room           *semaphore.Weighted
	maxInFlight    int
	encoder        wire.DeliveryEncoder // of the delivering goroutine
	stopHeartbeats func()               // nil if there is no member
	isolates       bool                 // the group has an event that must be alone

	mu      sync.Mutex
	leases  map[domain.EventID]*lease
	replace domain.GroupMemberID // the new membership, after the previous one was swept
}

// lease is an event that the client has not answered.
type lease struct {
	attempt int
	sent    bool          // it is on its way to the client
	units   int64         // of connection.sent
	begun   bool          // the client has asked for more time
	length  time.Duration // the lease's initial duration
	expiry  *time.Timer
}

// groupOf reads the fields of a SUBSCRIBE to a group.
func (g *connection) groupOf(m *clientMessage, name string) (func(context.Context) (eventSource, *reply, error), error) {
	f := &m.fields
	source := &groupSource{g: g, subscribed: name, leases: map[domain.EventID]*lease{}}
	source.group = f.text("group", 1, domain.MaxGroupNameBytes)
	source.maxInFlight = f.integer("maxInFlight", 1, maxInFlight, maxInFlight)
	source.encoder.Group, source.encoder.Cloud = source.group, f.cloudFormat()
	if member := f.text("memberId", 0, math.MaxInt); member != "" {
		var err error
		if source.member, err = domain.ParseGroupMemberID(member); err != nil {
			f.fail("memberId", "%s", err)
		}
	}
	if err := f.end(); err != nil {
		return nil, err
	}
	if err := domain.CheckGroupName("group", source.group); err != nil {
		return nil, err
	}
	source.room = semaphore.NewWeighted(int64(source.maxInFlight))
	return func(ctx context.Context) (eventSource, *reply, error) {
		if err := source.open(ctx); err != nil {
			return nil, nil, err
		}
		answer := replyTo(opOK, m.id).text("subscription", name)
		if !source.member.IsZero() {
			answer.text("memberId", source.member.String())
		}
		return source, answer, nil
	}, nil
}

func (s *groupSource) open(ctx context.Context) error {
	g := s.g
	groups := g.config.Groups
	if err := g.caller.AllowGroup(ctx, g.config.Groups, s.group, auth.ScopeEventsConsume); err != nil {
		return ofGroup("group", err)
	}
	if err := access.RefuseServiceGroup("group", s.group); err != nil {
		return err
	}
	group, err := groups.Get(ctx, g.caller.Tenant, s.group)
	if err != nil {
		return ofGroup("group", err)
	}
	switch {
	case group.GroupDefinition.Partitions == 0 && !s.member.IsZero():
		return domain.Errorf(domain.CodeInvalidRequest, "memberId", "group %q has no partitions, and so no members; leave memberId out", s.group)
	case group.GroupDefinition.Partitions == 0:
		return nil
	case s.member.IsZero():
		member, err := groups.Join(ctx, g.caller.Tenant, s.group, s.label())
		if err != nil {
			return err
		}
		s.member, s.joined = member.ID, true
	default:
		if _, err := groups.Heartbeat(ctx, g.caller.Tenant, s.group, s.member); err != nil {
			return ofGroup("memberId", err)
		}
	}
	s.startHeartbeats()
	return nil
}

// ofGroup adds the place in the message that names a group or a member, if the error means that it does not exist or
// that the key may not use it.
func ofGroup(where string, err error) error {
	if domain.IsCode(err, domain.CodeNotFound) || domain.IsCode(err, domain.CodeForbidden) {
		return problem.At(where, err)
	}
	return err
}

func (s *groupSource) label() string { return "WebSocket " + s.g.requestID }

// startHeartbeats sends the member's heartbeats until the subscription ends, even while it is paused or its client has
// many events to answer.
func (s *groupSource) startHeartbeats() {
	ctx, cancel := context.WithCancel(s.g.alive)
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(domain.GroupHeartbeat)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := s.g.guarded(func() error { s.heartbeat(ctx); return nil }); err != nil {
				s.g.end(err)
				return
			}
		}
	})
	s.stopHeartbeats = func() {
		cancel()
		beating.Wait()
	}
}

// heartbeat sends a heartbeat. It replaces the subscription's own membership after that was swept. Any other error
// either returns in the next receive or is temporary.
func (s *groupSource) heartbeat(ctx context.Context) {
	groups, tenant := s.g.config.Groups, s.g.caller.Tenant
	_, err := groups.Heartbeat(ctx, tenant, s.group, s.memberID())
	if !s.joined || !domain.IsCode(err, domain.CodeNotFound) {
		return
	}
	member, err := groups.Join(ctx, tenant, s.group, s.label())
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace = member.ID
}

// memberID returns the id of the member that receives now.
func (s *groupSource) memberID() domain.GroupMemberID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.replace.IsZero() {
		return s.replace
	}
	return s.member
}

// deliver receives events and sends them, until ctx ends.
func (s *groupSource) deliver(ctx context.Context) error {
	var wait, pause time.Duration
	for {
		got, err := s.receive(ctx, wait)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			pause, wait = 0, receiveWait
			if got {
				wait = 0
			}
			continue
		case s.joined && domain.IsCode(err, domain.CodeNotFound) && s.rejoin(ctx):
			continue
		case !isTemporary(err):
			return err
		}
		s.g.problem(err)
		if !pauseBeforeRetry(ctx, &pause) {
			return nil
		}
	}
}

// rejoin reports whether it has replaced a membership that no longer existed.
func (s *groupSource) rejoin(ctx context.Context) bool {
	before := s.memberID()
	s.heartbeat(ctx)
	return s.memberID() != before
}

// receive takes events from the group and sends them. It takes as many as may be in flight, but only one if it has to
// wait. It reports whether there were any.
func (s *groupSource) receive(ctx context.Context, wait time.Duration) (bool, error) {
	most, units := s.maxInFlight, int64(1)
	if wait > 0 {
		most = 1
	}
	if s.isolates {
		most, units, wait = 1, maxInFlight, 0
	}
	batch, err := s.reserveRoom(ctx, most)
	if err != nil {
		return false, err
	}
	// While an event must be alone, nothing is received.
	if err := s.g.sent.Acquire(ctx, units); err != nil {
		s.releaseRoom(batch)
		return false, err
	}
	if !s.isolates {
		s.g.sent.Release(units) // do not hold it while waiting
		units = 0
	}
	deliveries, err := s.g.config.Groups.Receive(ctx, s.g.caller.Tenant, s.group, group.Receive{Batch: batch, Wait: wait, Member: s.memberID()})
	s.releaseRoom(batch - len(deliveries))
	if !s.mayFly(deliveries, units) {
		s.releaseRoom(len(deliveries))
		s.postpone(ctx, deliveries)
		return true, nil
	}
	s.isolates = false
	if err != nil {
		return false, err
	}
	for i := range deliveries {
		s.lease(&deliveries[i])
	}
	if err := s.g.caller.AllowDeliveries(deliveries); err != nil {
		return false, err
	}
	began := time.Now()
	for i := range deliveries {
		d := &deliveries[i]
		message := replyTo(opEvent, "").text("subscription", s.subscribed).b
		message = append(message, ',')
		begin := len(message)
		message = s.encoder.Delivery(message, d, !s.memberID().IsZero())
		message = append(message[:begin], message[begin+1:]...) // without the opening of the object
		// The send continues after ctx ends: events leased for a subscription are sent even if it is paused meanwhile.
		// An event whose lease expires before the client reads it is not sent, and counts as an unanswered attempt.
		if err := s.g.sendQueue.sendBefore(s.g.alive, d.Expires, message); err != nil {
			return false, err
		}
		s.markSent(d)
	}
	s.g.config.Delivered(len(deliveries))
	if spans := s.g.config.Deliveries; spans != nil {
		spans.Record(s.g.caller.Tenant, len(deliveries), func(i int) json.RawMessage { return deliveries[i].Event.Metadata }, began,
			tracing.Transport(wire.ByWebSocket), attribute.String("manifold.subscription", s.subscribed), attribute.String("manifold.group", s.group))
	}
	return len(deliveries) > 0, nil
}

// unitsOf returns what a delivery takes of connection.sent.
func unitsOf(d *domain.Delivery) int64 {
	if d.Alone {
		return maxInFlight
	}
	return 1
}

// mayFly takes what deliveries need of connection.sent, given that the receive holds held of it. If that is not free,
// it returns false and takes nothing.
func (s *groupSource) mayFly(deliveries []domain.Delivery, held int64) bool {
	var needed int64
	for i := range deliveries {
		needed += unitsOf(&deliveries[i])
	}
	if held >= needed {
		s.g.sent.Release(held - needed)
		return true
	}
	return s.g.sent.TryAcquire(needed - held)
}

// postpone returns deliveries to the group: either one must be alone and the connection has others in flight, or
// another one must be.
func (s *groupSource) postpone(ctx context.Context, deliveries []domain.Delivery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWithin)
	defer cancel()
	groups, tenant := s.g.config.Groups, s.g.caller.Tenant
	var err error
	if s.isolates = deliveries[0].Alone; s.isolates {
		_, err = groups.Interrupt(ctx, tenant, s.group, domain.AttemptsOf(deliveries), false)
	} else {
		_, err = groups.GiveBack(ctx, tenant, s.group, domain.AttemptsOf(deliveries))
	}
	s.logReturnError(err)
}

// reserveRoom reserves room for at least one event, waiting if necessary, and for at most most events.
func (s *groupSource) reserveRoom(ctx context.Context, most int) (int, error) {
	if err := s.room.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	if err := s.g.inFlight.Acquire(ctx, 1); err != nil {
		s.room.Release(1)
		return 0, err
	}
	taken := 1
	for step := most - 1; step > 0; {
		switch {
		case taken+step > most || !s.room.TryAcquire(int64(step)):
			step /= 2
		case !s.g.inFlight.TryAcquire(int64(step)):
			s.room.Release(int64(step))
			step /= 2
		default:
			taken += step
		}
	}
	return taken, nil
}

func (s *groupSource) releaseRoom(events int) {
	s.room.Release(int64(events))
	s.g.inFlight.Release(int64(events))
}

// lease records a delivery for which room is reserved. It frees the room when the lease expires.
func (s *groupSource) lease(d *domain.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(d.Event.ID) // a lease of an earlier attempt
	length := max(time.Until(d.Expires), 0)
	lease := &lease{attempt: d.Attempt, length: length, units: unitsOf(d)}
	lease.expiry = time.AfterFunc(length, func() { s.settled(domain.AttemptOf(d)) })
	s.leases[d.Event.ID] = lease
}

// markSent records that a delivery is on its way to the client.
func (s *groupSource) markSent(d *domain.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lease := s.leases[d.Event.ID]; lease != nil && lease.attempt == d.Attempt {
		lease.sent = true
		s.g.unsettled.Add(1)
	}
}

// settled frees the room of a delivery that is no longer in flight.
func (s *groupSource) settled(a domain.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lease := s.leases[a.EventID]; lease != nil && lease.attempt == a.Attempt {
		s.forget(a.EventID)
	}
}

// forget ends a lease, if it exists. The lock is held.
func (s *groupSource) forget(id domain.EventID) {
	if lease := s.leases[id]; lease != nil {
		lease.expiry.Stop()
		delete(s.leases, id)
		s.releaseRoom(1)
		s.g.sent.Release(lease.units)
		if lease.sent {
			s.g.unsettled.Add(-1)
		}
	}
}

// extended extends a lease by a duration, or by its initial duration if by is 0.
func (s *groupSource) extended(a domain.Attempt, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lease := s.leases[a.EventID]; lease != nil && lease.attempt == a.Attempt {
		if by == 0 {
			by = lease.length
		}
		lease.begun = true
		if lease.expiry.Stop() {
			lease.expiry.Reset(by)
		}
	}
}

// close returns unanswered events to the group at once. If the client may have died, its events are interrupted, and
// an event that was alone in flight counts as attempted. Otherwise the end of a connection says nothing about the
// events, and an event counts as attempted only if the client has asked for more time.
func (s *groupSource) close(ctx context.Context, how ending) {
	groups, tenant := s.g.config.Groups, s.g.caller.Tenant
	if s.stopHeartbeats != nil {
		s.stopHeartbeats()
	}
	s.mu.Lock()
	var interrupted, begun, untouched []domain.Attempt
	for id, lease := range s.leases {
		attempt := domain.Attempt{EventID: id, Attempt: lease.attempt}
		switch {
		case how != endedCleanly && lease.sent:
			interrupted = append(interrupted, attempt)
		case lease.begun:
			begun = append(begun, attempt)
		default:
			untouched = append(untouched, attempt)
		}
		s.forget(id)
	}
	s.mu.Unlock()
	if len(interrupted) > 0 {
		_, err := groups.Interrupt(ctx, tenant, s.group, interrupted, how == diedWithOne)
		s.logReturnError(err)
	}
	if len(begun) > 0 {
		_, err := groups.Nack(ctx, tenant, s.group, begun, domain.Nack{Action: domain.NackRetry, Reason: connectionEnded})
		s.logReturnError(err)
	}
	if len(untouched) > 0 {
		_, err := groups.GiveBack(ctx, tenant, s.group, untouched)
		s.logReturnError(err)
	}
	if s.joined {
		if err := groups.Leave(ctx, tenant, s.group, s.memberID()); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
			s.g.problem(err) // the member is swept later
		}
	}
}

// logReturnError logs that events could not be returned. They are redelivered when their lease expires.
func (s *groupSource) logReturnError(err error) {
	if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		s.g.problem(err)
	}
}
