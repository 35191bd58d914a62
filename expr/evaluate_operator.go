package expr

import (
	"math"
	"time"
)

// logical is && (stop at false) or || (stop at true). As in CEL, a fault in one operand does not matter if the other
// decides the result. So `!has(x.a) || x.a > 0` may be written in either order.
type logical struct {
	terms []node
	stop  Bool
	at    position
}

func (n *logical) eval(ev *evaluation) (Value, *EvalError) {
	var first *EvalError
	for _, term := range n.terms {
		v, fault := term.eval(ev)
		if fault == nil {
			b, ok := v.(Bool)
			if ok && b == n.stop {
				return b, nil
			}
			if ok {
				continue
			}
			fault = n.at.fault(KindType, "compare it: x != null, x > 0, x != ''", "&& and || take bools, not %s", Describe(v))
		}
		if ev.exhausted != nil {
			return nil, ev.exhausted
		}
		if first == nil {
			first = fault
		}
	}
	if first != nil {
		return nil, first
	}
	return !n.stop, nil
}

// conditional is condition ? yes : no.
type conditional struct {
	condition, yes, no node
	at                 position
}

func (n *conditional) eval(ev *evaluation) (Value, *EvalError) {
	v, fault := n.condition.eval(ev)
	if fault != nil {
		return nil, fault
	}
	ev.cost--
	b, ok := v.(Bool)
	if !ok {
		return nil, n.at.fault(KindType, "compare it: x != null, x > 0, x != ''", "the condition before ? is a bool, not %s", Describe(v))
	}
	if b {
		return n.yes.eval(ev)
	}
	return n.no.eval(ev)
}

// not is !operand.
type not struct {
	operand node
	at      position
}

func (n *not) eval(ev *evaluation) (Value, *EvalError) {
	v, fault := n.operand.eval(ev)
	if fault != nil {
		return nil, fault
	}
	ev.cost--
	b, ok := v.(Bool)
	if !ok {
		return nil, n.at.fault(KindType, "compare it: x == null, x == 0, x == ''", "! takes a bool, not %s", Describe(v))
	}
	return !b, nil
}

// notStrictlyFalse is true for everything but false, even for a fault; all and exists use it to decide whether to
// continue.
type notStrictlyFalse struct{ operand node }

func (n *notStrictlyFalse) eval(ev *evaluation) (Value, *EvalError) {
	v, fault := n.operand.eval(ev)
	if ev.exhausted != nil {
		return nil, ev.exhausted
	}
	return Bool(fault != nil || v != Bool(false)), nil
}

// equality is == or, negated, !=.
type equality struct {
	left, right node
	negated     bool
	at          position
}

func (n *equality) eval(ev *evaluation) (Value, *EvalError) {
	left, right, fault := both(ev, n.left, n.right)
	if fault != nil {
		return nil, fault
	}
	same, fault := ev.equal(left, right, n.at)
	return Bool(same != n.negated), fault
}

// both evaluates two operands.
func both(ev *evaluation, a, b node) (left, right Value, fault *EvalError) {
	if left, fault = a.eval(ev); fault != nil {
		return nil, nil, fault
	}
	right, fault = b.eval(ev)
	return left, right, fault
}

// comparison is one of < <= > >=.
type comparison struct {
	left, right node
	symbol      string
	at          position
}

func (n *comparison) eval(ev *evaluation) (Value, *EvalError) {
	left, right, fault := both(ev, n.left, n.right)
	if fault != nil {
		return nil, fault
	}
	ev.cost--
	if text, ok := left.(String); ok {
		if fault := ev.scan(string(text), n.at); fault != nil {
			return nil, fault
		}
	}
	result, ok := order(left, right)
	if !ok {
		return nil, n.at.fault(KindType, "", "%s cannot compare %s with %s", n.symbol, Describe(left), Describe(right))
	}
	switch n.symbol {
	case "<":
		return Bool(result < 0), nil
	case "<=":
		return Bool(result <= 0), nil
	case ">":
		return Bool(result > 0), nil
	default:
		return Bool(result >= 0), nil
	}
}

// membership is element in container.
type membership struct {
	element, container node
	at                 position
}

func (n *membership) eval(ev *evaluation) (Value, *EvalError) {
	element, container, fault := both(ev, n.element, n.container)
	if fault != nil {
		return nil, fault
	}
	ev.cost--
	if list, ok := container.(List); ok {
		for _, item := range list.items {
			if same, fault := ev.equal(element, item, n.at); fault != nil || same {
				return Bool(same), fault
			}
		}
		return Bool(false), nil
	}
	object, fault := asObject(container, n.at)
	if fault != nil {
		return nil, fault
	}
	if object == nil {
		return nil, n.at.fault(KindType, "for a part of a string, write string.contains(part)", "`in` looks into a list or the keys of an object, not into %s", Describe(container))
	}
	key, ok := element.(String)
	if !ok {
		return Bool(false), nil
	}
	if fault := ev.scan(string(key), n.at); fault != nil {
		return nil, fault
	}
	_, found := object.Get(string(key))
	return Bool(found), nil
}

