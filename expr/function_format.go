package expr

import (
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"

	"github.com/manifold-es/manifold/expr/scan"
)

// maxFormatPrecision is how many digits after the point a format may have.
const maxFormatPrecision = 100

// format formats the clauses of a string, or a moment.
func format(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	if moment, ok := args[0].(Timestamp); ok {
		return formatTime(c, ev, time.Time(moment), args)
	}
	if len(args) != 2 {
		return c.mismatch(args)
	}
	return formatText(c, ev, args)
}

const (
	timeClauses    = "YCymBbhdejHkIlPpMSLfzAauwGgVUWsQnt%" // of strftime; those that depend on a locale or a zone's name are left out
	maxClauseBytes = 24                                    // the most that a clause writes, with room to spare
)

// formatTime is timestamp.format(pattern[, zone]): strftime's clauses, with %f for microseconds and %L for
// milliseconds.
func formatTime(c *call, ev *evaluation, moment time.Time, args []Value) (Value, *EvalError) {
	pattern, isPattern := args[1].(String)
	zone, isZone := optionalArgument(args, 2, String("UTC"))
	if !isPattern || !isZone {
		return c.mismatch(args)
	}
	if len(args) == 3 {
		offset, ok := zoneOffset(string(zone))
		if !ok {
			return c.badZone(string(zone))
		}
		moment = moment.In(time.FixedZone("", int(offset/time.Second)))
	}
	size := len(pattern)
	for rest := string(pattern); ; size += maxClauseBytes {
		var found bool
		if _, rest, found = strings.Cut(rest, "%"); !found {
			break
		}
		clause := strings.TrimPrefix(rest, "-")
		if strings.HasPrefix(rest, ":z") {
			clause = rest[1:]
		}
		if clause == "" || !strings.Contains(timeClauses, clause[:1]) {
			return c.fault(KindValue, "clauses are those of strftime, such as %Y-%m-%dT%H:%M:%S.%f%:z; write %% for a percent sign", "%q does not begin with a clause", scan.Clip("%"+rest))
		}
		rest = clause[1:]
	}
	if fault := ev.allocate(size, c.at); fault != nil {
		return nil, fault
	}
	return String(strftime.Format(string(pattern), moment)), nil
}

// formatText is '...'.format([...]): the clauses of CEL's string extension. %s any value, %d a whole number, %f and %e
// a number with %.2f's precision or 6, %x %X %o %b a whole number in another base, %% a percent sign.
func formatText(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	layout, isText := args[0].(String)
	list, isList := args[1].(List)
	if !isText || !isList {
		return c.mismatch(args)
	}
	if fault := ev.allocate(len(layout), c.at); fault != nil {
		return nil, fault
	}
	var out []byte
	next := 0
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			out = append(out, layout[i])
			continue
		}
		i++
		if i < len(layout) && layout[i] == '%' {
			out = append(out, '%')
			continue
		}
		precision := 6
		if i < len(layout) && layout[i] == '.' {
			end := i + 1
			for end < len(layout) && '0' <= layout[end] && layout[end] <= '9' {
				end++
			}
			digits, err := strconv.Atoi(string(layout[i+1 : end]))
			if err != nil || digits > maxFormatPrecision {
				return c.fault(KindValue, "write a precision as in %.2f", "the precision of a %% clause must be 0 to %d", maxFormatPrecision)
			}
			precision, i = digits, end
		}
		if i == len(layout) {
			return c.fault(KindValue, "write %% for a percent sign", "the string ends within a %% clause")
		}
		if next == len(list.items) {
			return c.fault(KindIndex, "", "there are more %% clauses than the %d values in the list", len(list.items))
		}
		// Only the text of a list or object can be long, and its length is known in advance.
		if fault := ev.allocate(measureOf(list.items[next]).bytes, c.at); fault != nil {
			return nil, fault
		}
		before := len(out)
		var fault *EvalError
		if out, fault = c.clause(out, layout[i], precision, list.items[next]); fault != nil {
			return nil, fault
		}
		if fault := ev.allocate(len(out)-before, c.at); fault != nil {
			return nil, fault
		}
		next++
	}
	if next < len(list.items) {
		return c.fault(KindIndex, "", "the list has %d values, but the string only %d %% clauses", len(list.items), next)
	}
	return String(out), nil
}

// clause appends v in the form of a clause.
func (n *call) clause(out []byte, verb byte, precision int, v Value) ([]byte, *EvalError) {
	switch verb {
	case 's':
		switch v := v.(type) {
		case List, *Object, *Event, Null:
			text, err := AppendJSON(nil, v)
			if err != nil {
				return nil, n.at.asFault(err)
			}
			return append(out, text...), nil
		}
		text, fault := stringOf(v)
		if fault != nil {
			return nil, n.at.asFault(fault)
		}
		return append(out, text...), nil
	case 'd':
		if i, ok := v.(Int); ok {
			return strconv.AppendInt(out, int64(i), 10), nil
		}
		return nil, n.at.fault(KindType, "write %s, %f or %.2f for other numbers", "%%d needs an int, not %s", Describe(v))
	case 'f', 'e':
		switch v := v.(type) {
		case Int:
			if verb == 'f' {
				return new(big.Float).SetInt64(int64(v)).Append(out, 'f', precision), nil
			}
			return strconv.AppendFloat(out, float64(v), 'e', precision, 64), nil
		case Double:
			return strconv.AppendFloat(out, float64(v), verb, precision, 64), nil
		}
		return nil, n.at.fault(KindType, "", "%%%c needs a number, not %s", verb, Describe(v))
	case 'x', 'X', 'o', 'b':
		i, ok := v.(Int)
		if !ok {
			return nil, n.at.fault(KindType, "", "%%%c needs an int, not %s", verb, Describe(v))
		}
		text := strconv.FormatInt(int64(i), map[byte]int{'x': 16, 'X': 16, 'o': 8, 'b': 2}[verb])
		if verb == 'X' {
			text = strings.ToUpper(text)
		}
		return append(out, text...), nil
	}
	return nil, n.at.fault(KindValue, "the clauses are %s %d %f %e %x %X %o %b, and %% for a percent sign", "format does not know %%%s", strconv.QuoteRune(rune(verb)))
}
