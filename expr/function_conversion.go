package expr

import (
	"math"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/cel"

	"github.com/manifold-es/manifold/expr/scan"
)

func conversionFunctions() []*function {
	return []*function{
		{name: "int", usage: "int(x), with a number, a string such as '12', or a timestamp (seconds since 1970)", gives: intType,
			takes: [][]*cel.Type{one(cel.IntType), one(cel.DoubleType), one(stringType), one(cel.TimestampType), one(cel.DurationType)}, apply: toInt},
		{name: "double", usage: "double(x), with a number or a string such as '1.5'", gives: cel.DoubleType,
			takes: [][]*cel.Type{one(cel.IntType), one(cel.DoubleType), one(stringType)}, apply: toDouble},
		{name: "string", usage: "string(x), with a number, bool, string, timestamp, duration or type", gives: stringType,
			takes: [][]*cel.Type{one(anyType)}, apply: toString},
		{name: "bool", usage: "bool(x), with 'true' or 'false'", gives: cel.BoolType,
			takes: [][]*cel.Type{one(cel.BoolType), one(stringType)}, apply: toBool},
		{name: "timestamp", usage: "timestamp(x), with a string such as '2026-01-31T12:00:00Z', or seconds since 1970", gives: cel.TimestampType,
			takes: [][]*cel.Type{one(cel.TimestampType), one(stringType), one(intType)}, apply: toTimestamp},
		{name: "duration", usage: "duration(x), with a string such as '1h30m'", gives: cel.DurationType,
			takes: [][]*cel.Type{one(cel.DurationType), one(stringType)}, apply: toDuration},
		{name: "type", usage: "type(x)", gives: cel.TypeType,
			takes: [][]*cel.Type{one(anyType)}, apply: typeOf},
		{name: "dyn", usage: "dyn(x)", gives: anyType,
			takes: [][]*cel.Type{one(anyType)}, apply: func(_ *call, _ *evaluation, args []Value) (Value, *EvalError) { return args[0], nil }},
	}
}

// read charges for reading a number or time from a string.
func (ev *evaluation) read(v Value, at position) *EvalError {
	if text, ok := v.(String); ok {
		return ev.scan(string(text), at)
	}
	return nil
}

func toInt(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	if fault := ev.read(args[0], c.at); fault != nil {
		return nil, fault
	}
	switch v := args[0].(type) {
	case Int:
		return v, nil
	case Double:
		whole := number(math.Trunc(float64(v)))
		if i, ok := whole.(Int); ok {
			return i, nil
		}
		return c.fault(KindOverflow, "", "the number does not fit into a whole number of 64 bits")
	case String:
		i, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			return c.fault(KindValue, "", "%q is not a whole number of 64 bits", scan.Clip(string(v)))
		}
		return Int(i), nil
	case Timestamp:
		return Int(time.Time(v).Unix()), nil
	case Duration:
		return Int(v), nil
	}
	return c.mismatch(args)
}

// maxDigits is the longest string that is read as a number.
const maxDigits = 400

func toDouble(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	if fault := ev.read(args[0], c.at); fault != nil {
		return nil, fault
	}
	switch v := args[0].(type) {
	case Int, Double:
		return v, nil
	case String:
		if len(v) > maxDigits {
			return c.fault(KindValue, "", "%q is not a number", scan.Clip(string(v)))
		}
		// Go accepts more than JSON numbers: hexadecimal, infinities, underscores.
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil || strings.Trim(string(v), "0123456789+-.eE") != "" {
			return c.fault(KindValue, "", "%q is not a number", scan.Clip(string(v)))
		}
		return finiteAt(c, f)
	}
	return c.mismatch(args)
}

// finiteAt returns the result of a numeric function.
func finiteAt(c *call, f float64) (Value, *EvalError) {
	v, problem := finite(f)
	return c.at.number(v, problem)
}

func toString(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	text, fault := stringOf(args[0])
	if fault != nil {
		return c.mismatch(args)
	}
	return c.text(ev, text)
}

func toBool(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	if fault := ev.read(args[0], c.at); fault != nil {
		return nil, fault
	}
	switch v := args[0].(type) {
	case Bool:
		return v, nil
	case String:
		if v == "true" || v == "false" {
			return Bool(v == "true"), nil
		}
		return c.fault(KindValue, "", "%q is neither 'true' nor 'false'", scan.Clip(string(v)))
	}
	return c.mismatch(args)
}

func toTimestamp(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	if fault := ev.read(args[0], c.at); fault != nil {
		return nil, fault
	}
	switch v := args[0].(type) {
	case Timestamp:
		return v, nil
	case Int:
		// Beyond this, seconds since 1970 would overflow before the year can be checked.
		if v < -1<<40 || v > 1<<40 {
			return c.fault(KindOverflow, "", "the timestamp is out of range: its year must be 1 to 9999")
		}
		return c.at.moment(time.Unix(int64(v), 0))
	case String:
		t, err := time.Parse(time.RFC3339Nano, string(v))
		if err != nil {
			return c.fault(KindValue, "write it as in 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+01:00", "%q is not a time", scan.Clip(string(v)))
		}
		return c.at.moment(t)
	}
	return c.mismatch(args)
}

func toDuration(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
	if fault := ev.read(args[0], c.at); fault != nil {
		return nil, fault
	}
	switch v := args[0].(type) {
	case Duration:
		return v, nil
	case String:
		d, err := time.ParseDuration(string(v))
		if err != nil {
			return c.fault(KindValue, "write it with units: 1h30m, 90s, 250ms", "%q is not a duration", scan.Clip(string(v)))
		}
		return Duration(d), nil
	}
	return c.mismatch(args)
}

func typeOf(_ *call, _ *evaluation, args []Value) (Value, *EvalError) { return args[0].kind(), nil }
