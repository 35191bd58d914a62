package api

import (
	"context"
	"encoding/json"

	"github.com/manifold-es/manifold/domain"
)

// publish is PUBLISH. What one connection publishes is appended in the order in which it came.
func (g *gatewayConnection) publish(m *gatewayMessage) error {
	f := &m.fields
	one, several := f.take("message"), f.take("messages")
	if err := f.end(); err != nil {
		return err
	}
	p, err := publishedMessages(one, several)
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

// publishedMessages reads message, or else messages, as the body of POST /v1/publish is read.
func publishedMessages(one, several json.RawMessage) (publication, error) {
	switch {
	case one != nil && several != nil:
		return publication{}, domain.Errorf(domain.CodeInvalidRequest, "messages", "message is there as well; give one of them")
	case one != nil:
		return decodeMessage("message", one)
	case several == nil:
		return publication{}, domain.Errorf(domain.CodeInvalidRequest, "message", "it is needed: the message, or messages, an array of them")
	case several[0] != '[':
		return publication{}, domain.Errorf(domain.CodeInvalidRequest, "messages", "it must be an array of messages")
	}
	return decodePublication(several)
}
