package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// derivation is the expression by which a type's events get tags. It is compiled on first use.
type derivation struct {
	expression string
	compiled   func() (*expr.Tags, error)
}

func newDerivation(expression string) *derivation {
	return &derivation{expression, sync.OnceValues(func() (*expr.Tags, error) { return expr.CompileTags(expression) })}
}

// checkTags compiles an expression for tags within a request; nil and empty ones are valid.
func checkTags(ctx context.Context, expression *string) error {
	if expression == nil || *expression == "" {
		return nil
	}
	return budget.Work(ctx, func() error {
		expr.MeterOf(ctx).SpendSource(len(*expression))
		_, err := expr.CompileTags(*expression)
		if failure, ok := errors.AsType[*expr.CompileError](err); ok {
			return domain.Errorf(domain.CodeInvalidDefinition, "tags", "%s", failure)
		}
		return err
	})
}

// derive returns the tags of an event, which is upcast before. It uses nothing that only an append determines, so the
// result is the same for an event before its append and in the log. It is meaningless if the meter ended it.
func (d *derivation) derive(meter *expr.Meter, upcasters *upcasting.Set, event domain.Event) ([]string, error) {
	compiled, err := d.compiled()
	if err != nil {
		return nil, err // it compiled when it was stored: this release interprets it differently
	}
	// Tags cannot depend on tags. What an upcaster might read besides is not known before the append.
	event = domain.Event{Stream: event.Stream, Type: event.Type, Data: event.Data, Metadata: event.Metadata, OccurredAt: event.OccurredAt}
	if fault := upcasters.UpcastUnrecorded(meter, &event); fault != nil {
		return nil, fault
	}
	return compiled.Eval(expr.NewEvent(&event).WithMeter(meter))
}

const deriveAdvice = "append fewer or smaller events in one request, or simplify the expression for tags"

// Tagger adds to an append the tags that the schemas of its events' types derive, besides those that it gives. It does
// not change its argument, and may be called again for its result. If an event's tags cannot be derived, the error is
// domain.CodeSchemaViolation and names the event, unless all events are in the log already.
type Tagger func(ctx context.Context, request domain.Append) (domain.Append, error)

// Tagger returns the tenant's Tagger; nil if its schemas derive no tags.
func (s *Schemas) Tagger(ctx context.Context, tenant domain.TenantID) (Tagger, error) {
	x, err := s.cache.index(ctx, tenant)
	if err != nil || !x.derives {
		return nil, err
	}
	return func(ctx context.Context, request domain.Append) (domain.Append, error) {
		return s.tagged(ctx, tenant, x, request, false)
	}, nil
}

// tagged adds derived tags to an append. If anyway is true, an event
// whose tags cannot be derived keeps only its given tags.
func (s *Schemas) tagged(ctx context.Context, tenant domain.TenantID, x *index, request domain.Append, anyway bool) (domain.Append, error) {
	if !x.concerns(request) {
		return request, nil
	}
	upcasters, err := s.upcastersOf(ctx, tenant, x)
	if err != nil {
		return domain.Append{}, err
	}
	tagged := request
	err = s.config.Requests.Brief(ctx, tenant, deriveAdvice, func(ctx context.Context) error {
		tagged.Streams = slices.Clone(request.Streams)
		for i := range tagged.Streams {
			stream := &tagged.Streams[i]
			stream.Events = slices.Clone(stream.Events)
			for j := range stream.Events {
				if err := x.tag(expr.MeterOf(ctx), upcasters, stream.Stream, &stream.Events[j]); err != nil && !anyway {
					return underivable(request, i, j, err)
				}
			}
		}
		return nil
	})
	if domain.IsCode(err, domain.CodeSchemaViolation) {
		// All ids are in the log, so the log writes nothing.
		if known, unknown := s.allKnown(ctx, tenant, request); known || unknown != nil {
			return request, unknown
		}
	}
	return tagged, err
}

// AppendAnyway appends events that are not checked: changes of projections, and reports. Those whose tags cannot be
// derived have only the given ones.
func (s *Schemas) AppendAnyway(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
	x, err := s.cache.index(ctx, tenant)
	if err != nil {
		return domain.Appended{}, err
	}
	tagged, err := s.tagged(ctx, tenant, x, request, true)
	switch {
	case domain.IsCode(err, domain.CodeTooCostly):
		tagged = request
	case err != nil:
		return domain.Appended{}, err
	}
	return s.config.Events.Append(ctx, tenant, tagged)
}

// concerns reports whether any event has a type with an expression for tags, or carries derived tags from an earlier
// call.
func (x *index) concerns(request domain.Append) bool {
	for i := range request.Streams {
		for j := range request.Streams[i].Events {
			event := &request.Streams[i].Events[j]
			if event.Derived != nil {
				return true
			}
			if !x.derives {
				continue
			}
			if of := x.types[event.Type]; of != nil && of.derives != nil {
				return true
			}
		}
	}
	return false
}

// tag adds an event's derived tags, and takes away those of an earlier call.
func (x *index) tag(meter *expr.Meter, upcasters *upcasting.Set, stream string, event *domain.NewEvent) error {
	given := slices.DeleteFunc(slices.Clone(event.Tags), func(tag string) bool { return slices.Contains(event.Derived, tag) })
	event.Tags, event.Derived = given, nil
	of := x.types[event.Type]
	if of == nil || of.derives == nil || !meter.SpendBytes(len(event.Data)+len(event.Metadata)) {
		return nil
	}
	tags, err := of.derives.derive(meter, upcasters, domain.Event{
		Stream: stream, Type: event.Type, Data: event.Data, Metadata: event.Metadata, OccurredAt: event.OccurredAt,
	})
	if err != nil {
		return err
	}
	derived := slices.DeleteFunc(tags, func(tag string) bool { return slices.Contains(given, tag) })
	if len(derived) == 0 {
		return nil
	}
	if len(given)+len(derived) > domain.MaxTags {
		return errTooMany
	}
	event.Tags, event.Derived = slices.Concat(given, derived), derived
	slices.Sort(event.Tags)
	return nil
}

// errTooMany is the error for an event that would have too many tags.
var errTooMany = fmt.Errorf("the event would have more than %d tags, including the given ones", domain.MaxTags)

// underivable is the error for an event whose tags cannot be derived.
func underivable(request domain.Append, stream, event int, reason error) error {
	where := eventlog.Place(request, stream, event, "data")
	problem := domain.Errorf(domain.CodeSchemaViolation, where, "cannot derive tags by the schema of %s: %s", request.Streams[stream].Events[event].Type, reason)
	problem.Violations = []domain.Violation{{
		Where: where, Rule: "tags", Message: domain.Clip(reason.Error(), 500), Fix: "change the event, or the expression for tags in the type's schema",
	}}
	return problem
}

// upcastersOf returns the upcasters in force for a tenant. Usually it needs no query.
func (s *Schemas) upcastersOf(ctx context.Context, tenant domain.TenantID, x *index) (*upcasting.Set, error) {
	c := s.cache
	c.mu.Lock()
	known, asked := x.upcasters, c.now()
	fresh := asked.Before(x.upcastersUntil)
	c.mu.Unlock()
	if fresh {
		return known, nil
	}
	return share(ctx, &c.flights, fmt.Sprintf("%s upcasters", tenant), func(ctx context.Context) (*upcasting.Set, error) {
		asked := c.now()
		set, err := s.config.Upcasters.Now(ctx, tenant)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		x.upcasters, x.upcastersUntil = set, asked.Add(upcastersTTL)
		return set, nil
	})
}
