package expr

import (
	"cmp"
	"math"
	"math/big"
	"strconv"
)

// number brings f into the one form that its value has: Int where it is whole and fits, else Double. f must be finite.
func number(f float64) Value {
	// 2^63 itself is the first float that no longer fits.
	if f >= -1<<63 && f < 1<<63 && f == math.Trunc(f) {
		return Int(f)
	}
	return Double(f)
}

// maxExactDigits bounds the text for which parseNumber looks beyond the nearest double.
const maxExactDigits = 400

// parseNumber reads a JSON number: an Int where its value is whole and fits, else the nearest double. One beyond the
// range of doubles counts as the largest double, so that a number that nobody can mean does not stop a projection.
func parseNumber(text string) Value {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return Int(i)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Double(math.Copysign(math.MaxFloat64, f))
	}
	// Numbers such as 9007199254740993.0 are whole, but no double has their value.
	if abs := math.Abs(f); abs >= 1<<53 && abs <= 1<<63 && len(text) <= maxExactDigits {
		if exact, ok := new(big.Rat).SetString(text); ok && exact.IsInt() && exact.Num().IsInt64() {
			return Int(exact.Num().Int64())
		}
	}
	return number(f)
}

// appendNumber writes a number as JSON, in the shortest form that reads back as the same value.
func appendNumber(dst []byte, v Value) []byte {
	switch v := v.(type) {
	case Int:
		return strconv.AppendInt(dst, int64(v), 10)
	case Double:
		f := float64(v)
		format := byte('f')
		if abs := math.Abs(f); abs < 1e-6 || abs >= 1e21 {
			format = 'e'
		}
		return strconv.AppendFloat(dst, f, format, -1, 64)
	}
	return dst
}

// float is the value as a double: exact for a Double, nearest for an Int.
func float(v Value) (float64, bool) {
	switch v := v.(type) {
	case Int:
		return float64(v), true
	case Double:
		return float64(v), true
	}
	return 0, false
}

func isNumber(v Value) bool {
	switch v.(type) {
	case Int, Double:
		return true
	}
	return false
}

// compareNumbers orders two numbers by their exact values. A Double never equals an Int, by its definition.
func compareNumbers(a, b Value) int {
	switch a := a.(type) {
	case Int:
		switch b := b.(type) {
		case Int:
			return cmp.Compare(a, b)
		case Double:
			return -compareDoubleInt(float64(b), int64(a))
		}
	case Double:
		switch b := b.(type) {
		case Int:
			return compareDoubleInt(float64(a), int64(b))
		case Double:
			return cmp.Compare(a, b)
		}
	}
	return 0
}

func compareDoubleInt(f float64, i int64) int {
	switch {
	case f >= 1<<63:
		return 1
	case f < -1<<63:
		return -1
	}
	whole := math.Trunc(f)
	if order := cmp.Compare(int64(whole), i); order != 0 {
		return order
	}
	return cmp.Compare(f, whole)
}

// problem says why numbers could not be calculated with; the operator adds the place.
type problem struct {
	kind    Kind
	message string
	hint    string
}

var (
	intOverflow    = problem{KindOverflow, "the result does not fit into a whole number of 64 bits", "where approximate numbers will do, add a fraction early: double arithmetic begins where an operand has one"}
	doubleOverflow = problem{KindOverflow, "the result is too large for a number", ""}
	divisionByZero = problem{KindDivision, "division by zero", "test for it: b == 0 ? 0 : a / b"}
	notWhole       = problem{KindType, "% needs whole numbers", "write int(a) % int(b), or a - b * div(a, b)"}
)

func finite(f float64) (Value, *problem) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, &doubleOverflow
	}
	return number(f), nil
}

// arithmetic applies one of + - * / % to two numbers. div, which truncates, is written as '\\'.
func arithmetic(operator byte, a, b Value) (Value, *problem) {
	x, aInt := a.(Int)
	y, bInt := b.(Int)
	if aInt && bInt {
		return intArithmetic(operator, int64(x), int64(y))
	}
	f, _ := float(a)
	g, _ := float(b)
	switch operator {
	case '+':
		return finite(f + g)
	case '-':
		return finite(f - g)
	case '*':
		return finite(f * g)
	case '%':
		return nil, &notWhole
	}
	if g == 0 {
		return nil, &divisionByZero
	}
	if operator == '\\' {
		return finite(math.Trunc(f / g))
	}
	return finite(f / g)
}

func intArithmetic(operator byte, x, y int64) (Value, *problem) {
	switch operator {
	case '+':
		sum := x + y
		if (x > 0 && y > 0 && sum <= 0) || (x < 0 && y < 0 && sum >= 0) {
			return nil, &intOverflow
		}
		return Int(sum), nil
	case '-':
		difference := x - y
		if (x >= 0 && y < 0 && difference < 0) || (x < 0 && y > 0 && difference >= 0) {
			return nil, &intOverflow
		}
		return Int(difference), nil
	case '*':
		if x == 0 || y == 0 {
			return Int(0), nil
		}
		product := x * y
		if product/y != x || (x == -1 && y == math.MinInt64) || (y == -1 && x == math.MinInt64) {
			return nil, &intOverflow
		}
		return Int(product), nil
	}
	if y == 0 {
		return nil, &divisionByZero
	}
	switch operator {
	case '%':
		return Int(x % y), nil
	case '\\':
		if x == math.MinInt64 && y == -1 {
			return nil, &intOverflow
		}
		return Int(x / y), nil
	}
	// Where the division comes out even, it stays exact beyond 2^53.
	if x%y == 0 && (x != math.MinInt64 || y != -1) {
		return Int(x / y), nil
	}
	return finite(float64(x) / float64(y))
}
