package expr

import "fmt"

// Fold is a compiled fold: (document, event) -> document. It is safe for concurrent use.
type Fold struct{ program *Program }

// CompileFold compiles a fold; scope is ScopeProjection or ScopeAggregate. Errors are those of Compile.
func CompileFold(scope Scope, source string) (*Fold, error) {
	program, err := Compile(scope, source)
	if err != nil {
		return nil, err
	}
	return &Fold{program}, nil
}

// Source returns the fold's text.
func (f *Fold) Source() string { return f.program.source }

// Eval returns the document after event: an *Object, or nil if the expression gave null, which removes the document.
// doc is the document so far, or the initial one. The result contains only JSON's kinds, equals what writing it with
// AppendJSON and reading it back gives, and can be stored: AppendJSON does not fail on it. The error is always an
// *EvalError; any result but an object or null is one.
func (f *Fold) Eval(doc *Object, event *Event) (*Object, error) {
	if doc == nil {
		return nil, &EvalError{Kind: KindInternal, Message: "there is no " + f.program.scope.subject()}
	}
	v, fault := f.program.run(doc, event)
	if fault != nil {
		return nil, fault
	}
	document, ok, fault := stored(v)
	switch {
	case fault != nil:
		return nil, fault
	case !ok:
		return nil, &EvalError{Kind: KindResult, Message: fmt.Sprintf("a fold gives an object, or null to remove it; this one gave %s", Describe(v))}
	}
	return document, nil
}

// Uses reports whether the fold may read the event's field, see Program.Uses.
func (f *Fold) Uses(field string) bool { return f.program.Uses(field) }

// Shape returns what the fold may add to a document.
func (f *Fold) Shape() *Shape { return &f.program.shape }
