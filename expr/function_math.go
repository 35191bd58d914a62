package expr

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
)

func mathFunctions() []*function {
	number := [][]*cel.Type{one(cel.IntType), one(cel.DoubleType)}
	pairs := [][]*cel.Type{two(cel.IntType, cel.IntType), two(cel.IntType, cel.DoubleType), two(cel.DoubleType, cel.IntType), two(cel.DoubleType, cel.DoubleType)}
	extremes := [][]*cel.Type{one(cel.IntType), one(cel.DoubleType), one(listType)}
	for n := 2; n <= 5; n++ {
		extremes = append(extremes, slices.Repeat([]*cel.Type{anyType}, n))
	}
	rounding := func(name string, f func(float64) float64) *function {
		return &function{name: "math." + name, usage: "math." + name + "(number)", takes: number, gives: anyType, apply: roundNumber(f)}
	}
	bits := func(name string, f func(a, b int64) int64) *function {
		return &function{name: "math." + name, usage: "math." + name + "(int, int)", takes: [][]*cel.Type{two(intType, intType)}, gives: intType,
			apply: on2(func(_ *call, _ *evaluation, a, b Int) (Value, *EvalError) { return Int(f(int64(a), int64(b))), nil })}
	}
	return []*function{
		{name: "div", usage: "div(a, b)", takes: pairs, gives: anyType, apply: func(c *call, _ *evaluation, args []Value) (Value, *EvalError) {
			if !isNumber(args[0]) || !isNumber(args[1]) {
				return c.mismatch(args)
			}
			return c.at.number(arithmetic('\\', args[0], args[1]))
		}},
		{name: "math.greatest", usage: "math.greatest(a, b, ...) or math.greatest(list)", takes: extremes, gives: anyType, apply: extreme(1)},
		{name: "math.least", usage: "math.least(a, b, ...) or math.least(list)", takes: extremes, gives: anyType, apply: extreme(-1)},
		rounding("ceil", math.Ceil),
		rounding("floor", math.Floor),
		rounding("trunc", math.Trunc),
		{name: "math.round", usage: "math.round(number[, digits])", gives: anyType,
			takes: append(slices.Clone(number), two(cel.IntType, intType), two(cel.DoubleType, intType)), apply: roundTo},
		{name: "math.abs", usage: "math.abs(number)", takes: number, gives: anyType, apply: absolute},
		{name: "math.sign", usage: "math.sign(number)", takes: number, gives: intType, apply: func(c *call, _ *evaluation, args []Value) (Value, *EvalError) {
			if !isNumber(args[0]) {
				return c.mismatch(args)
			}
			return Int(compareNumbers(args[0], Int(0))), nil
		}},
		{name: "math.sqrt", usage: "math.sqrt(number)", takes: number, gives: anyType, apply: func(c *call, _ *evaluation, args []Value) (Value, *EvalError) {
			f, ok := float(args[0])
			if !ok {
				return c.mismatch(args)
			}
			if f < 0 {
				return c.fault(KindValue, "", "a negative number has no square root")
			}
			return finiteAt(c, math.Sqrt(f))
		}},
		bits("bitAnd", func(a, b int64) int64 { return a & b }),
		bits("bitOr", func(a, b int64) int64 { return a | b }),
		bits("bitXor", func(a, b int64) int64 { return a ^ b }),
	}
}

// extreme returns the greatest (1) or least (-1) of its arguments, or of the elements of a list.
func extreme(sign int) implementation {
	return func(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
		items := args
		if list, ok := args[0].(List); ok && len(args) == 1 {
			items = list.items
		}
		if len(items) == 0 {
			return c.fault(KindIndex, "test size(list) > 0 first", "the list is empty")
		}
		if fault := ev.spend(len(items), c.at); fault != nil {
			return nil, fault
		}
		best := items[0]
		for _, item := range items {
			if !isNumber(item) {
				return c.mismatch([]Value{item})
			}
			if compareNumbers(item, best) == sign {
				best = item
			}
		}
		return best, nil
	}
}

func roundNumber(f func(float64) float64) implementation {
	return func(c *call, _ *evaluation, args []Value) (Value, *EvalError) {
		switch v := args[0].(type) {
		case Int:
			return v, nil
		case Double:
			return number(f(float64(v))), nil
		}
		return c.mismatch(args)
	}
}

// roundTo rounds to the nearest number with this many digits after the point, halves away from zero. It rounds the
// decimal digits as written: 2.675 to two digits is 2.68, although the double is slightly less.
func roundTo(c *call, _ *evaluation, args []Value) (Value, *EvalError) {
	digits, isInt := optionalArgument(args, 1, Int(0))
	switch {
	case !isInt:
		return c.mismatch(args)
	case digits < 0 || digits > 15:
		return c.fault(KindValue, "", "the digits must be 0 to 15, not %d", digits)
	}
	switch v := args[0].(type) {
	case Int:
		return v, nil
	case Double:
		return parseNumber(roundDecimal(strconv.FormatFloat(float64(v), 'f', -1, 64), int(digits))), nil
	}
	return c.mismatch(args)
}

// roundDecimal rounds a number in decimal notation.
func roundDecimal(text string, digits int) string {
	point := strings.IndexByte(text, '.')
	if point < 0 || len(text)-point-1 <= digits {
		return text
	}
	up := text[point+1+digits] >= '5'
	out := []byte(text[:point+1+digits])
	for i := len(out) - 1; up && i >= 0; i-- {
		switch out[i] {
		case '.', '-':
		case '9':
			out[i] = '0'
		default:
			out[i]++
			up = false
		}
	}
	if up {
		sign := 0
		if out[0] == '-' {
			sign = 1
		}
		out = slices.Insert(out, sign, '1')
	}
	if rounded := strings.TrimSuffix(string(out), "."); rounded != "-0" {
		return rounded
	}
	return "0"
}

func absolute(c *call, _ *evaluation, args []Value) (Value, *EvalError) {
	switch v := args[0].(type) {
	case Int:
		if v < 0 {
			return c.at.number(intArithmetic('-', 0, int64(v)))
		}
		return v, nil
	case Double:
		return number(math.Abs(float64(v))), nil
	}
	return c.mismatch(args)
}
