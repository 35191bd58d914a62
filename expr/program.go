package expr

import "fmt"

// Program is a compiled expression. It is immutable: any number of goroutines may evaluate it at once.
type Program struct {
	scope     Scope
	source    string
	root      node
	variables int // how many slots it needs
	cost      int // what one evaluation may cost
	use       eventUse
	shape     Shape // of the results in ScopeProjection
}

// Compile compiles an expression. The error is a *CompileError, unless the language itself cannot be set up.
func Compile(scope Scope, source string) (*Program, error) {
	root, c, err := compile(scope, source)
	if err != nil {
		return nil, err
	}
	return c.program(root, source), nil
}

func (c *compiler) program(root node, source string) *Program {
	p := &Program{scope: c.language.scope, source: source, root: root, variables: c.slots, cost: MaxCost, use: useOf(c.ast.Expr())}
	p.shape.read(c.ast.Expr(), nil)
	return p
}

// Source returns the expression's text.
func (p *Program) Source() string { return p.source }

// Uses reports whether the expression may read the event's field of that name. An expression that uses the whole event
// as a value may read all of them.
func (p *Program) Uses(field string) bool {
	_, ok := p.use.fields[field]
	return ok || p.use.whole
}

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
