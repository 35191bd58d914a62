package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/domain"
)

// publish is POST /v1/publish. It does not use the generated code, for the same reason as appendToStream.
func (s *Server) publish(c echo.Context, caller caller) error {
	request := c.Request()
	if err := noExpectation(request.Header, "publishing does not check versions. To expect a version, append: POST /v1/streams/{streamId}/events"); err != nil {
		return err
	}
	key, err := idempotencyKey(request.Header)
	if err != nil {
		return err
	}
	account := s.budgets.bodies.Account(caller.tenant)
	defer account.Close()
	body, err := s.decoders.readBody(request, account)
	if err != nil {
		return err
	}
	var p publication
	err = s.parseInTurn(request.Context(), caller, body, func() (err error) {
		p, err = publicationOf(request, body)
		return err
	})
	if err != nil {
		return err
	}
	if err := account.Grow(int64(len(p.messages)) * decodedEvent); err != nil {
		return err
	}
	p.identify(key)
	batch, err := p.request(caller)
	if err != nil {
		return err
	}
	keepTrace(request.Header, batch)
	appended, err := s.publishAll(request.Context(), caller, p, batch, "http")
	if err != nil {
		return err
	}
	return writeAppended(c, appended, func(b []byte) []byte {
		b = append(b, `{"position":`...)
		b = strconv.AppendInt(b, appended.Position, 10)
		return append(appendPublished(append(b, `,"events":`...), appended), '}')
	})
}

// publicationOf decodes what a request publishes. It is the only place that distinguishes the types of its body.
func publicationOf(request *http.Request, body []byte) (publication, error) {
	form, err := cloudFormOf(request.Header)
	if err != nil {
		return publication{}, err
	}
	if form != noCloudEvents {
		return form.publication(request, body)
	}
	if request.URL.RawQuery != "" {
		return publication{}, domain.Errorf(domain.CodeInvalidRequest, "query", "there are no parameters here but those of CloudEvents, which have another Content-Type; topic and key stand in each message")
	}
	if err := wantContentType(request, "application/json"); err != nil {
		return publication{}, err
	}
	return decodePublication(body)
}

// publication is what a request publishes.
type publication struct {
	messages []domain.Message
	single   bool   // a single message instead of a list
	where    string // the place of the single message; empty: the whole request
	// placeOf returns the place of a message's field, if messages came in another form; nil: the usual place.
	placeOf func(index int, field string) string
}

// identify gives messages without id an id derived from the idempotency key and their place in the request.
func (p publication) identify(key string) {
	if key == "" {
		return
	}
	for i := range p.messages {
		if message := &p.messages[i]; message.ID.IsZero() {
			message.ID = domain.DeriveEventID("idempotency", key, "publish", strconv.Itoa(i))
		}
	}
}

// request returns the append that publishes the messages, if the caller may append to each topic.
func (p publication) request(caller caller) (domain.Append, error) {
	batch, err := domain.Publication(p.messages)
	if err != nil {
		return batch, p.inMessage(batch, err)
	}
	for i := range p.messages {
		topic := p.messages[i].Topic
		if i > 0 && topic == p.messages[i-1].Topic {
			continue
		}
		if err := caller.allow(topic, domain.ScopeEventsAppend); err != nil {
			return batch, inPlace(p.place(i, "topic"), err)
		}
	}
	return batch, nil
}

// publishAll appends the messages. transport is http or websocket.
func (s *Server) publishAll(ctx context.Context, caller caller, p publication, batch domain.Append, transport string) (domain.Appended, error) {
	appended, err := s.config.Log.Append(ctx, caller.tenant, batch)
	if err != nil {
		return appended, p.inMessage(batch, err)
	}
	if published := s.config.Observer.Published; published != nil && !appended.Duplicate {
		published(transport, len(p.messages))
	}
	return appended, nil
}

// place returns the place of a message's field.
func (p publication) place(index int, field string) string {
	switch {
	case p.placeOf != nil:
		return p.placeOf(index, field)
	case !p.single:
		return place(fmt.Sprintf("messages[%d]", index), field)
	case p.where == "":
		return field
	}
	return place(p.where, field)
}

// inMessage converts the place in an error of the append to a place in the messages.
func (p publication) inMessage(batch domain.Append, err error) error {
	e, ok := errors.AsType[*domain.Error](err)
	if !ok {
		return err
	}
	rest, index := e.Where, 0
	if inMessages, ok := strings.CutPrefix(rest, "messages["); ok {
		if index, rest, ok = indexed(inMessages); !ok {
			return err
		}
	} else {
		if inStreams, ok := strings.CutPrefix(rest, "streams["); ok {
			stream := 0
			if stream, rest, ok = indexed(inStreams); !ok || stream >= len(batch.Streams) {
				return err
			}
			for i := range stream {
				index += len(batch.Streams[i].Events)
			}
		}
		inEvents, ok := strings.CutPrefix(rest, "events[")
		if !ok {
			return err
		}
		event := 0
		if event, rest, ok = indexed(inEvents); !ok {
			return err
		}
		index += event
		for _, name := range [...][2]string{{"data", "payload"}, {"occurredAt", "ts"}} {
			if within, ok := strings.CutPrefix(rest, name[0]); ok {
				rest = name[1] + within
			}
		}
	}
	placed := *e
	placed.Where = p.place(index, rest)
	return &placed
}

// indexed parses "3].id", the text after "events[".
func indexed(text string) (index int, field string, ok bool) {
	number, rest, _ := strings.Cut(text, "]")
	index, err := strconv.Atoi(number)
	return index, strings.TrimPrefix(rest, "."), err == nil && index >= 0
}

// appendPublished appends the result for each event, in the order of the messages.
func appendPublished(b []byte, appended domain.Appended) []byte {
	separator := byte('[')
	for _, stream := range appended.Streams {
		for _, event := range stream.Events {
			b = append(b, separator)
			b = event.ID.Append(append(b, `{"id":"`...))
			b = append(b, `","stream":"`...)
			b = append(b, stream.Stream...) // stream names contain nothing to escape
			b = append(b, `","version":`...)
			b = strconv.AppendInt(b, event.Version, 10)
			b = append(b, `,"position":`...)
			b = strconv.AppendInt(b, event.Position, 10)
			b = append(b, '}')
			separator = ','
		}
	}
	return append(b, ']')
}
