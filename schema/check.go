package schema

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// Limits of a check.
const (
	CheckEvents = 1000    // of the type, with Source.Last
	CheckLooks  = 20_000  // events that one check reads from the log
	checkBytes  = 8 << 20 // of one page
	maxExamples = 10
)

// Source says which events to check. At most one field is set; without any, no events are checked.
type Source struct {
	Last   int               // how many of the log's last events of the type, at most CheckEvents
	From   int64             // the events of the type from this position on, among the next CheckLooks of the log
	Events []json.RawMessage // the data of made-up events
}

// Check tries a schema.
type Check struct {
	Type    string
	Schema  json.RawMessage // nil: the stored schemas
	Version int64           // check against this stored version; 0: against the one for each event
	Tags    string          // an expression for tags to try as well; empty: none
	Source  Source
}

// Checked is the result of a Check.
type Checked struct {
	Against    int64              // with a Schema: the newest stored version, with which it was compared; 0: none
	Violations []domain.Violation // why it is incompatible
	Breaking   bool               // an upcaster from that version exists, so that it may be put nevertheless
	Events     int                // checked
	Invalid    int                // of them
	Examples   []Example          // of invalid ones, at most ten
	Derived    []Example          // with Check.Tags: the first ten events that get tags
	Next       int64              // with Source.From: the position to continue from; 0: the log's end was reached
}

// Example is an event that violates a schema.
type Example struct {
	Position   int64 // 0: made up
	Index      int   // of a made-up event
	Stream     string
	Version    int64 // of the schema; 0: the given one
	Violations []domain.Violation
	Tags       []string // in Checked.Derived
}

// Check tries a schema, or the stored ones, on events. It stores nothing. With a Schema, it also compares it with the
// stored versions. Errors are those of Put for an invalid schema, and domain.CodeNotFound if there is no schema.
func (s *Schemas) Check(ctx context.Context, tenant domain.TenantID, check Check) (Checked, error) {
	if err := domain.CheckType("type", check.Type); err != nil {
		return Checked{}, err
	}
	ctx, end, err := s.config.Requests.Begin(ctx, tenant, "check fewer events, or simplify the schema")
	if err != nil {
		return Checked{}, err
	}
	defer end()
	c := &checking{schemas: s, ctx: ctx, given: check, compiled: make(map[int64]*Schema)}
	if c.of, err = s.find(ctx, tenant, check.Type); err != nil {
		return Checked{}, err
	}
	if check.Schema == nil && len(c.of.Versions) == 0 {
		return Checked{}, noSchema(check.Type)
	}
	if check.Version > int64(len(c.of.Versions)) {
		return Checked{}, domain.Errorf(domain.CodeNotFound, "version", "%s has no schema of version %d", check.Type, check.Version)
	}
	if err := c.compareGiven(tenant); err != nil {
		return Checked{}, err
	}
	if check.Tags != "" {
		if err := checkTags(ctx, &check.Tags); err != nil {
			return Checked{}, err
		}
		c.derives = newDerivation(check.Tags)
		if c.upcasters, err = s.config.Upcasters.Now(ctx, tenant); err != nil {
			return Checked{}, err
		}
	}
	switch source := check.Source; {
	case len(source.Events) > 0:
		events := make([]domain.Event, len(source.Events))
		for i, data := range source.Events {
			events[i] = domain.Event{Type: check.Type, Data: data}
		}
		err = c.events(events)
	case source.Last > 0:
		err = c.last(tenant, min(source.Last, CheckEvents))
	case source.From > 0:
		err = c.from(tenant, source.From)
	}
	return c.Checked, err
}

// checking is a Check under way.
type checking struct {
	Checked
	schemas  *Schemas
	ctx      context.Context
	given    Check
	of       Type
	compiled map[int64]*Schema // by version; 0: the given one

	derives   *derivation // nil: no tags
	upcasters *upcasting.Set
}

// compareGiven compiles the given schema and compares it with the stored ones.
func (c *checking) compareGiven(tenant domain.TenantID) error {
	if c.given.Schema == nil {
		return nil
	}
	compiled, err := c.schemas.compile(c.ctx, c.given.Schema)
	if err != nil {
		return err
	}
	c.compiled[0] = compiled
	if c.Against = int64(len(c.of.Versions)); c.Against == 0 || equalTexts(c.of.Newest().Schema, c.given.Schema) {
		return nil
	}
	if c.Violations, err = c.schemas.compare(c.ctx, c.of, compiled, c.of.Compatibility); err != nil || len(c.Violations) == 0 {
		return err
	}
	c.Breaking, err = c.schemas.converts(c.ctx, tenant, c.given.Type, c.Against)
	return err
}

