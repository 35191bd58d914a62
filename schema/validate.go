package schema

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

const (
	// maxSteps limits the evaluation of one request's events, so that it takes some tens of milliseconds.
	maxSteps = 600_000
	// stepsWithoutTurn is how many steps a request takes without waiting for its tenant's turn: about a millisecond.
	stepsWithoutTurn = 20_000
	// warnEvery is the shortest time between two warnings about a tenant's events in the log.
	warnEvery = time.Minute
)

// task is an event to be checked.
type task struct {
	stream, event int
	schema        *Schema
	version       int64
	mode          Mode
}

// result is what the checks of a request have found.
type result struct {
	refused, warned int // events
	violations      []domain.Violation
}

// add adds an event's violations.
func (r *result) add(mode Mode, where string, found []domain.Violation) {
	if mode == ModeEnforce {
		r.refused++
	} else {
		r.warned++
	}
	for _, violation := range found {
		if len(r.violations) < maxViolations {
			violation.Where = where
			r.violations = append(r.violations, violation)
		}
	}
}

// Append appends the events of a request to the log if they fit the schemas of their types, with the tags that these
// derive: see Validate and eventlog.Log.Append. It refuses events for the streams of reports, to which only the service
// appends.
func (s *Schemas) Append(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
	for i := range request.Streams {
		if err := domain.CheckAppendable(eventlog.Place(request, i, -1, "stream"), request.Streams[i].Stream); err != nil {
			return domain.Appended{}, err
		}
	}
	x, err := s.cache.index(ctx, tenant)
	if err != nil {
		return domain.Appended{}, err
	}
	violations, err := s.validate(ctx, tenant, x, request)
	if err != nil {
		return domain.Appended{}, err
	}
	if request, err = s.tagged(ctx, tenant, x, request, false); err != nil {
		return domain.Appended{}, err
	}
	appended, err := s.config.Events.Append(ctx, tenant, request)
	appended.Violations = violations
	return appended, err
}

// Validate checks the events of an append against the schemas of their types, as the rules of their categories say. It
// returns the number of events in categories that only warn. If an event of an enforced category violates its schema,
// the error is domain.CodeSchemaViolation, with up to ten violations. Events that are too costly to check are refused
// with domain.CodeTooCostly, or counted as violations. Whatever the category, Validate also returns the errors of a
// Tagger.
//
// A tenant without rules and derived tags pays for one look-up in memory. An append that repeats existing events is
// never refused.
func (s *Schemas) Validate(ctx context.Context, tenant domain.TenantID, request domain.Append) (warned int, err error) {
	x, err := s.cache.index(ctx, tenant)
	if err != nil {
		return 0, err
	}
	if warned, err = s.validate(ctx, tenant, x, request); err == nil {
		_, err = s.tagged(ctx, tenant, x, request, false)
	}
	return warned, err
}

func (s *Schemas) validate(ctx context.Context, tenant domain.TenantID, x *index, request domain.Append) (warned int, err error) {
	if len(x.rules) == 0 {
		return 0, nil
	}
	var fixed result // violations that need no evaluation
	tasks, err := s.tasks(ctx, tenant, x, request, &fixed)
	if err != nil || len(tasks) == 0 && fixed.refused+fixed.warned == 0 {
		return 0, err
	}
	found, err := evaluateAll(nil, stepsWithoutTurn, tasks, request, fixed)
	if errors.Is(err, errTooCostly) {
		found, err = s.evaluateInTurn(ctx, tenant, tasks, request, fixed)
	}
	if err != nil {
		return 0, err
	}
	if found.refused > 0 {
		if known, err := s.allKnown(ctx, tenant, request); known || err != nil {
			return 0, err
		}
		s.config.Violated(string(ModeEnforce), found.refused)
		return 0, refusal(found)
	}
	if found.warned > 0 {
		s.config.Violated(string(ModeWarn), found.warned)
		if s.cache.mayWarn(x) {
			first := found.violations[0]
			s.config.Log.Warn("events violate their schemas, and were accepted", "tenant", tenant, "events", found.warned,
				"where", first.Where, "pointer", first.Pointer, "rule", first.Rule, "violation", first.Message)
		}
	}
	return found.warned, nil
}

func refusal(found result) error {
	first := found.violations[0]
	text := fmt.Sprintf("%d events violate their schemas: ", found.refused)
	if found.refused == 1 {
		text = "the event violates its schema: "
	}
	e := domain.Errorf(domain.CodeSchemaViolation, first.Where, "%s%s", text, summary(found.violations))
	e.Violations = found.violations
	return e
}

