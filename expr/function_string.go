package expr

import (
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
)

// Positions in a string are counted in code points from 0, as in CEL.
func stringFunctions() []*function {
	member := func(name, usage string, gives *cel.Type, apply func(*call, *evaluation, []Value) (Value, *EvalError), takes ...[]*cel.Type) *function {
		return &function{name: name, usage: usage, member: true, gives: gives, takes: takes, apply: apply}
	}
	search := func(name string, found func(text, part string) bool) *function {
		return member(name, "string."+name+"(part)", cel.BoolType, searchString(found), two(stringType, stringType))
	}
	change := func(name string, f func(string) string) *function {
		return member(name, "string."+name+"()", stringType, changeString(f), one(stringType))
	}
	return []*function{
		search("contains", strings.Contains),
		search("startsWith", strings.HasPrefix),
		search("endsWith", strings.HasSuffix),
		change("lowerAscii", lowerASCII),
		change("upperAscii", upperASCII),
		change("trim", strings.TrimSpace),
		member("charAt", "string.charAt(place)", stringType, charAt, two(stringType, intType)),
		member("indexOf", "string.indexOf(part[, start])", intType, indexOf, two(stringType, stringType), three(stringType, stringType, intType)),
		member("lastIndexOf", "string.lastIndexOf(part)", intType, lastIndexOf, two(stringType, stringType)),
		member("substring", "string.substring(start[, end])", stringType, substring, two(stringType, intType), three(stringType, intType, intType)),
		member("replace", "string.replace(old, new[, count])", stringType, replaceString, three(stringType, stringType, stringType),
			[]*cel.Type{stringType, stringType, stringType, intType}),
		member("split", "string.split(separator[, count])", cel.ListType(stringType), splitString, two(stringType, stringType), three(stringType, stringType, intType)),
		member("join", "list.join([separator]), with a list of strings", stringType, joinStrings, one(listType), two(listType, stringType)),
		member("format", "'%s: %d'.format([...]), or timestamp.format('%Y-%m-%d'[, zone])", stringType, format,
			two(stringType, anyList), two(cel.TimestampType, stringType), three(cel.TimestampType, stringType, stringType)),
		{name: "strings.quote", usage: "strings.quote(string)", gives: stringType, takes: [][]*cel.Type{one(stringType)}, apply: quoteString},
		member("matches", "string.matches(pattern)", cel.BoolType, matchString, two(stringType, stringType)),
		{name: "matches", usage: "matches(string, pattern)", gives: cel.BoolType, takes: [][]*cel.Type{two(stringType, stringType)}, apply: matchString},
	}
}

// stringArguments returns the first arguments as strings; ok is false if one of them is not a string.
func stringArguments(args []Value, n int) (a, b, c string, ok bool) {
	var out [3]string
	for i := range n {
		text, isText := args[i].(String)
		if !isText {
			return "", "", "", false
		}
		out[i] = string(text)
	}
	return out[0], out[1], out[2], true
}

func searchString(found func(text, part string) bool) func(*call, *evaluation, []Value) (Value, *EvalError) {
	return func(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
		text, part, _, ok := stringArguments(args, 2)
		if !ok {
			return c.mismatch(args)
		}
		if fault := ev.scan(text, c.at); fault != nil {
			return nil, fault
		}
		return Bool(found(text, part)), nil
	}
}

func changeString(change func(string) string) func(*call, *evaluation, []Value) (Value, *EvalError) {
	return func(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
		text, _, _, ok := stringArguments(args, 1)
		if !ok {
			return c.mismatch(args)
		}
		if fault := ev.allocate(len(text), c.at); fault != nil {
			return nil, fault
		}
		return String(change(text)), nil
	}
}

func lowerASCII(text string) string { return mapASCII(text, 'A', 'Z', 'a'-'A') }
func upperASCII(text string) string { return mapASCII(text, 'a', 'z', -('a' - 'A')) }

func mapASCII(text string, from, to byte, shift int) string {
	out := []byte(text)
	for i, c := range out {
		if from <= c && c <= to {
			out[i] = byte(int(c) + shift)
		}
	}
	return string(out)
}

// offset converts a position in code points to one in bytes. It returns false for a position outside text; the position
// after the last code point is inside.
func offset(text string, place Int) (int, bool) {
	if place < 0 {
		return 0, false
	}
	if int64(place) > int64(len(text)) {
		return 0, false
	}
	for i := range text {
		if place == 0 {
			return i, true
		}
		place--
	}
	return len(text), place == 0
}

func (n *call) outside(text string, place Int) (Value, *EvalError) {
	return n.fault(KindIndex, "", "there is no place %d in a string of %d characters", place, utf8.RuneCountInString(text))
}

func charAt(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, _, _, ok := stringArguments(args, 1)
	place, isInt := args[1].(Int)
	if !ok || !isInt {
		return c.mismatch(args)
	}
	if fault := ev.scan(text, c.at); fault != nil {
		return nil, fault
	}
	start, inside := offset(text, place)
	if !inside {
		return c.outside(text, place)
	}
	_, width := utf8.DecodeRuneInString(text[start:])
	return String(text[start : start+width]), nil
}

