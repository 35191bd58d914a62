package gateway

import (
	"context"
	"encoding/json"
	"math"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/domain"
)

// command handles COMMAND. Commands and messages of one connection are appended in the order in which they arrive.
func (g *connection) command(m *clientMessage) error {
	header := g.traceHeader(&m.fields)
	command, err := readCommand(&m.fields)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.add(g.published, m, g.traced(m.op, header, func(ctx context.Context) error {
		command.Metadata = wire.WithTrace(header, command.Metadata)
		outcome, err := g.config.Send(ctx, g.caller, command)
		if err != nil {
			return problem.OfEntry("", err)
		}
		a := replyTo(opOK, m.id)
		a.b = append(append(a.b, ','), wire.AppendOutcome(nil, outcome, command.DryRun)[1:]...)
		g.answer(a.b)
		return nil
	}))
}

func readCommand(f *messageFields) (aggregate.Command, error) {
	command := aggregate.Command{Stream: f.text("stream", 1, math.MaxInt), Name: f.text("command", 1, math.MaxInt), Expected: domain.Any}
	command.Data, command.Metadata = f.members("data"), f.members("metadata")
	if command.Data == nil {
		f.fail("data", "required: an object")
	}
	check := func(err error) {
		if err != nil && f.err == nil {
			f.err = err
		}
	}
	check(domain.CheckStream("stream", command.Stream))
	check(aggregate.CheckCommand("command", command.Name))
	if f.has("expectedVersion") {
		raw := f.field("expectedVersion")
		text := string(raw)
		if raw[0] == '"' {
			text = domain.UnquoteJSON(raw)
		}
		var err error
		command.Expected, err = wire.ParseExpected("expectedVersion", text)
		check(err)
	} else {
		f.field("expectedVersion")
	}
	if command.Key = f.text("idempotencyKey", 0, math.MaxInt); command.Key != "" {
		check(wire.CheckIdempotencyKey("idempotencyKey", command.Key))
	}
	if raw := f.field("minPosition"); raw != nil {
		var err error
		command.MinPosition, err = wire.ParsePosition("minPosition", string(raw))
		check(err)
	}
	switch raw := f.field("dryRun"); string(raw) {
	case "", "false":
	case "true":
		command.DryRun = true
	default:
		f.fail("dryRun", "it must be true or false")
	}
	return command, f.end()
}

// members takes an optional object, as the bytes that came in.
func (f *messageFields) members(name string) json.RawMessage {
	raw := f.field(name)
	if raw != nil && raw[0] != '{' {
		f.fail(name, "it must be an object")
	}
	return raw
}
