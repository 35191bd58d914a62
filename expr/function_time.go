package expr

import (
	"time"

	"cel.dev/cel-go/cel"

	"github.com/manifold-es/manifold/expr/scan"
)

func timeFunctions() []*function {
	part := func(name string, of func(time.Time) int) *function {
		return &function{name: name, usage: "timestamp." + name + "([zone])", member: true, gives: intType,
			takes: [][]*cel.Type{one(cel.TimestampType), two(cel.TimestampType, stringType)}, apply: timePart(of, nil)}
	}
	// These also accept a duration, and return all of it in that unit, except for milliseconds.
	unit := func(name string, of func(time.Time) int, ofDuration func(time.Duration) int) *function {
		f := part(name, of)
		f.usage = "timestamp." + name + "([zone]) or duration." + name + "()"
		f.takes = append(f.takes, one(cel.DurationType))
		f.apply = timePart(of, ofDuration)
		return f
	}
	return []*function{
		part("getFullYear", time.Time.Year),
		part("getMonth", func(t time.Time) int { return int(t.Month()) - 1 }),
		part("getDate", time.Time.Day),
		part("getDayOfMonth", func(t time.Time) int { return t.Day() - 1 }),
		part("getDayOfWeek", func(t time.Time) int { return int(t.Weekday()) }),
		part("getDayOfYear", func(t time.Time) int { return t.YearDay() - 1 }),
		unit("getHours", time.Time.Hour, func(d time.Duration) int { return int(d / time.Hour) }),
		unit("getMinutes", time.Time.Minute, func(d time.Duration) int { return int(d / time.Minute) }),
		unit("getSeconds", time.Time.Second, func(d time.Duration) int { return int(d / time.Second) }),
		unit("getMilliseconds", func(t time.Time) int { return t.Nanosecond() / 1e6 },
			func(d time.Duration) int { return int(d % time.Second / time.Millisecond) }),
	}
}

func timePart(of func(time.Time) int, ofDuration func(time.Duration) int) implementation {
	return func(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
		switch v := args[0].(type) {
		case Timestamp:
			t := time.Time(v)
			if len(args) == 2 {
				name, ok := args[1].(String)
				if !ok {
					return c.mismatch(args)
				}
				offset, ok := zoneOffset(string(name))
				if !ok {
					return c.badZone(string(name))
				}
				t = t.Add(offset)
			}
			return Int(of(t)), nil
		case Duration:
			if ofDuration != nil && len(args) == 1 {
				return Int(ofDuration(time.Duration(v))), nil
			}
		}
		return c.mismatch(args)
	}
}

func (n *call) badZone(name string) (Value, *EvalError) {
	return n.fault(KindValue, "write UTC or an offset such as '+01:00'", "%q is not a time zone that expressions know", scan.Clip(name))
}

// zoneOffset reads UTC, Z, or an offset such as +01:00 or -0530. It deliberately has no zone names: their rules change,
// and folding the same events again must give the same documents.
func zoneOffset(name string) (time.Duration, bool) {
	if name == "UTC" || name == "Z" || name == "" {
		return 0, name != ""
	}
	if name[0] >= '0' && name[0] <= '9' {
		name = "+" + name // CEL allows it
	}
	for _, layout := range []string{"-07:00", "-0700"} {
		if t, err := time.Parse(layout, name); err == nil {
			_, seconds := t.Zone()
			return time.Duration(seconds) * time.Second, true
		}
	}
	return 0, false
}
