package expr

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Value is an immutable value of the language. It is one of Null, Bool, Int, Double, String, Timestamp, Duration,
// List, *Object, *Event, *Optional and Type.
//
// Values may be shared freely between goroutines, with the exception of *Event.
type Value interface {
	// kind returns the value's kind, for messages and for type().
	kind() Type
}

type (
	// Null is JSON's null.
	Null struct{}
	// Bool is true or false.
	Bool bool
	// Int is a whole number that fits into 64 bits. There is no other form of such a number.
	Int int64
	// Double is a number that is not an Int: finite, and either with a fraction or beyond Int's range.
	Double float64
	// String is a string in UTF-8.
	String string
	// Timestamp is a moment, in UTC.
	Timestamp time.Time
	// Duration is a length of time.
	Duration time.Duration
	// Type is the result of type(x), written as in CEL: "int", "map", "null_type".
	Type string
)

// The kinds of values.
const (
	typeNull      Type = "null_type"
	typeBool      Type = "bool"
	typeInt       Type = "int"
	typeDouble    Type = "double"
	typeString    Type = "string"
	typeTimestamp Type = "timestamp"
	typeDuration  Type = "duration"
	typeList      Type = "list"
	typeObject    Type = "map"
	typeOptional  Type = "optional_type"
	typeType      Type = "type"
)

func (Null) kind() Type      { return typeNull }
func (Bool) kind() Type      { return typeBool }
func (Int) kind() Type       { return typeInt }
func (Double) kind() Type    { return typeDouble }
func (String) kind() Type    { return typeString }
func (Timestamp) kind() Type { return typeTimestamp }
func (Duration) kind() Type  { return typeDuration }
func (Type) kind() Type      { return typeType }
func (List) kind() Type      { return typeList }
func (*Object) kind() Type   { return typeObject }
func (*Event) kind() Type    { return typeObject }
func (*Optional) kind() Type { return typeOptional }

// List is a sequence of values.
type List struct {
	items  []Value
	inside measure // of the items
}

// NewList returns a list of items. It takes ownership of items.
func NewList(items ...Value) List {
	l := List{items: items}
	for _, item := range items {
		l.inside.add(measureOf(item))
	}
	return l
}

// Len returns the number of items.
func (l List) Len() int { return len(l.items) }

// At returns the item at index, which must be within 0 and Len()-1.
func (l List) At(index int) Value { return l.items[index] }

// Object is a JSON object: values by key, kept in the byte order of the keys.
type Object struct {
	keys   []string
	values []Value
	inside measure // of the entries
}

// NewObject returns an object with the entries of m.
func NewObject(m map[string]Value) *Object {
	o := &Object{keys: slices.Sorted(maps.Keys(m)), values: make([]Value, 0, len(m))}
	for _, key := range o.keys {
		o.values = append(o.values, m[key])
	}
	o.measure()
	return o
}

// measure measures all entries again.
func (o *Object) measure() {
	o.inside = measure{}
	for i, key := range o.keys {
		o.inside.add(measureOf(o.values[i]))
		o.inside.addKey(key)
	}
}

// Len returns the number of entries.
func (o *Object) Len() int { return len(o.keys) }

// Entry returns the entry at index in the order of the keys; index must be within 0 and Len()-1.
func (o *Object) Entry(index int) (key string, value Value) { return o.keys[index], o.values[index] }

// Get returns the value under key.
func (o *Object) Get(key string) (Value, bool) {
	if i, found := o.find(key); found {
		return o.values[i], true
	}
	return nil, false
}

// find returns the index of key, or where to insert it. Most objects are small: for them a scan beats bisection.
func (o *Object) find(key string) (int, bool) {
	if len(o.keys) > 12 {
		return slices.BinarySearch(o.keys, key)
	}
	for i, have := range o.keys {
		if have == key {
			return i, true
		}
		if have > key {
			return i, false
		}
	}
	return len(o.keys), false
}

// sortEntries sorts entries that were appended in any order by key; of several with one key the last stays. The caller
// must measure the object afterwards.
func (o *Object) sortEntries() {
	if ascending(o.keys) {
		return
	}
	order := make([]int, len(o.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(o.keys[a], o.keys[b]) })
	keys, values := make([]string, 0, len(order)), make([]Value, 0, len(order))
	for _, i := range order {
		if n := len(keys); n > 0 && keys[n-1] == o.keys[i] {
			values[n-1] = o.values[i]
			continue
		}
		keys, values = append(keys, o.keys[i]), append(values, o.values[i])
	}
	o.keys, o.values = keys, values
}

// ascending reports whether the keys are sorted and different.
func ascending(keys []string) bool {
	for i := 1; i < len(keys); i++ {
		if keys[i] <= keys[i-1] {
			return false
		}
	}
	return true
}

