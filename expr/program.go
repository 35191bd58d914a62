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
	return ok || p.use.all
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
	v, fault := p.runMetered(meter, document)
	if fault != nil {
		return nil, fault
	}
	return v, nil
}

// run evaluates the expression with the event's meter.
func (p *Program) run(subject Value, event *Event) (result Value, fault *EvalError) {
	if !p.scope.event() {
		return p.runMetered(nil, subject)
	}
	if event == nil {
		return nil, &EvalError{Kind: KindInternal, Message: "there is no event"}
	}
	var values [4]Value // of all variables of a scope with an event
	given := append(values[:0], event)
	if p.scope.subject() != "" {
		given = append(given, subject)
	}
	if p.scope.target() {
		given = append(given, event.target.values(p.use.target)...)
	}
	return p.runMetered(event.meter, given...)
}

// runMetered evaluates the expression with the values of the scope's variables.
func (p *Program) runMetered(meter *Meter, values ...Value) (result Value, fault *EvalError) {
	ev := &evaluation{cost: p.cost, granted: p.cost, limit: p.cost, memory: MaxMemory}
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
		ev.cost, ev.ungranted = ev.granted, p.cost-ev.granted
	}
	if p.variables <= len(ev.inline) {
		ev.variables = ev.inline[:]
	} else {
		ev.variables = make([]variable, p.variables)
	}
	for slot, value := range values {
		if value == nil {
			return nil, &EvalError{Kind: KindInternal, Message: "there is no " + p.scope.variables()[slot]}
		}
		ev.variables[slot].value = value
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

// evalDocument evaluates an expression whose result is a document: an object, or nil for null. rule says so for people.
func (p *Program) evalDocument(subject Value, event *Event, rule string) (*Object, error) {
	v, fault := p.run(subject, event)
	if fault != nil {
		return nil, fault
	}
	switch v.(type) {
	case Null:
		return nil, nil
	case *Object, *Event:
	default:
		return nil, &EvalError{Kind: KindResult, Message: fmt.Sprintf("%s; this one gave %s", rule, Describe(v))}
	}
	if fault := measureOf(v).fault(); fault != nil {
		return nil, fault
	}
	settled, err := settle(v)
	if err != nil {
		return nil, position{}.asFault(err)
	}
	if fault := measureOf(settled).fault(); fault != nil {
		return nil, fault
	}
	return settled.(*Object), nil
}

// compiled is what the programs for one purpose have in common.
type compiled struct{ program *Program }

// compileAs compiles an expression for one purpose.
func compileAs[P ~struct{ compiled }](scope Scope, source string) (*P, error) {
	program, err := Compile(scope, source)
	if err != nil {
		return nil, err
	}
	return &P{compiled{program}}, nil
}

// Source returns the expression's text.
func (c compiled) Source() string { return c.program.source }

// Uses reports whether the expression may read the event's field, see Program.Uses.
func (c compiled) Uses(field string) bool { return c.program.Uses(field) }

// Shape returns what the expression may add to a document.
func (c compiled) Shape() *Shape { return &c.program.shape }