func indexOf(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, part, _, ok := stringArguments(args, 2)
	start, from := 0, Int(0)
	if len(args) == 3 {
		var isInt bool
		if from, isInt = args[2].(Int); !isInt {
			ok = false
		}
	}
	if !ok {
		return c.mismatch(args)
	}
	if fault := ev.scan(text, c.at); fault != nil {
		return nil, fault
	}
	start, inside := offset(text, from)
	if !inside {
		return c.outside(text, from)
	}
	at := strings.Index(text[start:], part)
	if at < 0 {
		return Int(-1), nil
	}
	return from + Int(utf8.RuneCountInString(text[start:start+at])), nil
}

func lastIndexOf(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, part, _, ok := stringArguments(args, 2)
	if !ok {
		return c.mismatch(args)
	}
	if fault := ev.scan(text, c.at); fault != nil {
		return nil, fault
	}
	at := strings.LastIndex(text, part)
	if at < 0 {
		return Int(-1), nil
	}
	return Int(utf8.RuneCountInString(text[:at])), nil
}

func substring(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, _, _, ok := stringArguments(args, 1)
	from, isInt := args[1].(Int)
	if !ok || !isInt {
		return c.mismatch(args)
	}
	if fault := ev.scan(text, c.at); fault != nil {
		return nil, fault
	}
	start, inside := offset(text, from)
	if !inside {
		return c.outside(text, from)
	}
	end := len(text)
	if len(args) == 3 {
		to, isInt := args[2].(Int)
		if !isInt {
			return c.mismatch(args)
		}
		if end, inside = offset(text, to); !inside {
			return c.outside(text, to)
		}
		if end < start {
			return c.fault(KindIndex, "", "the end %d lies before the start %d", to, from)
		}
	}
	// A part of a string shares its memory: nothing is allocated.
	return String(text[start:end]), nil
}

func replaceString(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, old, replacement, ok := stringArguments(args, 3)
	limit := -1
	if len(args) == 4 {
		count, isInt := args[3].(Int)
		ok = ok && isInt
		limit = clampCount(count)
	}
	if !ok {
		return c.mismatch(args)
	}
	if fault := ev.scan(text, c.at); fault != nil {
		return nil, fault
	}
	count := strings.Count(text, old)
	if limit >= 0 {
		count = min(count, limit)
	}
	if fault := ev.reserve(len(text), count, len(replacement), c.at); fault != nil {
		return nil, fault
	}
	return String(strings.Replace(text, old, replacement, limit)), nil
}

// clampCount reads a count of pieces; negative means all.
func clampCount(count Int) int {
	return int(max(-1, min(count, MaxMemory)))
}

func splitString(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, separator, _, ok := stringArguments(args, 2)
	limit := -1
	if len(args) == 3 {
		count, isInt := args[2].(Int)
		ok = ok && isInt
		limit = clampCount(count)
	}
	if !ok {
		return c.mismatch(args)
	}
	if fault := ev.scan(text, c.at); fault != nil {
		return nil, fault
	}
	pieces := strings.Count(text, separator) + 1
	if limit >= 0 {
		pieces = min(pieces, limit)
	}
	if fault := ev.reserve(0, pieces, 3*valueBytes, c.at); fault != nil {
		return nil, fault
	}
	items := make([]Value, 0, pieces)
	for _, piece := range strings.SplitN(text, separator, limit) {
		items = append(items, String(piece))
	}
	return ev.newList(items, c.at)
}

func joinStrings(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	list, ok := args[0].(List)
	separator := String("")
	if len(args) == 2 {
		var isText bool
		separator, isText = args[1].(String)
		ok = ok && isText
	}
	if !ok {
		return c.mismatch(args)
	}
	if fault := ev.reserve(0, len(list.items), len(separator)+1, c.at); fault != nil {
		return nil, fault
	}
	var b strings.Builder
	for i, item := range list.items {
		text, ok := item.(String)
		if !ok {
			return c.fault(KindType, "write list.map(x, string(x)).join(', ')", "the list has %s at place %d; only strings are joined", Describe(item), i)
		}
		if i > 0 {
			b.WriteString(string(separator))
		}
		if fault := ev.allocate(len(text), c.at); fault != nil {
			return nil, fault
		}
		b.WriteString(string(text))
	}
	return String(b.String()), nil
}

func quoteString(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, _, _, ok := stringArguments(args, 1)
	if !ok {
		return c.mismatch(args)
	}
	if fault := ev.allocate(2*len(text)+2, c.at); fault != nil {
		return nil, fault
	}
	var b strings.Builder
	b.Grow(2*len(text) + 2)
	b.WriteByte('"')
	for _, r := range text {
		at := -1
		if r < ' ' || r == '"' || r == '\\' {
			at = strings.IndexRune("\a\b\f\n\r\t\v\\\"", r)
		}
		if at >= 0 {
			b.WriteByte('\\')
			b.WriteByte(`abfnrtv\"`[at])
			continue
		}
		b.WriteRune(r)
	}
	b.WriteByte('"')
	return String(b.String()), nil
}
