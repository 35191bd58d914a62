package folding

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// Fold is a compiled definition. Any number of goroutines may use it.
type Fold struct {
	definition domain.Definition
	handler    Handler
	mapper     mapper   // the handler if it is a map; otherwise nil
	targeter   Targeter // the handler if it is one; otherwise nil
	types      []string
	asserts    []*expr.Program
	upcasters  *upcasting.Upcasters // see Through
}

// Compile compiles a definition's expressions to a Fold. It returns all errors at once, as a *domain.Error with
// domain.CodeInvalidDefinition. A definition that names a handler needs CompileWith.
func Compile(definition domain.Definition) (*Fold, error) { return CompileWith(definition, nil) }

// CompileWith is Compile for a program that has registered Go handlers, by name.
func CompileWith(definition domain.Definition, handlers map[string]Handler) (*Fold, error) {
	return compile(nil, definition, handlers)
}

// CompileIn is CompileWith with a context, since a large definition may take seconds. If ctx ends, the error is its
// cause.
func CompileIn(ctx context.Context, definition domain.Definition, handlers map[string]Handler) (fold *Fold, err error) {
	err = budget.Work(ctx, func() error {
		fold, err = compile(expr.MeterOf(ctx), definition, handlers)
		return err
	})
	return fold, err
}

// compile compiles a definition to a Fold. The result is meaningless if the meter ended it.
func compile(meter *expr.Meter, definition domain.Definition, handlers map[string]Handler) (*Fold, error) {
	definition = WithDefaults(definition)
	f := &Fold{definition: definition}
	var found problems
	if definition.Handler != "" {
		if f.handler = handlers[definition.Handler]; f.handler == nil {
			found.add("handler", "this program has no handler %q", Clip(definition.Handler))
			return nil, found.err()
		}
	} else if definition.Map != nil {
		f.handler = compileMap(meter, definition, &found)
	} else {
		f.handler = compileExpressions(meter, definition, &found)
	}
	f.mapper, _ = f.handler.(mapper)
	f.targeter, _ = f.handler.(Targeter)
	for i, source := range definition.Assert {
		if !meter.SpendSource(len(source)) {
			break
		}
		where := fmt.Sprintf("assert[%d]", i)
		program, err := expr.Compile(expr.ScopeDocument, source)
		if err != nil {
			found.add(where, "%s", err)
			continue
		}
		f.asserts = append(f.asserts, program)
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	f.types = f.handler.Types()
	return f, nil
}

// Upcasters returns the upcasters that are applied to events before the fold, see Through; nil: none.
func (f *Fold) Upcasters() *upcasting.Upcasters { return f.upcasters }

// Types returns the event types that the fold needs, sorted; nil: all of them.
func (f *Fold) Types() []string { return f.types }

// Definition returns the definition that was compiled, with its defaults filled in.
func (f *Fold) Definition() domain.Definition { return f.definition }

// Asserts reports whether the definition has assertions. Without any, AssertDocument has nothing to check.
func (f *Fold) Asserts() bool { return len(f.asserts) > 0 }

// AssertDocument evaluates the definition's assertions for one document. The error says which assertion failed and how.
// If ctx ends first, the error is its cause.
func (f *Fold) AssertDocument(ctx context.Context, document domain.Document) error {
	if len(f.asserts) == 0 {
		return nil
	}
	doc, err := expr.ParseDocument(document.Data)
	if err != nil {
		return fmt.Errorf("document %q: %w", document.ID, err)
	}
	meter := expr.MeterOf(ctx)
	for i, program := range f.asserts {
		result, err := program.EvalDocument(meter, doc)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("document %q: assert[%d] (%s): %w", document.ID, i, program.Source(), err)
		}
		if holds, ok := result.(expr.Bool); !ok || !bool(holds) {
			return fmt.Errorf("document %q: assert[%d] does not hold: %s", document.ID, i, program.Source())
		}
	}
	return nil
}

// Maps reports whether the fold is a map: each event produces separate records.
func (f *Fold) Maps() bool { return f.mapper != nil }

