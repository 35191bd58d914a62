package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"

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
	params, err := s.commandParams(request)
	if err != nil {
		return err
	}
	if params.explain {
		if err := problem.At("query explain", caller.Allow(category, auth.ScopeEventsRead)); err != nil {
			return err
		}
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
	command := aggregate.Command{Stream: stream, Name: c.Param("command"), Expected: expected, Key: key, DryRun: params.dryRun, Explain: params.explain, MinPosition: params.minPosition}
	err = s.parseInTurn(request.Context(), caller, body, func() (err error) {
		command.Data, command.Metadata, err = wire.DecodeCommand(body)
		return err
	})
	if err != nil {
		return err
	}
	command.Metadata = wire.WithTrace(request.Header, command.Metadata)
	outcome, err := s.decide(request.Context(), caller, command)
	if err != nil {
		return withCondition(conditional, err)
	}
	if outcome.Version > 0 || outcome.State != nil { // else the stream was not read
		c.Response().Header().Set("ETag", etag(outcome.Version))
	}
	return writeJSON(c, append(wire.AppendOutcome(nil, outcome, params.dryRun), '\n'))
}

// decide sends a command on behalf of a caller. The outcome has no state if the caller may not read the events.
func (s *Server) decide(ctx context.Context, caller access.Caller, command aggregate.Command) (aggregate.Outcome, error) {
	command.Allow = func(category string) error { return caller.Allow(category, auth.ScopeCommandsSend) }
	category := domain.Category(command.Stream)
	if err := command.Allow(category); err != nil {
		return aggregate.Outcome{}, err
	}
	outcome, err := s.config.Commands.Send(ctx, caller.Tenant, command)
	if caller.Allow(category, auth.ScopeEventsRead) != nil {
		outcome.State = nil
	}
	return outcome, err
}

func writeJSON(c echo.Context, body []byte) error {
	header := c.Response().Header()
	header["Content-Type"] = []string{"application/json"}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	c.Response().WriteHeader(http.StatusOK)
	_, err := c.Response().Write(body)
	return err
}

// commandsAtOnce is how many commands of one request are decided at the same time.
const commandsAtOnce = 16

// sendCommands is POST /v1/commands. The commands of a stream are sent one after the other, in the order of the
// request.
func (s *Server) sendCommands(c echo.Context, caller access.Caller) error {
	request := c.Request()
	if err := noExpectation(request.Header, "each command of the body has its own expectedVersion; give it there"); err != nil {
		return err
	}
	if len(request.Header["Idempotency-Key"]) > 0 {
		return domain.Errorf(domain.CodeInvalidRequest, "Idempotency-Key", "not supported here: each command of the body has its own idempotencyKey; give it there")
	}
	if err := noQuery(request); err != nil {
		return err
	}
	if err := wire.RequireContentType(request, "application/json"); err != nil {
		return err
	}
	account := s.budgets.bodies.Account(caller.Tenant)
	defer account.Close()
	body, err := s.decoders.ReadBody(request, account)
	if err != nil {
		return err
	}
	var commands []aggregate.Command
	err = s.parseInTurn(request.Context(), caller, body, func() (err error) {
		commands, err = wire.DecodeCommands(body)
		return err
	})
	if err != nil {
		return err
	}
	outcomes, problems := make([]aggregate.Outcome, len(commands)), make([]error, len(commands))
	streams := make(map[string][]int)
	var order []string
	for i := range commands {
		commands[i].Metadata = wire.WithTrace(request.Header, commands[i].Metadata)
		stream := commands[i].Stream
		if streams[stream] == nil {
			order = append(order, stream)
		}
		streams[stream] = append(streams[stream], i)
	}
	var sending sync.WaitGroup
	places := make(chan struct{}, commandsAtOnce)
	for _, stream := range order {
		places <- struct{}{}
		sending.Go(func() {
			defer func() { <-places }()
			for _, i := range streams[stream] {
				problems[i] = problem.Guarded(func() (err error) {
					outcomes[i], err = s.decide(request.Context(), caller, commands[i])
					return err
				})
			}
		})
	}
	sending.Wait()
	b := []byte(`{"outcomes":[`)
	for i, outcome := range outcomes {
		if i > 0 {
			b = append(b, ',')
		}
		if problems[i] != nil {
			b = append(b, s.problemOf(c, problem.OfEntry(fmt.Sprintf("commands[%d].", i), problems[i]))...)
		} else {
			b = wire.AppendOutcome(b, outcome, false)
		}
	}
	return writeJSON(c, append(b, "]}\n"...))
}

// problemOf returns the answer to one command of several that has no outcome.
func (s *Server) problemOf(c echo.Context, err error) []byte {
	known, fault := problem.Of(err)
	requestID := c.Response().Header().Get(problem.HeaderRequestID)
	if fault {
		s.log.Error("a command failed", "requestId", requestID, "error", err)
	}
	text, err := json.Marshal(map[string]any{"problem": problem.Body(known, c.Request(), requestID)})
	if err != nil {
		return []byte(`{"problem":{}}`) // it consists of texts and numbers
	}
	return text
}

// commandParams are the parameters of a command's query.
type commandParams struct {
	dryRun, explain bool
	minPosition     int64 // 0: none
}

func (s *Server) commandParams(request *http.Request) (params commandParams, err error) {
	if request.URL.RawQuery == "" {
		return params, nil
	}
	for name, values := range request.URL.Query() {
		switch {
		case len(values) > 1:
			err = domain.Errorf(domain.CodeInvalidRequest, "query "+name, "given %d times; give it once", len(values))
		case name == "dryRun" || name == "explain":
			if values[0] != "true" && values[0] != "false" {
				err = domain.Errorf(domain.CodeInvalidRequest, "query "+name, "it is true or false")
			} else if name == "dryRun" {
				params.dryRun = values[0] == "true"
			} else {
				params.explain = values[0] == "true"
			}
		case name == "minPosition":
			params.minPosition, err = wire.ParsePosition("query minPosition", values[0])
		default:
			err = domain.Errorf(domain.CodeInvalidRequest, "query "+domain.Clip(name, 60), "unknown parameter; expected dryRun, explain, minPosition")
		}
		if err != nil {
			return commandParams{}, err
		}
	}
	if params.explain && !params.dryRun {
		return commandParams{}, domain.Errorf(domain.CodeInvalidRequest, "query explain", "only a dry run is explained; add dryRun=true")
	}
	return params, nil
}
