package expr

import (
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
)

// Positions in a string are counted in code points from 0, as in CEL.
func stringFunctions() []*function {
	search := func(name string, found func(text, part string) bool) *function {
		return method(name, "string."+name+"(part)", cel.BoolType, on2(searchString(found)), two(stringType, stringType))
	}
	change := func(name string, f func(string) string) *function {
		return method(name, "string."+name+"()", stringType, on1(changeString(f)), one(stringType))
	}
	return []*function{
		search("contains", strings.Contains),
		search("startsWith", strings.HasPrefix),
		search("endsWith", strings.HasSuffix),
		change("lowerAscii", lowerASCII),
		change("upperAscii", upperASCII),
		change("trim", strings.TrimSpace),
		method("charAt", "string.charAt(place)", stringType, on2(charAt), two(stringType, intType)),
		method("indexOf", "string.indexOf(part[, start])", intType, indexOf, two(stringType, stringType), three(stringType, stringType, intType)),
		method("lastIndexOf", "string.lastIndexOf(part)", intType, on2(lastIndexOf), two(stringType, stringType)),
		method("substring", "string.substring(start[, end])", stringType, substring, two(stringType, intType), three(stringType, intType, intType)),
		method("replace", "string.replace(old, new[, count])", stringType, replaceString, three(stringType, stringType, stringType),
			[]*cel.Type{stringType, stringType, stringType, intType}),
		method("split", "string.split(separator[, count])", cel.ListType(stringType), splitString, two(stringType, stringType), three(stringType, stringType, intType)),
		method("join", "list.join([separator]), with a list of strings", stringType, joinStrings, one(listType), two(listType, stringType)),
		method("format", "'%s: %d'.format([...]), or timestamp.format('%Y-%m-%d'[, zone])", stringType, format,
			two(stringType, anyList), two(cel.TimestampType, stringType), three(cel.TimestampType, stringType, stringType)),
		{name: "strings.quote", usage: "strings.quote(string)", gives: stringType, takes: [][]*cel.Type{one(stringType)}, apply: on1(quoteString)},
		method("matches", "string.matches(pattern)", cel.BoolType, on2(matchString), two(stringType, stringType)),
		{name: "matches", usage: "matches(string, pattern)", gives: cel.BoolType, takes: [][]*cel.Type{two(stringType, stringType)}, apply: on2(matchString)},
	}
}

func searchString(found func(text, part string) bool) func(*call, *evaluation, String, String) (Value, *EvalError) {
	return func(c *call, ev *evaluation, text, part String) (Value, *EvalError) {
		if fault := ev.scan(string(text), c.at); fault != nil {
			return nil, fault
		}
		return Bool(found(string(text), string(part))), nil
	}
}

func changeString(change func(string) string) func(*call, *evaluation, String) (Value, *EvalError) {
	return func(c *call, ev *evaluation, text String) (Value, *EvalError) {
		if fault := ev.allocate(len(text), c.at); fault != nil {
			return nil, fault
		}
		return String(change(string(text))), nil
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
	if place < 0 || place > Int(len(text)) {
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

func charAt(c *call, ev *evaluation, text String, place Int) (Value, *EvalError) {
	if fault := ev.scan(string(text), c.at); fault != nil {
		return nil, fault
	}
	start, inside := offset(string(text), place)
	if !inside {
		return c.outside(string(text), place)
	}
	_, width := utf8.DecodeRuneInString(string(text[start:]))
	return text[start : start+width], nil
}

func indexOf(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, isText := args[0].(String)
	part, isPart := args[1].(String)
	from, isPlace := optionalArgument(args, 2, Int(0))
	if !isText || !isPart || !isPlace {
		return c.mismatch(args)
	}
	if fault := ev.scan(string(text), c.at); fault != nil {
		return nil, fault
	}
	start, inside := offset(string(text), from)
	if !inside {
		return c.outside(string(text), from)
	}
	at := strings.Index(string(text[start:]), string(part))
	if at < 0 {
		return Int(-1), nil
	}
	return from + Int(utf8.RuneCountInString(string(text[start:start+at]))), nil
}

func lastIndexOf(c *call, ev *evaluation, text, part String) (Value, *EvalError) {
	if fault := ev.scan(string(text), c.at); fault != nil {
		return nil, fault
	}
	at := strings.LastIndex(string(text), string(part))
	if at < 0 {
		return Int(-1), nil
	}
	return Int(utf8.RuneCountInString(string(text[:at]))), nil
}

func substring(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, isText := args[0].(String)
	from, isPlace := args[1].(Int)
	if !isText || !isPlace {
		return c.mismatch(args)
	}
	if fault := ev.scan(string(text), c.at); fault != nil {
		return nil, fault
	}
	start, inside := offset(string(text), from)
	if !inside {
		return c.outside(string(text), from)
	}
	end := len(text)
	if len(args) == 3 {
		to, isPlace := args[2].(Int)
		if !isPlace {
			return c.mismatch(args)
		}
		if end, inside = offset(string(text), to); !inside {
			return c.outside(string(text), to)
		}
		if end < start {
			return c.fault(KindIndex, "", "the end %d lies before the start %d", to, from)
		}
	}
	// A part of a string shares its memory: nothing is allocated.
	return text[start:end], nil
}

func replaceString(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, isText := args[0].(String)
	old, isOld := args[1].(String)
	replacement, isNew := args[2].(String)
	limit, isCount := optionalArgument(args, 3, Int(-1))
	if !isText || !isOld || !isNew || !isCount {
		return c.mismatch(args)
	}
	if fault := ev.scan(string(text), c.at); fault != nil {
		return nil, fault
	}
	count := atMost(limit, strings.Count(string(text), string(old)))
	if fault := ev.reserve(len(text), count, len(replacement), c.at); fault != nil {
		return nil, fault
	}
	return String(strings.Replace(string(text), string(old), string(replacement), count)), nil
}

// atMost limits a count of pieces; a negative limit means all.
func atMost(limit Int, count int) int {
	if limit < 0 {
		return count
	}
	return int(min(limit, Int(count)))
}

func splitString(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, isText := args[0].(String)
	separator, isSeparator := args[1].(String)
	limit, isCount := optionalArgument(args, 2, Int(-1))
	if !isText || !isSeparator || !isCount {
		return c.mismatch(args)
	}
	if fault := ev.scan(string(text), c.at); fault != nil {
		return nil, fault
	}
	pieces := atMost(limit, strings.Count(string(text), string(separator))+1)
	if fault := ev.reserve(0, pieces, 3*valueBytes, c.at); fault != nil {
		return nil, fault
	}
	items := make([]Value, 0, pieces)
	for _, piece := range strings.SplitN(string(text), string(separator), pieces) {
		items = append(items, String(piece))
	}
	return ev.newList(items, c.at)
}

func joinStrings(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	list, isList := args[0].(List)
	separator, isText := optionalArgument(args, 1, String(""))
	if !isList || !isText {
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

func quoteString(c *call, ev *evaluation, text String) (Value, *EvalError) {
	if fault := ev.allocate(2*len(text)+2, c.at); fault != nil {
		return nil, fault
	}
	var b strings.Builder
	b.Grow(2*len(text) + 2)
	b.WriteByte('"')
	for _, r := range string(text) {
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
