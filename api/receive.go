package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// byReceive is the transport of events delivered by a receive, as passed to Observer.Delivered.
const byReceive = "http"

func (s *Server) observeDelivered(transport string, events int) {
	if observe := s.config.Observer.Delivered; observe != nil && events > 0 {
		observe(transport, events)
	}
}

// receive does not use the generated code, since it answers with events that it does not decode. It may wait for a
// while, and meanwhile uses only its goroutine.
func (s *Server) receive(c echo.Context, caller caller) error {
	name, err := pathParam(c, "name")
	if err != nil {
		return err
	}
	request := c.Request()
	wanted, err := receiveOf(request)
	if err != nil {
		return err
	}
	ctx := request.Context()
	if err := s.allowOwnGroup(ctx, caller, name, domain.ScopeEventsConsume); err != nil {
		return err
	}
	// Only a tenant with some room left may start. The size of the delivery is not known before.
	room := fairshare.From(ctx)
	if err := room.Wait(ctx, 1, roomPatience); err != nil {
		return err
	}
	deliveries, searching, err := s.waitForDeliveries(ctx, caller, name, wanted)
	if err != nil {
		return err
	}
	size := 64
	for i := range deliveries {
		size += 400 + len(deliveries[i].Event.Data) + len(deliveries[i].Event.Metadata)
	}
	room.Set(2 * int64(size))
	var encoder deliveryEncoder
	kind, body := "application/json", make([]byte, 0, size)
	if accepts(request, cloudevents.BatchType) {
		kind, body = cloudevents.BatchType, encoder.cloudEvents(body, deliveries, !wanted.Member.IsZero())
	} else {
		body = encoder.deliveries(body, deliveries, !wanted.Member.IsZero(), searching)
	}
	if ctx.Err() != nil { // the client has disconnected
		s.giveBack(ctx, caller, name, deliveries)
		return context.Cause(ctx)
	}
	if now := time.Now(); slices.ContainsFunc(deliveries, func(d domain.Delivery) bool { return !now.Before(d.Expires) }) {
		s.giveBack(ctx, caller, name, deliveries)
		return domain.Errorf(domain.CodeUnavailable, "", "the group's ackTimeout expired before the events were sent; try again")
	}
	response := c.Response()
	response.Header().Set("Cache-Control", "no-store")
	response.Header().Set("Content-Type", kind)
	if searching {
		response.Header().Set(headerSearching, "true")
	}
	response.WriteHeader(http.StatusOK)
	if _, err := response.Write(body); err != nil {
		s.giveBack(ctx, caller, name, deliveries) // it has disconnected, so it has at most a part of the answer
		return nil
	}
	s.observeDelivered(byReceive, len(deliveries))
	return nil
}

// receiveOf reads the body, which is already checked against the contract.
func receiveOf(request *http.Request) (group.Receive, error) {
	var body openapi.Receive
	if err := json.NewDecoder(request.Body).Decode(&body); err != nil && !errors.Is(err, io.EOF) { // the body is optional
		return group.Receive{}, domain.Errorf(domain.CodeInvalidRequest, "body", "%s", err)
	}
	wanted := group.Receive{Batch: body.Batch, Wait: seconds(body.Wait), Search: receiveSearch}
	if body.MemberId != "" {
		var err error
		if wanted.Member, err = domain.ParseGroupMemberID(body.MemberId); err != nil {
			return wanted, domain.Errorf(domain.CodeInvalidRequest, "memberId", "%s", err)
		}
	}
	return wanted, nil
}

// receiveSearch is how long a receive without a wait time searches for an event, if it has to skip very many others.
const receiveSearch = 2 * time.Second

// headerSearching carries the field searching for a batch of CloudEvents, which has no place for it in the body.
const headerSearching = "Manifold-Searching"

// waitForDeliveries waits for events. It returns none, early, when the process is about to stop. searching means that
// it is unknown whether an event is due.
func (s *Server) waitForDeliveries(
	ctx context.Context, caller caller, name string, wanted group.Receive,
) (deliveries []domain.Delivery, searching bool, err error) {
	begin := time.Now()
	waiting, release := s.untilStop(ctx)
	defer release()
	received, err := s.config.Groups.Poll(waiting, caller.tenant, name, wanted)
	if err != nil {
		if errors.Is(context.Cause(waiting), errStopping) {
			return nil, true, nil
		}
		return nil, false, err
	}
	deliveries = received.Deliveries
	// A caller whose key was revoked gets no events. What was leased for it is due again at once.
	if time.Since(begin) >= s.recheck {
		if _, err := s.config.Keys.Again(ctx, caller.credential); isRefusal(err) {
			s.giveBack(ctx, caller, name, deliveries)
			return nil, false, err
		}
	}
	if err := caller.allowDeliveries(deliveries); err != nil {
		s.giveBack(ctx, caller, name, deliveries)
		return nil, false, err
	}
	return deliveries, received.Searching, nil
}

