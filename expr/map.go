package expr

// Map is a compiled map: event, with the record's key and item -> record, or nothing. It is safe for concurrent use.
type Map struct{ compiled }

// CompileMap compiles a map. Errors are those of Compile.
func CompileMap(source string) (*Map, error) {
	return compileAs[Map](ScopeRecord, source)
}

// Eval returns the record of event, an *Object like that of Fold.Eval; nil if the expression gave null. The error is
// always an *EvalError; any result but an object or null is one.
func (m *Map) Eval(event *Event) (*Object, error) {
	return m.program.evalDocument(nil, event, "a map gives an object, or null for no record")
}
