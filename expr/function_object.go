package expr

import (
	"slices"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
)

func objectFunctions() []*function {
	maps := func(n int) []*cel.Type { return slices.Repeat([]*cel.Type{cel.MapType(stringType, anyType)}, n) }
	return []*function{
		{name: "merge", usage: "merge(object, object, ...)", gives: mapType,
			takes: [][]*cel.Type{maps(2), maps(3), maps(4), maps(5)}, apply: mergeObjects},
		{name: "without", usage: "without(object, 'key') or without(object, ['key', ...])", gives: mapType,
			takes: [][]*cel.Type{two(mapType, stringType), two(mapType, anyList)}, apply: withoutKeys},
		{name: "size", usage: "size(x), with a string, list or object", gives: intType,
			takes: [][]*cel.Type{one(stringType), one(listType), one(anyMap)}, apply: sizeOf},
		{name: "size", usage: "x.size(), with a string, list or object", member: true, gives: intType,
			takes: [][]*cel.Type{one(stringType), one(listType), one(anyMap)}, apply: sizeOf},
	}
}

func mergeObjects(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	var out *Object
	for i, arg := range args {
		object, fault := asObject(arg, c.at)
		if fault != nil {
			return nil, fault
		}
		if object == nil {
			return c.mismatch(args)
		}
		if i == 0 {
			out = object
			continue
		}
		if fault := ev.allocate(entryBytes*(len(out.keys)+len(object.keys)), c.at); fault != nil {
			return nil, fault
		}
		// Replaced values are measured and keys compared, so charge for the whole at most.
		if fault := ev.spend((out.inside.bytes+object.inside.bytes)/1024, c.at); fault != nil {
			return nil, fault
		}
		out = merge(out, object)
	}
	return out, nil
}

func withoutKeys(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	object, fault := asObject(args[0], c.at)
	if fault != nil {
		return nil, fault
	}
	var keys []string
	switch k := args[1].(type) {
	case String:
		if fault := ev.scan(string(k), c.at); fault != nil {
			return nil, fault
		}
		keys = []string{string(k)}
	case List:
		if fault := ev.allocate(valueBytes*len(k.items), c.at); fault != nil {
			return nil, fault
		}
		for _, item := range k.items {
			key, ok := item.(String)
			if !ok {
				return c.mismatch(args)
			}
			if fault := ev.scan(string(key), c.at); fault != nil {
				return nil, fault
			}
			keys = append(keys, string(key))
		}
		slices.Sort(keys)
	default:
		return c.mismatch(args)
	}
	if object == nil {
		return c.mismatch(args)
	}
	if fault := ev.allocate(entryBytes*len(object.keys), c.at); fault != nil {
		return nil, fault
	}
	if fault := ev.spend(object.inside.bytes/1024, c.at); fault != nil {
		return nil, fault
	}
	out := &Object{keys: make([]string, 0, len(object.keys)), values: make([]Value, 0, len(object.keys)), inside: object.inside}
	dropped := 0
	for i, key := range object.keys {
		if _, found := slices.BinarySearch(keys, key); found {
			m, fault := ev.weigh(object.values[i], c.at)
			if fault != nil {
				return nil, fault
			}
			out.inside.bytes -= m.bytes + 1 + stringLength(key) + 1
			dropped = max(dropped, m.depth)
			continue
		}
		out.keys, out.values = append(out.keys, key), append(out.values, object.values[i])
	}
	out.measureDepth(dropped)
	return out, nil
}

func sizeOf(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	switch v := args[0].(type) {
	case String:
		if fault := ev.scan(string(v), c.at); fault != nil {
			return nil, fault
		}
		return Int(utf8.RuneCountInString(string(v))), nil
	case List:
		return Int(len(v.items)), nil
	case *Object:
		return Int(len(v.keys)), nil
	}
	return c.mismatch(args)
}