// giveBackWithin limits the time to return events.
const giveBackWithin = 5 * time.Second

// giveBack makes events due again at once if their answer has not reached the client. Their attempts do not count. If
// giveBack fails, they are redelivered when their lease expires. ctx may have ended.
func (s *Server) giveBack(ctx context.Context, caller caller, name string, deliveries []domain.Delivery) {
	if len(deliveries) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	attempts := make([]domain.Attempt, len(deliveries))
	for i := range deliveries {
		attempts[i] = domain.Attempt{EventID: deliveries[i].Event.ID, Attempt: deliveries[i].Attempt}
	}
	if _, err := s.config.Groups.GiveBack(ctx, caller.tenant, name, attempts); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		s.log.Warn("undelivered events could not be returned to their group; they are redelivered when their lease expires",
			"tenant", caller.tenant.String(), "group", name, "error", err)
	}
}

// allowDeliveries returns an error for events that the caller may not consume. The group's selection may have changed
// since it was checked.
func (c caller) allowDeliveries(deliveries []domain.Delivery) error {
	if c.allow("", domain.ScopeEventsConsume) == nil {
		return nil
	}
	for i := range deliveries {
		if err := c.allow(domain.Category(deliveries[i].Event.Stream), domain.ScopeEventsConsume); err != nil {
			return err
		}
	}
	return nil
}

// deliveryEncoder writes deliveries as JSON, as eventEncoder writes their events. It is for one goroutine.
type deliveryEncoder struct {
	cloud    bool // events are structured CloudEvents
	events   eventEncoder
	deadline time.Time // shared by the deliveries of one receive
	text     []byte
}

// deliveries appends the whole answer of a receive. partitions means that the group has partitions.
func (e *deliveryEncoder) deliveries(b []byte, all []domain.Delivery, partitions, searching bool) []byte {
	b = append(b, `{"deliveries":[`...)
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = e.delivery(b, &all[i], partitions)
	}
	if searching {
		return append(b, `],"searching":true}`+"\n"...)
	}
	return append(b, "]}\n"...)
}

// cloudEvents appends the whole answer as a batch of CloudEvents, with the fields of the deliveries as extensions.
func (e *deliveryEncoder) cloudEvents(b []byte, all []domain.Delivery, partitions bool) []byte {
	b = append(b, '[')
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		d := &all[i]
		b = e.events.cloudEvent(b, &d.Event)
		b = b[:len(b)-1] // reopens the object
		b = append(b, `,"`+cloudevents.ExtensionAttempt+`":`...)
		b = strconv.AppendInt(b, int64(d.Attempt), 10)
		b = append(b, `,"`+cloudevents.ExtensionAckDeadline+`":"`...)
		b = domain.AppendTime(b, d.AckDeadline)
		b = append(b, '"')
		if partitions {
			b = append(b, `,"`+cloudevents.ExtensionPartition+`":`...)
			b = strconv.AppendInt(b, int64(d.Partition), 10)
		}
		if d.Replays > 0 {
			b = append(b, `,"`+cloudevents.ExtensionReplays+`":`...)
			b = strconv.AppendInt(b, int64(d.Replays), 10)
		}
		if d.Gap != nil {
			b = append(b, `,"`+cloudevents.ExtensionRemovedTo+`":"`...)
			b = append(strconv.AppendInt(b, d.Gap.To, 10), '"')
		}
		b = append(b, '}')
	}
	return append(b, "]\n"...)
}

func (e *deliveryEncoder) delivery(b []byte, d *domain.Delivery, partitions bool) []byte {
	b = append(b, `{"event":`...)
	if e.cloud {
		b = e.events.cloudEvent(b, &d.Event)
	} else {
		b = e.events.event(b, &d.Event)
	}
	b = append(b, `,"attempt":`...)
	b = strconv.AppendInt(b, int64(d.Attempt), 10)
	if e.text == nil || !d.AckDeadline.Equal(e.deadline) {
		e.deadline = d.AckDeadline
		e.text = append(e.text[:0], `,"ackDeadline":"`...)
		e.text = domain.AppendTime(e.text, d.AckDeadline)
		e.text = append(e.text, '"')
	}
	b = append(b, e.text...)
	if partitions {
		b = append(b, `,"partition":`...)
		b = strconv.AppendInt(b, int64(d.Partition), 10)
	}
	if d.Replays > 0 {
		b = append(b, `,"replays":`...)
		b = strconv.AppendInt(b, int64(d.Replays), 10)
	}
	if d.Gap != nil {
		b = appendGap(append(b, `,"gap":`...), d.Gap)
	}
	return append(b, '}')
}
