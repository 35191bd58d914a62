package expr

import (
	"slices"

	"cel.dev/cel-go/cel"
)

// sortByFunction is the expansion of the macro sortBy: it takes a list, and the key of each of its elements.
const sortByFunction = "@sortBy"

func listFunctions() []*function {
	return []*function{
		method("slice", "list.slice(start, end)", listType, on3(sliceList), three(listType, intType, intType)),
		method("flatten", "list.flatten([depth])", anyList, flattenList, one(listType), two(listType, intType)),
		method("reverse", "list.reverse() or string.reverse()", anyType, reverse, one(listType), one(stringType)),
		method("distinct", "list.distinct()", listType, on1(distinct), one(listType)),
		method("sort", "list.sort()", listType, on1(sortList), one(listType)),
		method("sum", "list.sum(), with a list of numbers", anyType, on1(sumList), one(listType)),
		{name: sortByFunction, usage: "list.sortBy(x, key)", gives: listType, takes: [][]*cel.Type{two(listType, otherList)}, apply: on2(sortBy)},
		{name: "lists.range", usage: "lists.range(count)", gives: cel.ListType(intType), takes: [][]*cel.Type{one(intType)}, apply: on1(rangeList)},
	}
}

// list charges for a new list of the length, and returns its storage.
func (ev *evaluation) list(length int, at position) ([]Value, *EvalError) {
	if fault := ev.reserve(0, length, valueBytes, at); fault != nil {
		return nil, fault
	}
	return make([]Value, 0, length), ev.spend(length/8, at)
}

func sliceList(c *call, ev *evaluation, list List, start, end Int) (Value, *EvalError) {
	if start < 0 || end < start || end > Int(len(list.items)) {
		return c.fault(KindIndex, "the end is the place after the last wanted element", "there is no part %d to %d in a list of %d elements", start, end, len(list.items))
	}
	return ev.newList(list.items[start:end:end], c.at)
}

func flattenList(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	list, isList := args[0].(List)
	depth, isInt := optionalArgument(args, 1, Int(1))
	if !isList || !isInt {
		return c.mismatch(args)
	}
	if depth < 0 {
		return c.fault(KindValue, "", "the depth must not be negative")
	}
	var out []Value
	var add func(items []Value, depth Int) *EvalError
	add = func(items []Value, depth Int) *EvalError {
		for _, item := range items {
			if inner, ok := item.(List); ok && depth > 0 {
				if fault := ev.spend(1, c.at); fault != nil {
					return fault
				}
				if fault := add(inner.items, depth-1); fault != nil {
					return fault
				}
				continue
			}
			if fault := ev.allocate(2*valueBytes, c.at); fault != nil {
				return fault
			}
			if fault := ev.spend(1, c.at); fault != nil {
				return fault
			}
			out = append(out, item)
		}
		return nil
	}
	if fault := add(list.items, depth); fault != nil {
		return nil, fault
	}
	return ev.newList(out, c.at)
}

func reverse(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	switch v := args[0].(type) {
	case List:
		items, fault := ev.list(len(v.items), c.at)
		if fault != nil {
			return nil, fault
		}
		items = append(items, v.items...)
		slices.Reverse(items)
		return List{items: items, inside: v.inside}, nil
	case String:
		if fault := ev.allocate(5*len(v), c.at); fault != nil {
			return nil, fault
		}
		runes := []rune(string(v))
		slices.Reverse(runes)
		return String(runes), nil
	}
	return c.mismatch(args)
}

// distinct keeps the first of equal elements. It finds scalars by hash, and compares only lists and objects one by one.
func distinct(c *call, ev *evaluation, list List) (Value, *EvalError) {
	items, fault := ev.list(len(list.items)*4, c.at)
	if fault != nil {
		return nil, fault
	}
	seen := make(map[Value]struct{}, len(list.items))
	var composite []Value
	for _, item := range list.items {
		if fault := ev.spend(1, c.at); fault != nil {
			return nil, fault
		}
		switch v := item.(type) {
		case Null, Bool, Int, Double, String, Duration, Type:
			if _, found := seen[v]; found {
				continue
			}
			seen[v] = struct{}{}
		default:
			found := false
			for _, other := range composite {
				if found, fault = ev.equal(item, other, c.at); fault != nil {
					return nil, fault
				}
				if found {
					break
				}
			}
			if found {
				continue
			}
			composite = append(composite, item)
		}
		items = append(items, item)
	}
	return ev.newList(items, c.at)
}

func sortList(c *call, ev *evaluation, list List) (Value, *EvalError) {
	return sortBy(c, ev, list, list)
}

// sortBy returns list in the order of keys; the sort is stable.
func sortBy(c *call, ev *evaluation, list, keys List) (Value, *EvalError) {
	items, fault := ev.list(2*len(list.items), c.at)
	if fault != nil {
		return nil, fault
	}
	places := make([]int, len(list.items))
	for i := range places {
		places[i] = i
	}
	var failed *EvalError
	slices.SortStableFunc(places, func(a, b int) int {
		if failed != nil {
			return 0
		}
		x, y := keys.items[a], keys.items[b]
		steps := 1
		if text, ok := x.(String); ok {
			steps += len(text) / 64
		}
		if failed = ev.spend(steps, c.at); failed != nil {
			return 0
		}
		result, ok := order(x, y)
		if !ok {
			_, failed = c.fault(KindType, "sort by keys that are all numbers, all strings or all times", "%s and %s have no order", Describe(x), Describe(y))
		}
		return result
	})
	if failed != nil {
		return nil, failed
	}
	for _, place := range places {
		items = append(items, list.items[place])
	}
	return List{items: items, inside: list.inside}, nil
}

func sumList(c *call, ev *evaluation, list List) (Value, *EvalError) {
	if fault := ev.spend(len(list.items), c.at); fault != nil {
		return nil, fault
	}
	var sum Value = Int(0)
	for i, item := range list.items {
		if !isNumber(item) {
			return c.fault(KindType, "", "the list has %s at place %d; only numbers are added", Describe(item), i)
		}
		var fault *EvalError
		if sum, fault = c.at.number(arithmetic('+', sum, item)); fault != nil {
			return nil, fault
		}
	}
	return sum, nil
}

func rangeList(c *call, ev *evaluation, count Int) (Value, *EvalError) {
	if count < 0 {
		return c.fault(KindValue, "", "the count must not be negative")
	}
	items, fault := ev.list(int(min(count, MaxMemory)), c.at)
	if fault != nil {
		return nil, fault
	}
	for i := range count {
		items = append(items, i)
	}
	return ev.newList(items, c.at)
}