// Distinct reports whether the fold is a map that gives each event a separate record.
func (f *Fold) Distinct() bool { return f.mapper != nil && f.mapper.distinct() }

// Immutable reports whether the fold never changes a document that it receives, so that a document in memory can be
// kept. A Go handler may change it.
func (f *Fold) Immutable() bool { return f.definition.Handler == "" }

// Spreads reports whether an event may belong to several documents.
func (f *Fold) Spreads() bool {
	switch h := f.handler.(type) {
	case *expressions:
		return h.key.Lists()
	case *mapExpressions:
		return h.key.Lists()
	case interface{ spreads() bool }:
		return h.spreads()
	}
	return f.targeter != nil
}

// OwnStream reports whether a document's id is the name of the one stream that it is folded from.
func (f *Fold) OwnStream() bool {
	h, ok := f.handler.(*expressions)
	return ok && h.stream
}

// SeedsFit reports whether seeds of the definition's aggregate may begin documents: the documents are the states of its
// streams, and no rule reads the tags of events, of which seeds may have earlier ones.
func (f *Fold) SeedsFit() bool {
	h, ok := f.handler.(*expressions)
	if !ok || f.definition.Aggregate == "" {
		return false
	}
	for _, rule := range h.all {
		if rule.Uses("tags") {
			return false
		}
	}
	return true
}

// Sees reports whether an event, as recorded, belongs to the definition's source and has a type that the fold handles.
// Other events are for none of its documents.
func (f *Fold) Sees(event *domain.Event) bool {
	categories, query := f.definition.Source.Categories, f.definition.Source.Query.Items
	return (len(query) == 0 || query.Matches(event.Type, event.Tags)) && (len(categories) == 0 || slices.Contains(categories, domain.Category(event.Stream))) &&
		(f.types == nil || slices.Contains(f.types, event.Type))
}

// Targets appends the documents that the event belongs to, with distinct ids. There are none if the event is not for
// this projection.
func (f *Fold) Targets(targets []Target, event *Event) ([]Target, *EventError) {
	all, err := f.targets(targets, event)
	if err != nil {
		return nil, f.Blame(event, "key", err)
	}
	return all, nil
}

func (f *Fold) targets(targets []Target, event *Event) ([]Target, error) {
	if f.targeter == nil {
		id, ok, err := f.handler.Key(event)
		if err != nil || !ok {
			return targets, err
		}
		return append(targets, Target{ID: id}), domain.CheckDocumentID("", id)
	}
	first := len(targets)
	targets, err := f.targeter.Targets(targets, event)
	if err != nil {
		return nil, err
	}
	return targets, checkTargets(targets[first:])
}

// TargetOf returns the event's target with that document. found is false if the event does not belong to the document.
func (f *Fold) TargetOf(event *Event, document string) (target Target, found bool, _ *EventError) {
	targets, fault := f.Targets(nil, event)
	if fault != nil {
		return Target{}, false, fault
	}
	i := slices.IndexFunc(targets, func(t Target) bool { return t.ID == document })
	if i < 0 {
		return Target{}, false, nil
	}
	return targets[i], true, nil
}

// Decode reads a stored document into the handler's form; nil means the document before its first event. event is the
// one to fold into it, for the error.
func (f *Fold) Decode(data json.RawMessage, event *Event) (Value, *EventError) {
	doc, err := f.handler.Decode(data)
	if err != nil {
		return nil, f.Blame(event, f.Where(event.Type), err)
	}
	return doc, nil
}

// Next folds one event into a document in the handler's form; nil means that the document is removed. For a map it
// returns the record, or nil if the event produces none.
func (f *Fold) Next(doc Value, event *Event) (after Value, _ *EventError) {
	var err error
	if f.mapper != nil {
		after, err = f.mapper.record(event)
	} else {
		after, err = f.handler.Fold(doc, event)
	}
	if err != nil {
		return nil, f.Blame(event, f.Where(event.Type), err)
	}
	return after, nil
}

