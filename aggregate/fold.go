package aggregate

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// anyType represents every event type that a definition does not name.
const anyType = "*"

// fold is a compiled definition with the upcasters to apply to events first. It is immutable but for checked.
type fold struct {
	stored        storedDefinition
	revision      domain.UpcasterRevision
	snapshotEvery int
	checked       atomic.Int64 // when the database last said that it is current, in Unix nanoseconds

	tag       string
	initial   *expr.Object
	on        map[string]*expr.Fold
	upcasters *upcasting.Set
	upcast    map[string]struct{} // the types that upcasters convert
	commands  map[string]*command

	inGo *goFold // instead of on: the fold of a Decider's boundary
}

// compile compiles a stored definition. The result is meaningless if the meter ended it.
func compile(meter *expr.Meter, definition Definition, upcasters *upcasting.Set) (*fold, error) {
	// What was stored did compile, but a new release of the language may refuse what an older one accepted.
	var wrong *domain.Error
	add := func(where, format string, args ...any) {
		wrong = domain.Errorf(domain.CodeInvalidDefinition, where, format, args...)
	}
	f, err := compileFold(meter, "", definition, upcasters, add)
	if err != nil {
		return nil, err
	}
	f.snapshotEvery = cmp.Or(definition.SnapshotEvery, DefaultSnapshotEvery)
	if f.commands, err = compileCommands(meter, definition, upcasters, add); err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	return f, nil
}

// compileFold compiles what a definition does with events, and calls wrong for each of its problems; prefix begins
// their places. The result is meaningless if there are any, or if the meter ended it.
func compileFold(meter *expr.Meter, prefix string, definition Definition, upcasters *upcasting.Set, wrong func(where, format string, args ...any)) (f *fold, err error) {
	f = &fold{tag: tagOf(definition, upcasters), initial: expr.NewObject(nil), upcasters: upcasters, upcast: make(map[string]struct{})}
	if len(definition.Initial) > 0 {
		if f.initial, err = expr.ParseDocument(definition.Initial); err != nil {
			wrong(prefix+"initial", "%s", err)
		}
	}
	for _, upcaster := range upcasters.Upcasters(definition.Folds) {
		f.upcast[upcaster.Type] = struct{}{}
	}
	f.on, err = compileAll(meter, prefix+"on.", definition.On, wrong)
	return f, err
}

// nextAll returns the state after several events, as next does.
func (f *fold) nextAll(meter *expr.Meter, state *expr.Object, events []domain.Event) (_ *expr.Object, err error) {
	if f.inGo != nil {
		return f.nextInGo(meter, state, events)
	}
	for i := range events {
		event := events[i]
		if state, err = f.next(meter, state, &event); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// next returns the state after an event, which it brings into its newest form. A nil state means that the previous fold
// gave null: the next event starts from the initial state. An event of a type that the definition does not name changes
// nothing. The error is a *domain.Error with domain.CodeFaulted that names the event and the place in the expression,
// of the definition or of an upcaster. The result is meaningless if the meter ended the evaluation.
func (f *fold) next(meter *expr.Meter, state *expr.Object, event *domain.Event) (*expr.Object, error) {
	where := event.Type
	step := f.on[where]
	if step == nil {
		where = anyType
		if step = f.on[where]; step == nil {
			return state, nil
		}
	}
	if state == nil {
		state = f.initial
	}
	if fault := f.upcasters.Upcast(meter, event); fault != nil {
		return nil, faulted(fault.Upcaster.Name(), event, fault.Err)
	}
	after, err := step.Eval(state, expr.NewEvent(event).WithMeter(meter))
	if err != nil {
		return nil, faulted("on."+where, event, err)
	}
	return after, nil
}

func faulted(where string, event *domain.Event, err error) *domain.Error {
	return domain.Errorf(domain.CodeFaulted, where,
		"event %d of %s (position %d, %s, %s) cannot be folded: %s", event.Version, event.Stream, event.Position, event.ID, event.Type, err)
}

// encode writes a state; nil becomes null.
func encode(state *expr.Object) (json.RawMessage, error) {
	if state == nil {
		return json.RawMessage("null"), nil
	}
	return expr.AppendJSON(nil, state)
}

// decode decodes the output of encode.
func decode(data json.RawMessage) (*expr.Object, error) {
	value, err := expr.ParseJSON(data)
	if err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case expr.Null:
		return nil, nil
	case *expr.Object:
		return value, nil
	}
	return nil, fmt.Errorf("a state is an object or null, not %.40s", data)
}

// tagOf returns the tag of the snapshots that a definition folds: a hash of everything that determines their states,
// each part prefixed with its length. Of the upcasters it includes those for types that the definition folds. It does
// not include SnapshotEvery.
func tagOf(definition Definition, upcasters *upcasting.Set) string {
	hash := sha256.New()
	add := func(part string) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(length[:])
		hash.Write([]byte(part))
	}
	add(expr.Version)
	add(string(definition.Initial))
	for _, eventType := range slices.Sorted(maps.Keys(definition.On)) {
		add(eventType)
		add(definition.On[eventType])
	}
	if concerned := upcasters.Upcasters(definition.Folds); len(concerned) > 0 {
		add("upcasters")
		for _, upcaster := range concerned {
			add(upcaster.Name())
			add(upcaster.Expression)
		}
	}
	return DefinitionTag(hex.EncodeToString(hash.Sum(nil)[:16]))
}
