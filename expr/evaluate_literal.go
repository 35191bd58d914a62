package expr

// listLiteral is [a, b, ?c].
type listLiteral struct {
	items    []node
	optional []bool // nil: none is
	at       position
}

func (n *listLiteral) eval(ev *evaluation) (Value, *EvalError) {
	if fault := ev.allocate(valueBytes*(len(n.items)+1), n.at); fault != nil {
		return nil, fault
	}
	items := make([]Value, 0, len(n.items))
	for i, item := range n.items {
		v, fault := item.eval(ev)
		if fault != nil {
			return nil, fault
		}
		if n.optional != nil && n.optional[i] {
			if v, fault = unwrap(v, n.at); fault != nil {
				return nil, fault
			}
			if v == nil {
				continue
			}
		}
		items = append(items, v)
	}
	return ev.newList(items, n.at)
}

// objectLiteral is {"a": x, ?"b": y} with keys that are not all constant, or not all different, at compile time.
type objectLiteral struct {
	keys     []node
	values   []node
	optional []bool
	at       position
}

func (n *objectLiteral) eval(ev *evaluation) (Value, *EvalError) {
	if fault := ev.allocate(entryBytes*(len(n.keys)+1), n.at); fault != nil {
		return nil, fault
	}
	keys, values := make([]string, 0, len(n.keys)), make([]Value, 0, len(n.keys))
	for i := range n.keys {
		k, fault := n.keys[i].eval(ev)
		if fault != nil {
			return nil, fault
		}
		key, ok := k.(String)
		if !ok {
			return nil, n.at.fault(KindType, "write string(...) around it", "the keys of an object are strings, not %s", Describe(k))
		}
		v, fault := n.values[i].eval(ev)
		if fault != nil {
			return nil, fault
		}
		if n.optional[i] {
			if v, fault = unwrap(v, n.at); fault != nil {
				return nil, fault
			}
			if v == nil {
				continue
			}
		}
		keys, values = append(keys, string(key)), append(values, v)
	}
	return ev.newObject(keys, values, n.at)
}

// recordLiteral is an object whose keys are constant, different and all present. They are sorted once, at compile time,
// and shared by all objects that the literal creates.
type recordLiteral struct {
	keys   []string
	names  measure // of the keys
	values []node
	at     position
}

func (n *recordLiteral) eval(ev *evaluation) (Value, *EvalError) {
	if fault := ev.allocate(entryBytes*(len(n.keys)+1), n.at); fault != nil {
		return nil, fault
	}
	o := &Object{keys: n.keys[:len(n.keys):len(n.keys)], values: make([]Value, len(n.values)), inside: n.names}
	for i, value := range n.values {
		v, fault := value.eval(ev)
		if fault != nil {
			return nil, fault
		}
		m, fault := ev.weigh(v, n.at)
		if fault != nil {
			return nil, fault
		}
		o.values[i] = v
		o.inside.add(m)
	}
	return o, nil
}

// unwrap returns the value of an optional; nil if it is missing.
func unwrap(v Value, at position) (Value, *EvalError) {
	optional, ok := v.(*Optional)
	if !ok {
		return nil, at.fault(KindType, "write x.?field, or leave the ? before the entry out", "an entry marked with ? needs an optional value, not %s", Describe(v))
	}
	return optional.value, nil
}
