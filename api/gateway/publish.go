package gateway

import (
	"context"
	"math"

	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/domain"
)

// publish handles PUBLISH. Messages published on one connection are appended in the order in which they arrive.
func (g *connection) publish(m *clientMessage) error {
	header := g.traceHeader(&m.fields)
	p, err := readPublication(&m.fields)
	if err != nil {
		return err
	}
	batch, err := p.Request(g.caller)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.add(g.published, m, g.traced(m.op, header, func(ctx context.Context) error {
		wire.KeepTrace(header, batch)
		appended, err := g.config.Publish(ctx, g.caller, p, batch)
		if err != nil {
			return err
		}
		a := replyTo(opOK, m.id).number("position", appended.Position).flag("duplicate", appended.Duplicate)
		a.name("events")
		a.b = wire.AppendPublished(a.b, appended)
		g.answer(a.end())
		return nil
	}))
}

// readPublication reads the fields of PUBLISH: message or messages, in the format of the body of POST /v1/publish.
// With the format cloudevents they are CloudEvents, and topic and key are separate fields.
func readPublication(f *messageFields) (wire.Publication, error) {
	one, several := f.field("message"), f.field("messages")
	cloud := f.cloudFormat()
	to := wire.CloudPublication{TopicPlace: "topic", KeyPlace: "key", TopicName: "topic", KeyName: "key"}
	if cloud {
		if f.has("topic") {
			topic := f.anyText("topic", math.MaxInt)
			to.Topic = &topic
		}
		if f.has("key") {
			key := f.anyText("key", math.MaxInt)
			to.Key = &key
		}
	}
	if err := f.end(); err != nil {
		return wire.Publication{}, err
	}
	switch {
	case one != nil && several != nil:
		return wire.Publication{}, domain.Errorf(domain.CodeInvalidRequest, "messages", "message and messages cannot be combined; give one of them")
	case one == nil && several == nil:
		return wire.Publication{}, domain.Errorf(domain.CodeInvalidRequest, "message", "required: a message, or messages (an array)")
	case several != nil && several[0] != '[':
		return wire.Publication{}, domain.Errorf(domain.CodeInvalidRequest, "messages", "it must be an array of messages")
	case cloud:
		return to.Read(one, several)
	case one != nil:
		return wire.DecodeMessage("message", one)
	}
	return wire.DecodePublication(several)
}
