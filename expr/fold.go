package expr

// Fold is a compiled fold: (document, event) -> document. It is safe for concurrent use.
type Fold struct{ compiled }

// CompileFold compiles a fold; scope is ScopeProjection or ScopeAggregate. Errors are those of Compile.
func CompileFold(scope Scope, source string) (*Fold, error) {
	return compileAs[Fold](scope, source)
}

// Eval returns the document after event: an *Object, or nil if the expression gave null, which removes the document.
// doc is the document so far, or the initial one; Event.WithTarget sets its id and item. The result contains only
// JSON's kinds, equals what writing it with AppendJSON and reading it back gives, and can be stored: AppendJSON does
// not fail on it. The error is always an *EvalError; any result but an object or null is one.
func (f *Fold) Eval(doc *Object, event *Event) (*Object, error) {
	if doc == nil {
		return nil, &EvalError{Kind: KindInternal, Message: "there is no " + f.program.scope.subject()}
	}
	return f.program.evalDocument(doc, event, "a fold gives an object, or null to remove it")
}
