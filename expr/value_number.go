package expr

import (
	"cmp"
	"math"
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// number converts f to the only form of its value: Int if it is whole and fits, else Double. f must be finite.
func number(f float64) Value { return numberValue(domain.NumberOf(f)) }

// parseNumber reads a JSON number, as domain.ParseNumber says.
func parseNumber(text string) Value { return numberValue(domain.ParseNumber(text)) }

func numberValue(s domain.Scalar) Value {
	if s.Kind == domain.ScalarInt {
		return Int(s.Int)
	}
	return Double(s.Double)
}

// appendNumber writes a number as JSON, in the shortest form that reads back as the same value.
func appendNumber(dst []byte, v Value) []byte {
	switch v := v.(type) {
	case Int:
		return strconv.AppendInt(dst, int64(v), 10)
	case Double:
		return domain.AppendDouble(dst, float64(v))
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

// compareNumbers orders two numbers by their exact values. It compares numbers of one kind, the usual case, directly:
// converting both to domain.Scalar takes four times as long.
func compareNumbers(a, b Value) int {
	switch x := a.(type) {
	case Int:
		if y, same := b.(Int); same {
			return cmp.Compare(x, y)
		}
	case Double:
		if y, same := b.(Double); same {
			return cmp.Compare(x, y)
		}
	}
	return scalarOf(a).Compare(scalarOf(b))
}

// scalarOf returns a number as a scalar; null for any other value.
func scalarOf(v Value) domain.Scalar {
	switch v := v.(type) {
	case Int:
		return domain.Scalar{Kind: domain.ScalarInt, Int: int64(v)}
	case Double:
		return domain.Scalar{Kind: domain.ScalarDouble, Double: float64(v)}
	}
	return domain.Scalar{}
}

// problem says why an arithmetic operation failed; the operator adds the place.
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
	// If the division comes out even, it stays exact beyond 2^53.
	if x%y == 0 && (x != math.MinInt64 || y != -1) {
		return Int(x / y), nil
	}
	return finite(float64(x) / float64(y))
}