// version returns the schema for an event, and its number; the schema is nil if there is none.
func (c *checking) version(event *domain.Event) (compiled *Schema, number int64, err error) {
	switch named, ok := upcasting.NamedVersion(event.Metadata); {
	case c.given.Schema != nil:
	case c.given.Version > 0:
		number = c.given.Version
	case ok:
		number = named
	default:
		number = c.of.Default()
	}
	if compiled, ok := c.compiled[number]; ok || number > int64(len(c.of.Versions)) {
		return compiled, number, nil
	}
	compiled, err = c.schemas.compile(c.ctx, c.of.Versions[number-1].Schema)
	c.compiled[number] = compiled
	return compiled, number, err
}

// events checks events of the type.
func (c *checking) events(events []domain.Event) error {
	meter := expr.MeterOf(c.ctx)
	for i := range events {
		event := &events[i]
		compiled, number, err := c.version(event)
		if err != nil {
			return err
		}
		e := &evaluator{left: maxSteps, meter: meter}
		ok := false
		err = budget.Work(c.ctx, func() error {
			if !meter.SpendBytes(len(event.Data)) || compiled == nil {
				return nil // Work returns the reason
			}
			value, err := parseValue(event.Data)
			if err != nil {
				return domain.Errorf(domain.CodeInvalidJSON, "source", "%s", err)
			}
			if ok, err = e.evaluate(compiled, value); errors.Is(err, errTooCostly) {
				e.found = []domain.Violation{{Message: "checking the event takes too many steps", Fix: "simplify the schema"}}
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		if c.derives != nil {
			if ok, err = c.tags(i, event, e, ok); err != nil {
				return err
			}
		}
		if compiled == nil {
			e.found = []domain.Violation{{Rule: "schemaVersion", Message: "there is no schema of the version that the event names", Fix: "put the schema of that version"}}
		}
		if c.Events++; ok {
			continue
		}
		if c.Invalid++; len(c.Examples) < maxExamples {
			c.Examples = append(c.Examples, Example{Position: event.Position, Index: i, Stream: event.Stream, Version: number, Violations: e.found})
		}
	}
	return nil
}

// tags tries the expression for tags on an event. It returns whether the event is valid.
func (c *checking) tags(index int, event *domain.Event, e *evaluator, ok bool) (bool, error) {
	var tags []string
	var fault error
	err := budget.Work(c.ctx, func() error {
		tags, fault = c.derives.derive(expr.MeterOf(c.ctx), c.upcasters, *event)
		return nil
	})
	switch {
	case err != nil:
		return false, err
	case fault != nil:
		e.found = append(e.found, domain.Violation{Rule: "tags", Message: domain.Clip(fault.Error(), 500), Fix: "change the expression for tags"})
		return false, nil
	case len(tags) > 0 && len(c.Derived) < maxExamples:
		c.Derived = append(c.Derived, Example{Position: event.Position, Index: index, Stream: event.Stream, Tags: tags})
	}
	return ok, nil
}

// last checks the log's last n events of the type. It looks back only a limited distance.
func (c *checking) last(tenant domain.TenantID, n int) error {
	var found []domain.Event // newest first
	query := domain.LogQuery{Limit: CheckEvents, MaxBytes: checkBytes, Direction: domain.Backward}
	for looked, bytes := 0, 0; looked < CheckLooks && len(found) < n && bytes < checkBytes; {
		page, err := c.schemas.config.Events.ReadLog(c.ctx, tenant, query)
		if err != nil {
			return budget.Cause(c.ctx, err)
		}
		for _, event := range page {
			if event.Type == c.given.Type && event.Gap == nil && len(found) < n {
				found = append(found, event)
				bytes += len(event.Data)
			}
		}
		looked += len(page)
		if len(page) == 0 || page[len(page)-1].Position == 1 {
			break
		}
		query.From = page[len(page)-1].Position - 1
	}
	slices.Reverse(found)
	return c.events(found)
}

// from checks the events of the type from a position on.
func (c *checking) from(tenant domain.TenantID, from int64) error {
	query := domain.LogQuery{From: from, Limit: CheckEvents, MaxBytes: checkBytes}
	for looked := 0; looked < CheckLooks; {
		page, err := c.schemas.config.Events.ReadLog(c.ctx, tenant, query)
		if err != nil {
			return budget.Cause(c.ctx, err)
		}
		if len(page) == 0 {
			return nil
		}
		looked += len(page)
		query.From = page[len(page)-1].Position + 1
		ofType := slices.DeleteFunc(page, func(event domain.Event) bool { return event.Type != c.given.Type || event.Gap != nil })
		if err := c.events(ofType); err != nil {
			return err
		}
	}
	c.Next = query.From
	return nil
}