// Encode writes a document as it is stored; event is the last one folded into it.
func (f *Fold) Encode(doc Value, event *Event) (json.RawMessage, *EventError) {
	data, err := f.handler.Encode(doc)
	if f.definition.Handler != "" {
		// Expressions write numbers in the form that drivers rely on. Go code may write them in any form.
		data = domain.CanonicalNumbers(data)
	}
	if err == nil {
		err = f.checkDocument(data)
	}
	if err != nil {
		return nil, f.Blame(event, f.Where(event.Type), err)
	}
	return data, nil
}

// Text writes a document. Unlike Encode, it leaves numbers as Go code wrote them, and blames no event.
func (f *Fold) Text(doc Value) (json.RawMessage, error) {
	data, err := f.handler.Encode(doc)
	if err == nil {
		err = f.checkDocument(data)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Where names the part of the definition that folds events of the type.
func (f *Fold) Where(eventType string) string {
	if f.definition.Handler != "" {
		return "handler " + f.definition.Handler
	}
	part, expressions := "on.", f.definition.On
	if f.definition.Map != nil {
		part, expressions = "map.", f.definition.Map
	}
	if _, ok := expressions[eventType]; !ok {
		eventType = "*"
	}
	return part + eventType
}

// expression returns the text of a part of the definition; empty for Go code.
func (f *Fold) expression(where string) string {
	if where == "key" {
		return f.definition.Key
	}
	if eventType, ok := strings.CutPrefix(where, "on."); ok {
		return f.definition.On[eventType]
	}
	if eventType, ok := strings.CutPrefix(where, "map."); ok {
		return f.definition.Map[eventType]
	}
	return ""
}

// checkDocument refuses documents that some database cannot store: those that are no object, too long, or not JSON that
// the log's check accepts. The output of expressions is JSON whose numbers are doubles, but its texts may contain
// U+0000.
func (f *Fold) checkDocument(data json.RawMessage) error {
	if len(data) == 0 || data[0] != '{' {
		return errors.New("a document is a JSON object")
	}
	if len(data) > domain.MaxDocumentBytes {
		return fmt.Errorf("the document has %d bytes; at most %d are allowed", len(data), domain.MaxDocumentBytes)
	}
	if f.definition.Handler == "" && !bytes.Contains(data, []byte(`\u0000`)) {
		return nil
	}
	return domain.CheckJSON(data)
}

// expressions is the handler built from a definition's expressions.
type expressions struct {
	targetsOnly
	rules[expr.Fold]
	key     *expr.Key
	stream  bool // the key is event.stream: no need to evaluate
	initial *expr.Object
}

func compileExpressions(meter *expr.Meter, d domain.Definition, found *problems) *expressions {
	h := &expressions{stream: d.Key == DefaultKey}
	var err error
	if h.key, err = expr.CompileKey(d.Key); err != nil {
		found.add("key", "%s", err)
	}
	initial, scope := d.Initial, expr.ScopeProjection
	if d.Aggregate != "" {
		scope = expr.ScopeAggregate
		if len(initial) == 0 {
			initial = json.RawMessage("{}")
		}
	}
	if h.initial, err = expr.ParseDocument(initial); err != nil {
		found.add("initial", "%s", err)
	}
	h.rules = compileRules(meter, "on", d.On, func(source string) (*expr.Fold, error) { return expr.CompileFold(scope, source) }, found)
	return h
}

func (h *expressions) Targets(targets []Target, event *Event) ([]Target, error) {
	if h.stream {
		return append(targets, Target{ID: event.Stream}), nil
	}
	return h.key.Targets(targets, event.expression())
}

func (h *expressions) Decode(data json.RawMessage) (Value, error) {
	if data == nil {
		return h.initial, nil
	}
	return expr.ParseDocument(data)
}

func (h *expressions) Fold(doc Value, event *Event) (Value, error) {
	fold := h.of(event.Type)
	if fold == nil {
		return doc, nil // an event type that was not requested, but harmless
	}
	after, err := fold.Eval(doc.(*expr.Object), event.expression())
	if err != nil || after == nil {
		return nil, err
	}
	return after, nil
}

func (h *expressions) Encode(doc Value) (json.RawMessage, error) {
	object := doc.(*expr.Object)
	return expr.AppendJSON(make([]byte, 0, expr.Size(object)), object)
}