// negation is -operand.
type negation struct {
	operand node
	at      position
}

func (n *negation) eval(ev *evaluation) (Value, *EvalError) {
	v, fault := n.operand.eval(ev)
	if fault != nil {
		return nil, fault
	}
	ev.cost--
	switch v := v.(type) {
	case Int:
		return n.at.number(intArithmetic('-', 0, int64(v)))
	case Double:
		return number(-float64(v)), nil
	case Duration:
		if v == math.MinInt64 {
			return nil, n.at.fault(KindOverflow, "", "the duration is out of range")
		}
		return -v, nil
	}
	return nil, n.at.fault(KindType, "", "- takes a number or duration, not %s", Describe(v))
}

// number adds the place to an arithmetic problem.
func (p position) number(v Value, problem *problem) (Value, *EvalError) {
	if problem != nil {
		return nil, p.fault(problem.kind, problem.hint, "%s", problem.message)
	}
	return v, nil
}

// calculation is left op right, with op one of + - * / %.
type calculation struct {
	operator    byte
	left, right node
	at          position
}

func (n *calculation) eval(ev *evaluation) (Value, *EvalError) {
	left, right, fault := both(ev, n.left, n.right)
	if fault != nil {
		return nil, fault
	}
	ev.cost--
	if isNumber(left) && isNumber(right) {
		return n.at.number(arithmetic(n.operator, left, right))
	}
	if n.operator == '+' || n.operator == '-' {
		if v, fault := n.timeArithmetic(left, right); v != nil || fault != nil {
			return v, fault
		}
	}
	if n.operator == '+' {
		switch left := left.(type) {
		case String:
			if right, ok := right.(String); ok {
				if fault := ev.allocate(len(left)+len(right), n.at); fault != nil {
					return nil, fault
				}
				return left + right, nil
			}
		case List:
			if right, ok := right.(List); ok {
				return ev.concatenate(left, right, n.at)
			}
		}
	}
	return nil, n.at.fault(KindType, n.hint(left, right), "%c does not take %s and %s", n.operator, Describe(left), Describe(right))
}

func (ev *evaluation) concatenate(left, right List, at position) (Value, *EvalError) {
	if fault := ev.allocate(valueBytes*(len(left.items)+len(right.items)), at); fault != nil {
		return nil, fault
	}
	items := make([]Value, 0, len(left.items)+len(right.items))
	items = append(append(items, left.items...), right.items...)
	inside := left.inside
	inside.join(right.inside)
	return List{items: items, inside: inside}, nil
}

func (n *calculation) hint(left, right Value) string {
	_, leftText := left.(String)
	_, rightText := right.(String)
	_, leftObject := left.(*Object)
	_, leftNull := left.(Null)
	_, rightNull := right.(Null)
	switch {
	case leftNull || rightNull:
		return "a field that is there may still be null: test x != null"
	case leftText && isNumber(right), isNumber(left) && rightText:
		if n.operator == '+' {
			return "to join strings, write string(x); to add, write double(x) or int(x)"
		}
		return "write double(x) or int(x) to read a number from a string"
	case leftObject && n.operator == '+':
		return "to put objects together, write merge(a, b)"
	}
	if _, ok := left.(List); ok && n.operator == '+' {
		return "to add one element to a list, write list + [element]"
	}
	return ""
}

// timeArithmetic adds and subtracts timestamps and durations; it returns nothing if neither operand is one.
func (n *calculation) timeArithmetic(left, right Value) (Value, *EvalError) {
	switch left := left.(type) {
	case Timestamp:
		switch right := right.(type) {
		case Duration:
			if n.operator == '-' {
				if right == math.MinInt64 {
					return nil, n.at.fault(KindOverflow, "", "the timestamp is out of range")
				}
				right = -right
			}
			return n.at.moment(time.Time(left).Add(time.Duration(right)))
		case Timestamp:
			if n.operator == '+' {
				return nil, nil
			}
			difference := time.Time(left).Sub(time.Time(right))
			if difference == math.MaxInt64 || difference == math.MinInt64 {
				return nil, n.at.fault(KindOverflow, "", "the duration is out of range: it can be some 292 years")
			}
			return Duration(difference), nil
		}
	case Duration:
		switch right := right.(type) {
		case Timestamp:
			if n.operator == '+' {
				return n.at.moment(time.Time(right).Add(time.Duration(left)))
			}
		case Duration:
			v, problem := intArithmetic(n.operator, int64(left), int64(right))
			if problem != nil {
				return nil, n.at.fault(KindOverflow, "", "the duration is out of range: it can be some 292 years")
			}
			return Duration(v.(Int)), nil
		}
	}
	return nil, nil
}

// moment returns t, which must lie in the years 1 to 9999, as RFC 3339 can write it.
func (p position) moment(t time.Time) (Value, *EvalError) {
	if year := t.UTC().Year(); year < 1 || year > 9999 {
		return nil, p.fault(KindOverflow, "", "the timestamp is out of range: its year must be 1 to 9999")
	}
	return timestamp(t.Truncate(time.Microsecond)), nil // the precision of a document
}
