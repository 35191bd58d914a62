package expr

import "fmt"

// Map is a compiled map: event -> record, or nothing. It is safe for concurrent use.
type Map struct{ program *Program }

// CompileMap compiles a map. Errors are those of Compile.
func CompileMap(source string) (*Map, error) {
	program, err := Compile(ScopeEvent, source)
	if err != nil {
		return nil, err
	}
	return &Map{program}, nil
}

// Source returns the map's text.
func (m *Map) Source() string { return m.program.source }

// Eval returns the record of event, an *Object like that of Fold.Eval; nil if the expression gave null. The error is
// always an *EvalError; any result but an object or null is one.
func (m *Map) Eval(event *Event) (*Object, error) {
	v, fault := m.program.run(nil, event)
	if fault != nil {
		return nil, fault
	}
	record, ok, fault := stored(v)
	switch {
	case fault != nil:
		return nil, fault
	case !ok:
		return nil, &EvalError{Kind: KindResult, Message: fmt.Sprintf("a map gives an object, or null for no record; this one gave %s", Describe(v))}
	}
	return record, nil
}

// Uses reports whether the map may read the event's field, see Program.Uses.
func (m *Map) Uses(field string) bool { return m.program.Uses(field) }

// Shape returns what the map's record may contain.
func (m *Map) Shape() *Shape { return &m.program.shape }
