package expr

// comprehension walks over a list or an object. It implements the macros all, exists, exists_one, map, filter,
// transformList, transformMap and transformMapEntry. It walks objects in the order of their keys.
type comprehension struct {
	source     node
	path       string
	first      int // the slot of the element, or of index or key if there are two variables
	second     int // the slot of the element if there are two variables, else -1
	start      node
	result     int // the slot of the running result
	proceed    node
	step       node
	finish     node
	collecting collecting
	filter     node // with collecting: nil, or what an element must satisfy
	at         position
}

// collecting is the kind of result that grows with each element: a list or an object. The result is built in place, not
// copied for each element.
type collecting int

const (
	notCollecting collecting = iota
	elements
	entries // step returns an object whose entries are added
)

func (n *comprehension) eval(ev *evaluation) (Value, *EvalError) {
	source, fault := n.source.eval(ev)
	if fault != nil {
		return nil, fault
	}
	if n.collecting != notCollecting {
		return n.collect(ev, source)
	}
	ev.variables[n.result].value, ev.variables[n.result].fault = n.start.eval(ev)
	fault = n.walk(ev, source, func() (bool, *EvalError) {
		v, fault := n.proceed.eval(ev)
		if fault != nil {
			return false, fault
		}
		if v != Bool(true) {
			return false, nil
		}
		value, fault := n.step.eval(ev)
		ev.variables[n.result] = variable{value, fault}
		return true, ev.exhausted
	})
	if fault != nil {
		return nil, fault
	}
	return n.finish.eval(ev)
}

// collect builds a list or an object.
func (n *comprehension) collect(ev *evaluation, source Value) (Value, *EvalError) {
	var items []Value
	var keys []string
	var values []Value
	fault := n.walk(ev, source, func() (bool, *EvalError) {
		if n.filter != nil {
			v, fault := n.filter.eval(ev)
			if fault != nil {
				return false, fault
			}
			passes, ok := v.(Bool)
			if !ok {
				return false, n.at.fault(KindType, "", "a filter's condition is a bool, not %s", Describe(v))
			}
			if !passes {
				return true, nil
			}
		}
		v, fault := n.step.eval(ev)
		if fault != nil {
			return false, fault
		}
		if n.collecting == elements {
			items = append(items, v)
			return true, ev.allocate(2*valueBytes, n.at)
		}
		added, ok := v.(*Object)
		if !ok {
			return false, n.at.fault(KindType, "", "transformMapEntry needs an object with the entry, not %s", Describe(v))
		}
		for i, key := range added.keys {
			if fault := ev.allocate(2*entryBytes, n.at); fault != nil {
				return false, fault
			}
			keys, values = append(keys, key), append(values, added.values[i])
		}
		return true, nil
	})
	if fault != nil {
		return nil, fault
	}
	if n.collecting == elements {
		return ev.newList(items, n.at)
	}
	count := len(keys)
	if fault := ev.allocate(count*entryBytes, n.at); fault != nil {
		return nil, fault
	}
	object, fault := ev.newObject(keys, values, n.at)
	if fault != nil {
		return nil, fault
	}
	if len(object.keys) != count {
		return nil, n.at.fault(KindValue, "", "two elements gave the same key")
	}
	return object, nil
}

// walk sets the variables for each element in turn and calls visit, until visit returns false or a fault.
func (n *comprehension) walk(ev *evaluation, source Value, visit func() (bool, *EvalError)) *EvalError {
	var keys []string
	var values []Value
	switch source := source.(type) {
	case List:
		values = source.items
	case *Object, *Event:
		object, fault := asObject(source, n.at)
		if fault != nil {
			return fault
		}
		keys, values = object.keys, object.values
	case Null:
		return n.at.fault(KindType, "", "%s is null: there are no elements to walk over", n.path)
	default:
		return n.at.fault(KindType, "", "%s is %s: only lists and objects have elements to walk over", n.path, Describe(source))
	}
	for i, value := range values {
		if fault := ev.spend(1, n.at); fault != nil {
			return fault
		}
		switch first := &ev.variables[n.first]; {
		case keys != nil:
			*first = variable{value: String(keys[i])}
		case n.second >= 0:
			*first = variable{value: Int(i)}
		default:
			*first = variable{value: value}
		}
		if n.second >= 0 {
			ev.variables[n.second] = variable{value: value}
		}
		more, fault := visit()
		if fault != nil || !more {
			return fault
		}
	}
	return nil
}

// binding is cel.bind(name, value, body). optMap and sortBy also use it to evaluate something only once.
type binding struct {
	slot  int
	value node
	body  node
}

func (n *binding) eval(ev *evaluation) (Value, *EvalError) {
	v, fault := n.value.eval(ev)
	if fault != nil {
		return nil, fault
	}
	ev.variables[n.slot] = variable{value: v}
	return n.body.eval(ev)
}

// entryOf creates the one-entry object that transformMap adds.
type entryOf struct {
	key, value node
}

func (n *entryOf) eval(ev *evaluation) (Value, *EvalError) {
	key, value, fault := both(ev, n.key, n.value)
	if fault != nil {
		return nil, fault
	}
	text, ok := key.(String)
	if !ok {
		// The key of transformMap over a list is an index: an int.
		v, problem := stringOf(key)
		if problem != nil {
			return nil, problem
		}
		text = String(v)
	}
	return &Object{keys: []string{string(text)}, values: []Value{value}}, nil // only collect sees it
}
