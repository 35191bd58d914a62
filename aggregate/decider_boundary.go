package aggregate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// DeciderOption says what a Decider depends on, besides the state of the command's stream or instead of it.
type DeciderOption func(*command)

// WithBoundary makes a Decider depend on the events, of any streams, that a query matches. apply folds one of them into
// the value, which starts as T's zero value. The decider gets the value as Decision.Boundary[name]. Its events are
// appended only if no other event that the query matches has been appended meanwhile; otherwise the command is decided
// again.
//
// query gets the decision without its Boundary. Each item of the query must have tags. It may return an error, also a
// *Rejection, as the Decider may.
//
// apply gets the events as the tenant's upcasters convert them, in the log's order. It may be called by many goroutines
// at once, each with its own value. The same events must give the same value. What the decider returns is folded before
// it is appended, so an event has neither id, version, position nor times. If apply returns an error, the command
// cannot be decided (domain.CodeFaulted).
//
// encoding/json must write T as a JSON object, and read it again unchanged: the value is remembered as JSON, in which
// an integer outside int64 becomes a floating-point number. Use a string for such a value.
func WithBoundary[T any](name string, query func(Decision) (domain.Query, error), apply func(value *T, event NewEvent) error) DeciderOption {
	return func(c *command) {
		c.boundary = append(c.boundary, boundary{name: name, query: query, fold: &fold{inGo: &goFold{
			zero:  func() any { return new(T) },
			apply: func(value any, event NewEvent) error { return apply(value.(*T), event) },
		}}})
	}
}

// WithoutState makes a Decider depend on its boundaries alone. If all of its events are for other streams, the
// command's stream is not read.
func WithoutState() DeciderOption { return func(c *command) { c.readsState = false } }

// goFold folds events into a value that encoding/json reads and writes.
type goFold struct {
	zero  func() any // a pointer to the value before the first event
	apply func(value any, event NewEvent) error
}

// newDecider returns the command that a Decider decides.
func newDecider(key deciderKey, decider Decider, options []DeciderOption) (*command, error) {
	c := &command{inGo: decider, readsState: true}
	for _, option := range options {
		option(c)
	}
	if len(c.boundary) == 0 && !c.readsState {
		return nil, errors.New("it has neither state nor boundary; add a boundary, or leave out WithoutState")
	}
	if len(c.boundary) > maxBoundaries {
		return nil, fmt.Errorf("there are %d boundaries; at most %d are allowed", len(c.boundary), maxBoundaries)
	}
	slices.SortStableFunc(c.boundary, func(a, b boundary) int { return strings.Compare(a.name, b.name) })
	for i := range c.boundary {
		b := &c.boundary[i]
		b.where = "commands." + key.command + ".boundary." + b.name
		if err := domain.CheckAlphabet("boundary", "name", b.name, domain.MaxNameBytes, "_"); err != nil {
			return nil, err
		}
		if i > 0 && c.boundary[i-1].name == b.name {
			return nil, fmt.Errorf("two boundaries have the name %s", b.name)
		}
		text, err := json.Marshal(b.fold.inGo.zero())
		if err == nil {
			b.fold.initial, err = expr.ParseDocument(text)
		}
		if err != nil {
			return nil, fmt.Errorf("the value of boundary %s: %w", b.name, err)
		}
		// Remembered states stay in this process, in which the functions are always the same.
		b.fold.tag = fmt.Sprintf("in Go %s %s %s ", key.category, key.command, b.name)
	}
	c.apart = c.stateless()
	return c, nil
}

// decisionOn returns what a Decider decides on.
func (s *sending) decisionOn(on *known) (Decision, error) {
	d := Decision{Tenant: s.tenant, Stream: s.command.Stream, Data: s.command.Data, Metadata: s.command.Metadata, Now: s.now, UUID: s.uuid}
	if on.program.readsState {
		var err error
		if d.State, err = encode(cmp.Or(on.state, on.fold.initial)); err != nil {
			return Decision{}, fmt.Errorf("write the state of %s: %w", s.command.Stream, err)
		}
		d.Version = on.version
	}
	for i := range on.bounds {
		b := &on.bounds[i]
		if d.Boundary == nil {
			d.Boundary = make(map[string]json.RawMessage, len(on.bounds))
		}
		var err error
		if d.Boundary[b.name], err = encode(cmp.Or(b.state, b.fold.initial)); err != nil {
			return Decision{}, fmt.Errorf("write the boundary %s: %w", b.name, err)
		}
	}
	return d, nil
}

// boundsInGo returns the boundaries of a Decider, with their queries.
func (s *sending) boundsInGo(on *known) ([]bound, error) {
	d, err := s.decisionOn(on)
	if err != nil {
		return nil, err
	}
	bounds := make([]bound, len(on.program.boundary))
	items := 0
	for i := range bounds {
		declared := on.program.boundary[i]
		query, err := declared.query(d)
		if err != nil {
			return nil, err
		}
		if err = query.Check(declared.where + ".query"); err == nil && !query.Tagged() {
			err = errors.New("each item needs tags")
		}
		if items += len(query); err == nil && items > domain.MaxQueryItems {
			err = fmt.Errorf("the queries have more than %d items together", domain.MaxQueryItems)
		}
		if err != nil {
			return nil, fmt.Errorf("the decider of %s gave an invalid query for %s: %w", s.command.Name, declared.name, err)
		}
		of := declared.fold
		declared.fold = &fold{tag: of.tag + fmt.Sprint(on.fold.revision), initial: of.initial, upcasters: on.fold.upcasters, inGo: of.inGo}
		bounds[i] = bound{boundary: &declared, query: query.Sorted()}
	}
	return bounds, nil
}

// nextInGo is nextAll for a fold in Go.
func (f *fold) nextInGo(meter *expr.Meter, state *expr.Object, events []domain.Event) (*expr.Object, error) {
	if len(events) == 0 {
		return state, nil
	}
	text, err := encode(cmp.Or(state, f.initial))
	if err != nil {
		return nil, err
	}
	value := f.inGo.zero()
	if err := json.Unmarshal(text, value); err != nil {
		return nil, fmt.Errorf("read the value of a boundary: %w", err)
	}
	for i := range events {
		event := events[i]
		if fault := f.upcasters.Upcast(meter, &event); fault != nil {
			return nil, faulted(fault.Upcaster.Name(), &event, fault.Err)
		}
		err := f.inGo.apply(value, NewEvent{Stream: event.Stream, Type: event.Type, Data: event.Data, Metadata: event.Metadata, Tags: event.Tags})
		if err != nil {
			return nil, faulted("", &event, err)
		}
	}
	if text, err = json.Marshal(value); err != nil {
		return nil, faulted("", &events[len(events)-1], err)
	}
	meter.SpendBytes(2 * len(text))
	after, err := expr.ParseDocument(text)
	if err != nil {
		return nil, faulted("", &events[len(events)-1], err)
	}
	return after, nil
}
