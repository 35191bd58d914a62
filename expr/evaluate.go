package expr

// evaluation is the state of one run of a program: its variables and its remaining budget.
type evaluation struct {
	variables []variable
	inline    [8]variable // storage for the variables of most expressions
	stack     []Value     // the arguments of the calls under way
	cost      int         // what is left of the granted steps
	granted   int         // steps granted since the last report to the meter
	ungranted int         // what is left of limit beyond the granted steps
	limit     int         // steps
	meter     *Meter      // asked before more steps are granted; may be nil
	turn      Turn        // asked before more steps are granted; may be nil
	memory    int         // zero: none
	exhausted *EvalError
}

// variable is the value bound to a name. A fault can be bound too: all and exists keep one, because a later element may
// decide the result.
type variable struct {
	value Value
	fault *EvalError
}

// spend charges steps before they are taken.
func (ev *evaluation) spend(steps int, at position) *EvalError {
	ev.cost -= steps
	if ev.cost < 0 {
		return ev.grant(at)
	}
	return nil
}

// grant reports the taken steps to the meter, and grants more of the remaining ones.
func (ev *evaluation) grant(at position) *EvalError {
	if ev.exhausted != nil {
		return ev.exhausted
	}
	if ev.ungranted > 0 && ev.cost+ev.ungranted >= 0 {
		more := min(ev.ungranted, max(stepsBetweenChecks, -ev.cost))
		taken := ev.granted
		ev.cost, ev.ungranted, ev.granted = ev.cost+more, ev.ungranted-more, more
		ev.awaitTurn()
		if ev.meter.Spend(taken) {
			return nil
		}
		return ev.exhaust(stopped())
	}
	return ev.exhaust(at.fault(KindCost, "fold fewer elements at a time, or keep a running result in the document instead of walking all of it for each event",
		"the evaluation takes more than %d steps", ev.limit))
}

// awaitTurn makes a long evaluation wait for its turn.
func (ev *evaluation) awaitTurn() {
	switch {
	case ev.turn.GoOn != nil:
		ev.turn.GoOn()
	case ev.meter != nil && ev.meter.turns != nil && ev.limit-ev.ungranted-ev.cost >= stepsBeforeTurn:
		ev.turn = ev.meter.turns()
	}
}

// allocate charges memory before it is used, and the steps to fill it.
func (ev *evaluation) allocate(bytes int, at position) *EvalError {
	ev.memory -= bytes
	if ev.memory < 0 {
		return ev.exhaust(at.fault(KindMemory, "", "the evaluation needs more than %d MiB for the values that it makes", MaxMemory>>20))
	}
	return ev.spend(bytes/64, at)
}

// exhaust records that a budget is used up. Such a fault is final, whatever || or exists makes of it.
func (ev *evaluation) exhaust(fault *EvalError) *EvalError {
	if ev.exhausted == nil {
		ev.exhausted = fault
	}
	ev.cost, ev.memory, ev.ungranted = -1, -1, 0
	return ev.exhausted
}

// Sizes of values, for allocate.
const (
	valueBytes = 24 // a place in a list, with a small value
	entryBytes = 48 // an entry of an object: key, value, and a small value in it
)

// node is a part of a compiled expression. It is immutable; all state is in the evaluation.
type node interface {
	eval(ev *evaluation) (Value, *EvalError)
}

// constant is a literal, or a constant expression folded into one.
type constant struct{ value Value }

func (n *constant) eval(*evaluation) (Value, *EvalError) { return n.value, nil }

// name reads a variable.
type name struct {
	slot int
}

func (n *name) eval(ev *evaluation) (Value, *EvalError) {
	v := &ev.variables[n.slot]
	ev.cost--
	return v.value, v.fault
}

// weigh measures a value for a list or object under construction, and charges for it.
func (ev *evaluation) weigh(v Value, at position) (measure, *EvalError) {
	if text, ok := v.(String); ok {
		if fault := ev.scan(string(text), at); fault != nil {
			return measure{}, fault
		}
	}
	return measureOf(v), nil
}

// newList returns a list of items whose memory was already charged.
func (ev *evaluation) newList(items []Value, at position) (List, *EvalError) {
	l := List{items: items}
	for _, item := range items {
		m, fault := ev.weigh(item, at)
		if fault != nil {
			return l, fault
		}
		l.inside.add(m)
	}
	return l, ev.spend(len(items)/8, at)
}

// newObject returns an object of entries in any order, whose memory was already charged; of equal keys the last counts.
func (ev *evaluation) newObject(keys []string, values []Value, at position) (*Object, *EvalError) {
	o := &Object{keys: keys, values: values}
	// Sorting compares each key several times.
	for _, key := range keys {
		if fault := ev.scan(key, at); fault != nil {
			return nil, fault
		}
	}
	o.sortEntries()
	for i, key := range o.keys {
		if fault := ev.scan(key, at); fault != nil {
			return nil, fault
		}
		m, fault := ev.weigh(o.values[i], at)
		if fault != nil {
			return nil, fault
		}
		o.inside.add(m)
		o.inside.addKey(key)
	}
	return o, ev.spend(len(o.keys)/8, at)
}

// scan charges for scanning a string.
func (ev *evaluation) scan(text string, at position) *EvalError { return ev.spend(len(text)/64, at) }

// reserve allocates base + count*each bytes, even if the product overflows an int.
func (ev *evaluation) reserve(base, count, each int, at position) *EvalError {
	if each > 0 && count > MaxMemory/each {
		return ev.allocate(MaxMemory+1, at)
	}
	return ev.allocate(base+count*each, at)
}
