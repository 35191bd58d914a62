package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/socket"
	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
	"github.com/manifold-es/manifold/telemetry/tracing"
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
func (s *Server) receive(c echo.Context, caller access.Caller) error {
	name := c.Param("name")
	request := c.Request()
	wanted, err := receiveOf(request)
	if err != nil {
		return err
	}
	// While it waits, it needs neither the body nor its share of the tenant's room for bodies.
	request.Body.Close() //nolint:errcheck // it is in memory
	request.Body = http.NoBody
	ctx := request.Context()
	if err := caller.AllowOwnGroup(ctx, s.config.Groups, name, auth.ScopeEventsConsume); err != nil {
		return err
	}
	// Only a tenant with some room left may start. The size of the delivery is not known before.
	room := fairshare.From(ctx)
	if err := room.Wait(ctx, 1, transfer.RoomPatience); err != nil {
		return err
	}
	received, err := s.waitForDeliveries(ctx, caller, name, wanted)
	if err != nil {
		return err
	}
	deliveries := received.Deliveries
	began := time.Now()
	size := 64
	for i := range deliveries {
		size += 500 + deliveries[i].Event.Bytes()
	}
	room.Set(2 * int64(size))
	encoder := wire.DeliveryEncoder{Group: name}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	kind, body := "application/json", slices.Grow((*buffer)[:0], size)
	if wire.Accepts(request, cloudevents.BatchType) {
		kind, body = cloudevents.BatchType, encoder.CloudEvents(body, deliveries, !wanted.Member.IsZero())
	} else {
		body = encoder.Deliveries(body, &received, wanted.Ack, !wanted.Member.IsZero())
	}
	if cap(body) <= 4*sendBytes { // do not keep the memory of large events
		*buffer = body
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
	response.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if received.Searching {
		response.Header().Set(headerSearching, "true")
	}
	response.WriteHeader(http.StatusOK)
	if _, err := response.Write(body); err != nil {
		s.giveBack(ctx, caller, name, deliveries) // it has disconnected, so it has at most a part of the answer
		return nil
	}
	s.observeDelivered(byReceive, len(deliveries))
	if s.deliveries != nil {
		s.deliveries.Record(caller.Tenant, len(deliveries), func(i int) json.RawMessage { return deliveries[i].Event.Metadata }, began,
			tracing.Transport(byReceive), attribute.String("manifold.group", name))
	}
	return nil
}

// receiveOf reads the body.
func receiveOf(request *http.Request) (group.Receive, error) {
	body, err := checkedBody(request)
	if err != nil {
		return group.Receive{}, err
	}
	wanted, err := wire.DecodeReceive(body)
	wanted.Search = receiveSearch
	if err == nil && len(wanted.Ack) > 0 && wire.Accepts(request, cloudevents.BatchType) {
		err = domain.Errorf(domain.CodeInvalidRequest, "ack",
			"a batch of CloudEvents cannot report outcomes; acknowledge separately, or accept application/json")
	}
	return wanted, err
}

// receiveSearch is how long a receive without a wait time searches for an event, if it has to skip very many others.
const receiveSearch = 2 * time.Second

// headerSearching carries the field searching for a batch of CloudEvents, which has no place for it in the body.
const headerSearching = "Manifold-Searching"

// waitForDeliveries acknowledges, and waits for events. If the process is about to stop, it returns early and without
// events, and reports that it is still searching, because it is unknown whether an event is due.
func (s *Server) waitForDeliveries(
	ctx context.Context, caller access.Caller, name string, wanted group.Receive,
) (group.Received, error) {
	begin := time.Now()
	waiting, release := s.ending.Until(ctx)
	defer release()
	received, err := s.config.Groups.Poll(waiting, caller.Tenant, name, wanted)
	switch {
	case err == nil:
	case errors.Is(context.Cause(waiting), socket.ErrStopping) && len(received.Outcomes) == len(wanted.Ack):
		return group.Received{Outcomes: received.Outcomes, Searching: true}, nil
	case errors.Is(err, socket.ErrStopping): // nothing was acknowledged
		return group.Received{}, socket.Stopping()
	default:
		return group.Received{}, err
	}
	// A caller whose key was revoked or has expired gets no events. What was leased for it is due again at once.
	if time.Since(begin) >= s.recheck {
		if _, err := s.config.Keys.Refresh(ctx, caller.Credential); problem.IsRefusal(err) {
			s.giveBack(ctx, caller, name, received.Deliveries)
			return group.Received{}, err
		}
	}
	if err := caller.AllowDeliveries(received.Deliveries); err != nil {
		s.giveBack(ctx, caller, name, received.Deliveries)
		return group.Received{}, err
	}
	return received, nil
}

// giveBackWithin limits the time to return events.
const giveBackWithin = 5 * time.Second

// giveBack makes events due again at once if their answer has not reached the client. Their attempts do not count. If
// giveBack fails, they are redelivered when their lease expires. ctx may have ended.
func (s *Server) giveBack(ctx context.Context, caller access.Caller, name string, deliveries []domain.Delivery) {
	if len(deliveries) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	if _, err := s.config.Groups.GiveBack(ctx, caller.Tenant, name, domain.AttemptsOf(deliveries)); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		s.log.Warn("undelivered events could not be returned to their group; they are redelivered when their lease expires",
			"tenant", caller.Tenant.String(), "group", name, "error", err)
	}
}
