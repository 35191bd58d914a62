package expr

// optionalFunctions implement functions that cel-go declares, together with the syntax of optional fields.
func optionalFunctions() []*function {
	return []*function{
		{name: "optional.of", usage: "optional.of(x)", apply: func(_ *call, _ *evaluation, args []Value) (Value, *EvalError) {
			return &Optional{value: args[0]}, nil
		}},
		{name: "optional.none", usage: "optional.none()", apply: func(*call, *evaluation, []Value) (Value, *EvalError) {
			return &Optional{}, nil
		}},
		{name: "optional.ofNonZeroValue", usage: "optional.ofNonZeroValue(x)", apply: func(_ *call, _ *evaluation, args []Value) (Value, *EvalError) {
			if isZero(args[0]) {
				return &Optional{}, nil
			}
			return &Optional{value: args[0]}, nil
		}},
		{name: "optional.unwrap", usage: "optional.unwrap(list)", apply: on1(unwrapList)},
		{name: "unwrapOpt", usage: "list.unwrapOpt()", member: true, apply: on1(unwrapList)},
		{name: "hasValue", usage: "x.?field.hasValue()", member: true, apply: hasValue},
		{name: "value", usage: "x.?field.value()", member: true, apply: on1(func(c *call, _ *evaluation, optional *Optional) (Value, *EvalError) {
			if optional.value == nil {
				return c.fault(KindMissingField, "write orValue(...) for a value to use instead", "the optional value is missing")
			}
			return optional.value, nil
		})},
		{name: "first", usage: "list.first()", member: true, apply: endOfList(func(items []Value) Value { return items[0] })},
		{name: "last", usage: "list.last()", member: true, apply: endOfList(func(items []Value) Value { return items[len(items)-1] })},
	}
}

func endOfList(pick func([]Value) Value) implementation {
	return on1(func(_ *call, _ *evaluation, list List) (Value, *EvalError) {
		if len(list.items) == 0 {
			return &Optional{}, nil
		}
		return &Optional{value: pick(list.items)}, nil
	})
}

func hasValue(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	optional, ok := args[0].(*Optional)
	if !ok {
		return c.mismatch(args)
	}
	if len(args) == 1 || optional.value == nil {
		return Bool(optional.value != nil), nil
	}
	same, fault := ev.equal(optional.value, args[1], c.at)
	return Bool(same), fault
}

func unwrapList(c *call, ev *evaluation, list List) (Value, *EvalError) {
	if fault := ev.allocate(valueBytes*len(list.items), c.at); fault != nil {
		return nil, fault
	}
	var items []Value
	for _, item := range list.items {
		optional, ok := item.(*Optional)
		if !ok {
			return c.mismatch([]Value{item})
		}
		if optional.value != nil {
			items = append(items, optional.value)
		}
	}
	return ev.newList(items, c.at)
}

func isZero(v Value) bool {
	switch v := v.(type) {
	case Null:
		return true
	case Bool, Int, String, Duration:
		return v == Bool(false) || v == Int(0) || v == String("") || v == Duration(0)
	case List:
		return len(v.items) == 0
	case *Object:
		return len(v.keys) == 0
	case *Optional:
		return v.value == nil
	}
	return false
}

// alternative is x.orValue(other) or x.or(other); other is evaluated only if x is missing.
type alternative struct {
	optional, other node
	keepOptional    bool // or: the result stays optional
	usage           *function
	at              position
}

var (
	orFunction      = &function{name: "or", usage: "x.?field.or(y.?field)"}
	orValueFunction = &function{name: "orValue", usage: "x.?field.orValue(default)"}
)

func (n *alternative) eval(ev *evaluation) (Value, *EvalError) {
	v, fault := n.optional.eval(ev)
	if fault != nil {
		return nil, fault
	}
	ev.cost--
	optional, ok := v.(*Optional)
	if !ok {
		return (&call{function: n.usage, at: n.at}).mismatch([]Value{v})
	}
	switch {
	case optional.value == nil:
		return n.other.eval(ev)
	case n.keepOptional:
		return optional, nil
	}
	return optional.value, nil
}
