package wire

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// PublicationOf decodes what a request publishes. It is the only place that distinguishes the types of its body.
func PublicationOf(request *http.Request, body []byte) (Publication, error) {
	form, err := CloudFormOf(request.Header)
	if err != nil {
		return Publication{}, err
	}
	if form != NoCloudEvents {
		return form.publication(request, body)
	}
	if request.URL.RawQuery != "" {
		return Publication{}, domain.Errorf(domain.CodeInvalidRequest, "query", "unknown parameter; topic and key belong in each message, and only CloudEvents take them as parameters")
	}
	if err := RequireContentType(request, "application/json"); err != nil {
		return Publication{}, err
	}
	return DecodePublication(body)
}

// Publication is what a request publishes.
type Publication struct {
	Messages []domain.Message
	Single   bool   // a single message instead of a list
	Where    string // the place of the single message; empty: the whole request
	// placeOf returns the place of a message's field, if messages came in another form; nil: the usual place.
	placeOf func(index int, field string) string
}

// Identify gives messages without id an id derived from the idempotency key and their place in the request.
func (p Publication) Identify(key string) {
	if key == "" {
		return
	}
	for i := range p.Messages {
		if message := &p.Messages[i]; message.ID.IsZero() {
			message.ID = domain.DeriveEventID("idempotency", key, "publish", strconv.Itoa(i))
		}
	}
}

// Request returns the append that publishes the messages, if the caller may append to each topic.
func (p Publication) Request(caller access.Caller) (domain.Append, error) {
	batch, err := domain.Publication(p.Messages)
	if err != nil {
		return batch, p.InMessage(batch, err)
	}
	for i := range p.Messages {
		topic := p.Messages[i].Topic
		if i > 0 && topic == p.Messages[i-1].Topic {
			continue
		}
		if err := caller.Allow(topic, auth.ScopeEventsAppend); err != nil {
			return batch, problem.At(p.place(i, "topic"), err)
		}
	}
	return batch, nil
}

// place returns the place of a message's field.
func (p Publication) place(index int, field string) string {
	switch {
	case p.placeOf != nil:
		return p.placeOf(index, field)
	case !p.Single:
		return place(fmt.Sprintf("messages[%d]", index), field)
	case p.Where == "":
		return field
	}
	return place(p.Where, field)
}

// InMessage converts the place in an error of the append to a place in the messages.
func (p Publication) InMessage(batch domain.Append, err error) error {
	e, ok := errors.AsType[*domain.Error](err)
	if !ok {
		return err
	}
	return e.Placed(func(where string) string { return p.placeInMessage(batch, where) })
}

// placeInMessage converts a place in the append to a place in the messages.
func (p Publication) placeInMessage(batch domain.Append, where string) string {
	rest, index := where, 0
	if inMessages, ok := strings.CutPrefix(rest, "messages["); ok {
		if index, rest, ok = indexed(inMessages); !ok {
			return where
		}
	} else {
		if inStreams, ok := strings.CutPrefix(rest, "streams["); ok {
			stream := 0
			if stream, rest, ok = indexed(inStreams); !ok || stream >= len(batch.Streams) {
				return where
			}
			for i := range stream {
				index += len(batch.Streams[i].Events)
			}
		}
		inEvents, ok := strings.CutPrefix(rest, "events[")
		if !ok {
			return where
		}
		event := 0
		if event, rest, ok = indexed(inEvents); !ok {
			return where
		}
		index += event
		for _, name := range [...][2]string{{"data", "payload"}, {"occurredAt", "ts"}} {
			if within, ok := strings.CutPrefix(rest, name[0]); ok {
				rest = name[1] + within
			}
		}
	}
	return p.place(index, rest)
}

// indexed parses "3].id", the text after "events[".
func indexed(text string) (index int, field string, ok bool) {
	number, rest, _ := strings.Cut(text, "]")
	index, err := strconv.Atoi(number)
	return index, strings.TrimPrefix(rest, "."), err == nil && index >= 0
}

// AppendPublished appends the result for each event, in the order of the messages.
func AppendPublished(b []byte, appended domain.Appended) []byte {
	separator := byte('[')
	for _, stream := range appended.Streams {
		for _, event := range stream.Events {
			b = append(b, separator)
			b = event.ID.Append(append(b, `{"id":"`...))
			b = append(b, `","stream":"`...)
			b = append(b, stream.Stream...) // stream names contain nothing to escape
			b = append(b, `","version":`...)
			b = strconv.AppendInt(b, event.Version, 10)
			b = AppendNumber(b, "position", event.Position)
			b = append(b, '}')
			separator = ','
		}
	}
	return append(b, ']')
}
