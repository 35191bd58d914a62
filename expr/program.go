package expr

import "fmt"

// Eval evaluates the expression. subject is the value of `doc` or `state`. It is ignored in ScopeEvent, and event is
// ignored in ScopeDocument. The error is always an *EvalError. Eval never panics: a bug in this package becomes an
// error of KindInternal.
//
// The result may share memory with subject and with the parsed event; all of it is immutable.
func (p *Program) Eval(subject Value, event *Event) (result Value, err error) {
	v, fault := p.run(subject, event)
	if fault != nil {
		return nil, fault
	}
	return v, nil
}

// EvalDocument evaluates an expression of ScopeDocument; meter may end the evaluation. Errors are those of Eval.
func (p *Program) EvalDocument(meter *Meter, document Value) (Value, error) {
	v, fault := p.runWithin(meter, document, nil)
	if fault != nil {
		return nil, fault
	}
	return v, nil
}

// run evaluates the expression with the event's meter.
func (p *Program) run(subject Value, event *Event) (result Value, fault *EvalError) {
	var meter *Meter
	if event != nil {
		meter = event.meter
	}
	return p.runWithin(meter, subject, event)
}

func (p *Program) runWithin(meter *Meter, subject Value, event *Event) (result Value, fault *EvalError) {
	ev := &evaluation{cost: p.cost, granted: p.cost, most: p.cost, memory: MaxMemory}
	defer func() {
		if r := recover(); r != nil {
			result, fault = nil, &EvalError{Kind: KindInternal, Message: fmt.Sprintf("the expression could not be evaluated: %v", r)}
		}
		if ev.turn.End != nil {
			ev.turn.End()
		}
	}()
	if meter != nil {
		if meter.ctx.Err() != nil {
			return nil, stopped()
		}
		ev.meter, ev.granted = meter, min(p.cost, stepsBetweenChecks)
		ev.cost, ev.spare = ev.granted, p.cost-ev.granted
	}
	if p.variables <= len(ev.few) {
		ev.variables = ev.few[:]
	} else {
		ev.variables = make([]variable, p.variables)
	}
	slot := 0
	if p.scope.event() {
		if event == nil {
			return nil, &EvalError{Kind: KindInternal, Message: "there is no event"}
		}
		ev.variables[slot].value = event
		slot++
	}
	if p.scope.subject() != "" {
		if subject == nil {
			return nil, &EvalError{Kind: KindInternal, Message: "there is no " + p.scope.subject()}
		}
		ev.variables[slot].value = subject
	}
	result, fault = p.root.eval(ev)
	if meter.Counts() {
		meter.Spend(ev.granted - ev.cost)
	}
	if ev.exhausted != nil {
		return nil, ev.exhausted
	}
	return result, fault
}

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

// stored returns a result in the form of a document: nil for null. ok is false if it is neither an object nor null.
func stored(v Value) (document *Object, ok bool, fault *EvalError) {
	switch v.(type) {
	case Null:
		return nil, true, nil
	case *Object, *Event:
		if fault := measureOf(v).fault(); fault != nil {
			return nil, true, fault
		}
		settled, err := settle(v)
		if err != nil {
			return nil, true, position{}.place(err)
		}
		if fault := measureOf(settled).fault(); fault != nil {
			return nil, true, fault
		}
		return settled.(*Object), true, nil
	}
	return nil, false, nil
}

// Key is a compiled key of a projection: event -> the document's id. It is safe for concurrent use.
type Key struct{ program *Program }

// CompileKey compiles a key. Errors are those of Compile.
func CompileKey(source string) (*Key, error) {
	program, err := Compile(ScopeEvent, source)
	if err != nil {
		return nil, err
	}
	return &Key{program}, nil
}

// Source returns the key's text.
func (k *Key) Source() string { return k.program.source }

// Eval returns the id of the document that event belongs to: 1 to MaxKeyBytes bytes without U+0000. ok is false if the
// expression gave null: the event is not for this projection. The error is always an *EvalError.
func (k *Key) Eval(event *Event) (id string, ok bool, err error) {
	v, fault := k.program.run(nil, event)
	if fault != nil {
		return "", false, fault
	}
	switch v := v.(type) {
	case Null:
		return "", false, nil
	case String:
		if problem := keyProblem(string(v)); problem != "" {
			return "", false, &EvalError{Kind: KindResult, Message: problem}
		}
		return string(v), true, nil
	}
	return "", false, &EvalError{Kind: KindResult, Hint: "write string(...) around it", Message: fmt.Sprintf("a key is a string, or null where the event is not for this projection; this one is %s", Describe(v))}
}

// keyProblem says why a text cannot be a document's id.
func keyProblem(id string) string {
	switch {
	case id == "":
		return "the key is an empty string; write null where the event is not for this projection"
	case len(id) > MaxKeyBytes:
		return fmt.Sprintf("the key has %d bytes; at most %d are allowed", len(id), MaxKeyBytes)
	}
	for i := range len(id) {
		if id[i] == 0 {
			return "the key has a character U+0000, which databases cannot keep"
		}
	}
	return ""
}
