package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// publish is PUBLISH. What one connection publishes is appended in the order in which it came.
func (g *gatewayConnection) publish(m *gatewayMessage) error {
	f := &m.fields
	topic := f.text("topic", 1, math.MaxInt)
	key := f.text("key", 0, math.MaxInt)
	one, several := f.take("event"), f.take("events")
	if err := f.end(); err != nil {
		return err
	}
	events, err := publishedEvents(one, several)
	if err != nil {
		return err
	}
	request, err := domain.PublishTo(topic, key, events)
	if err != nil {
		return err
	}
	if err := g.caller.allow(topic, domain.ScopeEventsAppend); err != nil {
		return inPlace("topic", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.add(g.published, m, func(ctx context.Context) error {
		appended, err := g.server.config.Log.Append(ctx, g.caller.tenant, request)
		if err != nil {
			return inMessage(err, one != nil)
		}
		a := answerTo(opOK, m.id).number("position", appended.Position).flag("duplicate", appended.Duplicate)
		a.name("events")
		separator := byte('[')
		for _, stream := range appended.Streams {
			for _, event := range stream.Events {
				a.b = appendID(append(append(a.b, separator), `{"id":"`...), event.ID)
				a.b = append(a.b, '"')
				a.text("stream", stream.Stream).number("version", event.Version).number("position", event.Position)
				a.b = append(a.b, '}')
				separator = ','
			}
		}
		a.b = append(a.b, ']')
		g.answer(a.end())
		return nil
	})
}

// inMessage puts the place in the message for the one in the append that was made of it. single: the message has one event, by
// itself.
func inMessage(err error, single bool) error {
	e, ok := errors.AsType[*domain.Error](err)
	if !ok {
		return err
	}
	place := e.Where
	if rest, ok := strings.CutPrefix(place, "streams["); ok { // without a key, each event has a stream of its own
		index, rest, _ := strings.Cut(rest, "]")
		place = "events[" + index + "]" + strings.TrimPrefix(rest, ".events[0]")
	}
	if rest, ok := strings.CutPrefix(place, "events[0]"); ok && single {
		place = "event" + rest
	}
	placed := *e
	placed.Where = place
	return &placed
}

// publishedEvents reads event, or else events, as the bodies of appends are read.
func publishedEvents(one, several json.RawMessage) ([]domain.NewEvent, error) {
	switch {
	case one != nil && several != nil:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "events", "event is there as well; give one of them")
	case one != nil:
		event, err := decodeEvent("event", one)
		return []domain.NewEvent{event}, err
	case several != nil:
		return decodeEvents(several)
	}
	return nil, domain.Errorf(domain.CodeInvalidRequest, "event", "it is needed: the event, or events, an array of them")
}