// tasks returns the events to be checked with their schemas. Violations that need no evaluation are added to fixed.
func (s *Schemas) tasks(ctx context.Context, tenant domain.TenantID, x *index, request domain.Append, fixed *result) ([]task, error) {
	var tasks []task
	for i := range request.Streams {
		stream := &request.Streams[i]
		rule, ruled := x.rules[domain.Category(stream.Stream)]
		if !ruled {
			continue
		}
		for j := range stream.Events {
			event := &stream.Events[j]
			of := x.types[event.Type]
			if of == nil {
				if rule.UnknownTypes == RefuseUnknown {
					fixed.add(rule.Mode, eventlog.Place(request, i, j, "type"), []domain.Violation{{
						Rule: "type", Message: fmt.Sprintf("%s has no schema, and the category %s refuses such types", event.Type, rule.Category),
						Fix: "put a schema for the type, or allow unknown types in the category",
					}})
				}
				continue
			}
			number := of.byDefault
			if named, ok := upcasting.NamedVersion(event.Metadata); ok {
				if number = named; number > int64(len(of.versions)) {
					fixed.add(rule.Mode, eventlog.Place(request, i, j, "metadata"), []domain.Violation{{
						Rule: "schemaVersion", Message: fmt.Sprintf("%s has no schema of version %d; the newest is %d", event.Type, named, len(of.versions)),
						Fix: "put the schema of that version first, or name an existing one",
					}})
					continue
				}
			}
			compiled, err := s.cache.schema(ctx, tenant, event.Type, number, of.versions[number-1].revision)
			if err != nil {
				return nil, err
			}
			if compiled != nil {
				tasks = append(tasks, task{i, j, compiled, number, rule.Mode})
			}
		}
	}
	return tasks, nil
}

// evaluateAll evaluates events within a number of steps, and adds to what was found before.
func evaluateAll(meter *expr.Meter, steps int, tasks []task, request domain.Append, found result) (result, error) {
	for _, task := range tasks {
		event := &request.Streams[task.stream].Events[task.event]
		e := &evaluator{left: steps, meter: meter}
		if !e.spend(len(event.Data) / bytesPerStep) {
			return found, errTooCostly
		}
		value, err := parseValue(event.Data)
		if err != nil {
			return found, domain.Errorf(domain.CodeInvalidJSON, eventlog.Place(request, task.stream, task.event, "data"), "%s", err)
		}
		ok, err := e.evaluate(task.schema, value)
		if err != nil {
			return found, err
		}
		if steps = e.left; !ok {
			where := eventlog.Place(request, task.stream, task.event, "data")
			violations := e.found
			for i := range violations {
				violations[i].Message = versioned(violations[i].Message, event.Type, task.version)
			}
			found.add(task.mode, where, violations)
		}
	}
	return found, nil
}

// versioned adds the schema to a message.
func versioned(message, eventType string, version int64) string {
	return fmt.Sprintf("%s (%s, version %d)", message, eventType, version)
}

// evaluateInTurn evaluates events that take longer, in the tenant's turn.
func (s *Schemas) evaluateInTurn(ctx context.Context, tenant domain.TenantID, tasks []task, request domain.Append, fixed result) (found result, err error) {
	const advice = "append fewer or smaller events in one request, or simplify the schema"
	bounded, end, err := s.config.Requests.Begin(ctx, tenant, advice)
	if err != nil {
		return result{}, err
	}
	defer end()
	err = budget.Work(bounded, func() error {
		found, err = evaluateAll(expr.MeterOf(bounded), maxSteps, tasks, request, fixed)
		return err
	})
	if !errors.Is(err, errTooCostly) {
		return found, err
	}
	where := eventlog.Place(request, tasks[0].stream, tasks[0].event, "data")
	message := fmt.Sprintf("checking the request against schemas takes more than %d steps", maxSteps)
	for _, task := range tasks {
		if task.mode == ModeEnforce {
			return result{}, domain.Errorf(domain.CodeTooCostly, "", "%s: %s", message, advice)
		}
	}
	found = fixed
	for range tasks {
		found.add(ModeWarn, where, []domain.Violation{{Rule: "", Message: message, Fix: advice}})
	}
	return found, nil
}

// allKnown reports whether all events of a request are in the log already, so that the append writes nothing.
func (s *Schemas) allKnown(ctx context.Context, tenant domain.TenantID, request domain.Append) (bool, error) {
	var ids []domain.EventID
	for _, stream := range request.Streams {
		for i := range stream.Events {
			if stream.Events[i].ID.IsZero() {
				return false, nil
			}
			ids = append(ids, stream.Events[i].ID)
		}
	}
	there, err := s.config.Events.StreamsOf(ctx, tenant, ids)
	return len(there) == len(ids) && len(ids) > 0, err
}