// merge returns the entries of both; b's win. Apart from copying, it takes time in proportion to b: the size of a is
// known, and only replaced entries are measured.
func merge(a, b *Object) *Object {
	out := &Object{
		keys:   make([]string, 0, len(a.keys)+len(b.keys)),
		values: make([]Value, 0, len(a.keys)+len(b.keys)),
		inside: a.inside,
	}
	out.inside.join(b.inside)
	i, j := 0, 0
	replaced := 0 // the depth of what b replaces
	for i < len(a.keys) && j < len(b.keys) {
		switch strings.Compare(a.keys[i], b.keys[j]) {
		case -1:
			out.keys, out.values = append(out.keys, a.keys[i]), append(out.values, a.values[i])
			i++
		case 0:
			old := measureOf(a.values[i])
			out.inside.bytes -= old.bytes + stringLength(a.keys[i]) + 2
			replaced = max(replaced, old.depth)
			i++
			fallthrough
		default:
			out.keys, out.values = append(out.keys, b.keys[j]), append(out.values, b.values[j])
			j++
		}
	}
	out.keys, out.values = append(out.keys, a.keys[i:]...), append(out.values, a.values[i:]...)
	out.keys, out.values = append(out.keys, b.keys[j:]...), append(out.values, b.values[j:]...)
	out.measureDepth(replaced)
	return out
}

// measureDepth corrects the known depth after values of that depth were removed.
func (o *Object) measureDepth(depth int) {
	if depth == 0 || depth < o.inside.depth {
		return // something deeper remains, or nothing was nested
	}
	o.inside.depth = 0
	for _, v := range o.values {
		switch v := v.(type) {
		case List:
			o.inside.depth = max(o.inside.depth, v.inside.depth+1)
		case *Object:
			o.inside.depth = max(o.inside.depth, v.inside.depth+1)
		}
	}
}

// Optional is a value that may be missing, as x.?field gives it.
type Optional struct {
	value Value // nil: missing
}

// Get returns the value; ok is false if it is missing.
func (o *Optional) Get() (v Value, ok bool) { return o.value, o.value != nil }

// settle turns v into the value that reading its JSON back would give: times become strings, an event an object. Only
// settled values leave this package, so that folds continue from a document in memory as from a stored one.
func settle(v Value) (Value, error) {
	switch v := v.(type) {
	case Timestamp, Duration:
		text, err := timeText(v)
		return String(text), err
	case *Event:
		return v.settled()
	case List:
		if !v.inside.foreign {
			return v, nil
		}
		items := make([]Value, len(v.items))
		for i, item := range v.items {
			settled, err := settle(item)
			if err != nil {
				return nil, err
			}
			items[i] = settled
		}
		return NewList(items...), nil
	case *Object:
		if !v.inside.foreign {
			return v, nil
		}
		values := make([]Value, len(v.values))
		for i, value := range v.values {
			settled, err := settle(value)
			if err != nil {
				return nil, err
			}
			values[i] = settled
		}
		o := &Object{keys: v.keys, values: values}
		o.measure()
		return o, nil
	case *Optional:
		return nil, &EvalError{Kind: KindType, Message: "an optional value cannot be part of a document", Hint: "unwrap it: doc.?field.orValue(0), or write {?'field': doc.?field} to leave the field out where it is missing"}
	case Type:
		return nil, &EvalError{Kind: KindType, Message: "a type cannot be part of a document", Hint: "write string(type(x)) for its name"}
	}
	return v, nil
}

// stringOf writes a value as a string: numbers as in JSON, a string as it is.
func stringOf(v Value) (string, *EvalError) {
	switch v := v.(type) {
	case String:
		return string(v), nil
	case Bool:
		return strconv.FormatBool(bool(v)), nil
	case Int, Double:
		return string(appendNumber(nil, v)), nil
	case Type:
		return string(v), nil
	case Timestamp, Duration:
		text, _ := timeText(v)
		return text, nil
	}
	return "", &EvalError{Kind: KindType, Message: Describe(v) + " has no form as a string"}
}

func timestamp(t time.Time) Timestamp { return Timestamp(t.UTC()) }

// descriptions are the kinds in words.
var descriptions = map[Type]string{
	typeNull: "null", typeBool: "a bool", typeInt: "an int", typeDouble: "a double", typeString: "a string", typeTimestamp: "a timestamp",
	typeDuration: "a duration", typeList: "a list", typeObject: "an object", typeOptional: "an optional value", typeType: "a type",
}

// Describe names a value's kind for a message: "a string", "an int".
func Describe(v Value) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case *Event:
		return "an event"
	default:
		return descriptions[v.kind()]
	}
}
