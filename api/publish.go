package api

import (
	"context"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/domain"
)

// publish is POST /v1/publish. It does not use the generated code, for the same reason as appendToStream.
func (s *Server) publish(c echo.Context, caller access.Caller) error {
	request := c.Request()
	if err := noExpectation(request.Header, "publishing does not check versions. To expect a version, append: POST /v1/streams/{streamId}/events"); err != nil {
		return err
	}
	key, err := idempotencyKey(request.Header)
	if err != nil {
		return err
	}
	account := s.budgets.bodies.Account(caller.Tenant)
	defer account.Close()
	body, err := s.decoders.ReadBody(request, account)
	if err != nil {
		return err
	}
	var p wire.Publication
	err = s.parseInTurn(request.Context(), caller, body, func() (err error) {
		p, err = wire.PublicationOf(request, body)
		return err
	})
	if err != nil {
		return err
	}
	if err := account.Grow(int64(len(p.Messages)) * decodedEvent); err != nil {
		return err
	}
	p.Identify(key)
	batch, err := p.Request(caller)
	if err != nil {
		return err
	}
	wire.KeepTrace(request.Header, batch)
	appended, err := s.publishAll(request.Context(), caller, p, batch, "http")
	if err != nil {
		return err
	}
	return writeAppended(c, appended, func(b []byte) []byte {
		b = append(b, `{"position":`...)
		b = strconv.AppendInt(b, appended.Position, 10)
		return append(wire.AppendPublished(append(b, `,"events":`...), appended), '}')
	})
}

// publishAll appends the messages. transport is http or websocket.
func (s *Server) publishAll(ctx context.Context, caller access.Caller, p wire.Publication, batch domain.Append, transport string) (domain.Appended, error) {
	appended, err := s.config.Appends.Append(ctx, caller.Tenant, batch)
	if err != nil {
		return appended, p.InMessage(batch, err)
	}
	if published := s.config.Observer.Published; published != nil && !appended.Duplicate {
		published(transport, len(p.Messages))
	}
	return appended, nil
}
