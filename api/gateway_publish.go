package api

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// publish handles PUBLISH. Messages published on one connection are appended in the order in which they arrive.
func (g *gatewayConnection) publish(m *gatewayMessage) error {
	p, err := gatewayPublication(&m.fields)
	if err != nil {
		return err
	}
	batch, err := p.request(g.caller)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.add(g.published, m, func(ctx context.Context) error {
		appended, err := g.server.publishAll(ctx, g.caller, p, batch, "websocket")
		if err != nil {
			return err
		}
		a := answerTo(opOK, m.id).number("position", appended.Position).flag("duplicate", appended.Duplicate)
		a.name("events")
		a.b = appendPublished(a.b, appended)
		g.answer(a.end())
		return nil
	})
}

// gatewayPublication reads the fields of PUBLISH: message or messages, in the format of the body of POST /v1/publish.
// With the format cloudevents they are CloudEvents, and topic and key are separate fields.
func gatewayPublication(f *gatewayFields) (publication, error) {
	one, several := f.take("message"), f.take("messages")
	cloud := f.cloudFormat()
	to := cloudPublication{topicPlace: "topic", keyPlace: "key", topicName: "topic", keyName: "key"}
	if cloud {
		if f.has("topic") {
			topic := f.anyText("topic", math.MaxInt)
			to.topic = &topic
		}
		if f.has("key") {
			key := f.anyText("key", math.MaxInt)
			to.key = &key
		}
	}
	if err := f.end(); err != nil {
		return publication{}, err
	}
	switch {
	case one != nil && several != nil:
		return publication{}, domain.Errorf(domain.CodeInvalidRequest, "messages", "message is there as well; give one of them")
	case one == nil && several == nil:
		return publication{}, domain.Errorf(domain.CodeInvalidRequest, "message", "required: a message, or messages (an array)")
	case several != nil && several[0] != '[':
		return publication{}, domain.Errorf(domain.CodeInvalidRequest, "messages", "it must be an array of messages")
	case cloud:
		return to.read(one, several)
	case one != nil:
		return decodeMessage("message", one)
	}
	return decodePublication(several)
}

// read decodes either one structured CloudEvent, or several.
func (p *cloudPublication) read(one, several json.RawMessage) (publication, error) {
	if err := p.check(); err != nil {
		return publication{}, err
	}
	var came []cloudevents.Event
	var err error
	if one != nil {
		p.place = func(_ int, name string) string { return place("message", name) }
		var event cloudevents.Event
		event, err = cloudevents.Parse(one)
		came = []cloudevents.Event{event}
	} else {
		p.place = func(index int, name string) string { return place("messages["+strconv.Itoa(index)+"]", name) }
		came, err = cloudevents.ParseBatch(several, domain.MaxRequestEvents)
	}
	if err != nil {
		return publication{}, inCloudMessages(one != nil, err)
	}
	return p.of(came)
}

// inCloudMessages converts the place in an error about one CloudEvent, or about a batch, to its place in PUBLISH.
func inCloudMessages(single bool, err error) error {
	e, ok := err.(*domain.Error)
	switch {
	case !ok:
	case single:
		e.Where = place("message", strings.TrimPrefix(e.Where, "body"))
	case e.Where == "body":
		e.Where = "messages"
	default:
		e.Where = "messages" + strings.TrimPrefix(e.Where, "events")
	}
	return err
}
