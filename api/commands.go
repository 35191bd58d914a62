package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// sendCommand is POST /v1/aggregates/{category}/{id}/commands/{command}. It does not use the generated code, for the
// same reason as appendToStream.
func (s *Server) sendCommand(c echo.Context, caller access.Caller) error {
	request := c.Request()
	category := c.Param("category")
	if err := domain.CheckCategory("path category", category); err != nil {
		return err
	}
	if err := problem.At("path category", caller.Allow(category, auth.ScopeCommandsSend)); err != nil {
		return err
	}
	stream := category + "-" + c.Param("id")
	if err := domain.CheckStream("path id", stream); err != nil {
		return err
	}
	if err := aggregate.CheckCommand("path command", c.Param("command")); err != nil {
		return err
	}
	expected, conditional, err := expectation(request.Header)
	if err != nil {
		return err
	}
	dryRun, minPosition, err := s.commandParams(request)
	if err != nil {
		return err
	}
	if err := wire.RequireContentType(request, "application/json"); err != nil {
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
	command := aggregate.Command{
		Stream: stream, Name: c.Param("command"), Expected: expected, Key: key, DryRun: dryRun,
		Allow: func(category string) error { return caller.Allow(category, auth.ScopeCommandsSend) },
	}
	err = s.parseInTurn(request.Context(), caller, body, func() (err error) {
		command.Data, command.Metadata, err = wire.DecodeCommand(body)
		return err
	})
	if err != nil {
		return err
	}
	command.Metadata = wire.WithTrace(request.Header, command.Metadata)
	if err := s.reached(request.Context(), caller.Tenant, minPosition); err != nil {
		return err
	}
	outcome, err := s.config.Commands.Send(request.Context(), caller.Tenant, command)
	if err != nil {
		return withCondition(conditional, err)
	}
	if caller.Allow(category, auth.ScopeEventsRead) != nil {
		outcome.State = nil
	}
	b := append(appendOutcome(make([]byte, 0, 256+192*len(outcome.Events)+len(outcome.State)), outcome, dryRun), '\n')
	header := c.Response().Header()
	header["Content-Type"] = []string{"application/json"}
	header["Content-Length"] = []string{strconv.Itoa(len(b))}
	header.Set("ETag", etag(outcome.Version))
	c.Response().WriteHeader(http.StatusOK)
	_, err = c.Response().Write(b)
	return err
}

// commandParams reads the parameters of the query.
func (s *Server) commandParams(request *http.Request) (dryRun bool, minPosition int64, err error) {
	if request.URL.RawQuery == "" {
		return false, 0, nil
	}
	for name, values := range request.URL.Query() {
		switch {
		case len(values) > 1:
			err = domain.Errorf(domain.CodeInvalidRequest, "query "+name, "given %d times; give it once", len(values))
		case name == "dryRun" && (values[0] == "true" || values[0] == "false"):
			dryRun = values[0] == "true"
		case name == "dryRun":
			err = domain.Errorf(domain.CodeInvalidRequest, "query dryRun", "it is true or false")
		case name == "minPosition":
			if minPosition, err = strconv.ParseInt(values[0], 10, 64); err != nil || minPosition < 1 {
				err = domain.Errorf(domain.CodeInvalidRequest, "query minPosition", "%q is not a position such as 17", domain.Clip(values[0], 40))
			}
		default:
			err = domain.Errorf(domain.CodeInvalidRequest, "query "+domain.Clip(name, 60), "unknown parameter; expected dryRun, minPosition")
		}
		if err != nil {
			return false, 0, err
		}
	}
	return dryRun, minPosition, nil
}

// reached returns an error if the tenant's log does not have a position (0: none is asked for).
func (s *Server) reached(ctx context.Context, tenant domain.TenantID, position int64) error {
	if position == 0 {
		return nil
	}
	head, err := s.config.Log.Head(ctx, tenant)
	if err == nil && head.Position < position {
		err = domain.Errorf(domain.CodeNotCaughtUp, "query minPosition", "the log ends at position %d", head.Position)
	}
	return err
}

// appendOutcome writes an outcome. Names of streams, types and ids contain nothing to escape.
func appendOutcome(b []byte, outcome aggregate.Outcome, dryRun bool) []byte {
	b = append(b, `{"outcome":"`...)
	b = append(b, outcome.Kind...)
	b = append(b, `","stream":"`...)
	b = append(b, outcome.Stream...)
	b = append(b, `","version":`...)
	b = strconv.AppendInt(b, outcome.Version, 10)
	if outcome.Position > 0 {
		b = wire.AppendNumber(b, "position", outcome.Position)
	}
	b = append(b, `,"events":[`...)
	for i, event := range outcome.Events {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"stream":"`...)
		b = append(b, event.Stream...)
		b = append(b, `","type":"`...)
		b = append(b, event.Type...)
		b = append(b, '"')
		if dryRun {
			b = append(append(b, `,"data":`...), event.Data...)
			if event.Metadata != nil {
				b = append(append(b, `,"metadata":`...), event.Metadata...)
			}
		} else {
			b = append(b, `,"id":"`...)
			b = append(b, event.ID.String()...)
			b = append(b, '"')
			b = wire.AppendNumber(b, "version", event.Version)
			b = wire.AppendNumber(b, "position", event.Position)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	if outcome.State != nil {
		b = append(append(b, `,"state":`...), outcome.State...)
	}
	if outcome.Duplicate {
		b = append(b, `,"duplicate":true`...)
	}
	if r := outcome.Rejected; r != nil {
		b = append(b, `,"rejected":{"rule":`...)
		b = strconv.AppendInt(b, int64(r.Rule), 10)
		b = append(append(b, `,"code":"`...), r.Code...)
		b = append(b, `","message":`...)
		b = append(wire.AppendJSONText(b, r.Message), '}')
	}
	return append(b, '}')
}
