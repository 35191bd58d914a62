package expr

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// numberValues draws numbers of both kinds, with a bias to where the kinds meet: near powers of two and at the ends.
func numberValues() *rapid.Generator[Value] {
	interesting := rapid.SampledFrom([]float64{0, 1, 0.5, 0.1, 1 << 53, 1<<53 + 2, 1 << 62, 1 << 63, -1 << 63, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e21, 1e-7, 123456.789})
	return rapid.OneOf(
		rapid.Map(rapid.Int64(), func(i int64) Value { return Int(i) }),
		rapid.Map(rapid.Int64Range(-1000, 1000), func(i int64) Value { return Int(i) }),
		rapid.Map(rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1, 1<<53 + 1, -(1<<53 + 1), -1, 0}), func(i int64) Value { return Int(i) }),
		rapid.Map(rapid.Float64(), func(f float64) Value { v, _ := finite(f); return v }).Filter(func(v Value) bool { return v != nil }),
		rapid.Map(interesting, number),
		rapid.Map(interesting, func(f float64) Value { return number(-f) }),
	)
}

func rational(v Value) *big.Rat {
	switch v := v.(type) {
	case Int:
		return new(big.Rat).SetInt64(int64(v))
	case Double:
		return new(big.Rat).SetFloat64(float64(v))
	}
	panic(fmt.Sprintf("%T is not a number", v))
}

func isCanonical(v Value) bool {
	d, isDouble := v.(Double)
	f := float64(d)
	return !isDouble || !math.IsInf(f, 0) && !math.IsNaN(f) && (f != math.Trunc(f) || f >= 1<<63 || f < -1<<63)
}

func TestNumbersCompareByTheirExactValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := numberValues().Draw(t, "a"), numberValues().Draw(t, "b")
		want := rational(a).Cmp(rational(b))
		if got := compareNumbers(a, b); got != want {
			t.Fatalf("compare %v with %v: %d, want %d", a, b, got, want)
		}
		ev := &evaluation{cost: MaxCost, limit: MaxCost}
		if same, fault := ev.equal(a, b, position{}); fault != nil || same != (want == 0) {
			t.Fatalf("%v == %v: %v %v, want %v", a, b, same, fault, want == 0)
		}
	})
}

func TestArithmeticAgreesWithBigNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := numberValues().Draw(t, "a"), numberValues().Draw(t, "b")
		x, aInt := a.(Int)
		y, bInt := b.(Int)
		for _, operator := range []byte("+-*/%\\") {
			got, problem := arithmetic(operator, a, b)
			if problem == nil && !isCanonical(got) {
				t.Fatalf("%v %c %v gives %v (%T), which should be an int", a, operator, b, got, got)
			}
			if rational(b).Sign() == 0 && operator != '+' && operator != '-' && operator != '*' && (operator != '%' || aInt && bInt) {
				if problem != &divisionByZero {
					t.Fatalf("%v %c %v: %v %v, want a division by zero", a, operator, b, got, problem)
				}
				continue
			}
			if aInt && bInt && operator != '/' {
				checkExact(t, operator, x, y, got, problem)
				continue
			}
			if operator == '%' {
				if problem != &notWhole {
					t.Fatalf("%v %% %v: %v, want a fault", a, b, got)
				}
				continue
			}
			checkRounded(t, operator, a, b, got, problem)
		}
	})
}

// checkExact holds an operation on ints against big integers.
func checkExact(t *rapid.T, operator byte, x, y Int, got Value, problem *problem) {
	a, b, want := big.NewInt(int64(x)), big.NewInt(int64(y)), new(big.Int)
	switch operator {
	case '+':
		want.Add(a, b)
	case '-':
		want.Sub(a, b)
	case '*':
		want.Mul(a, b)
	case '%':
		want.Rem(a, b)
	case '\\':
		want.Quo(a, b)
	}
	switch {
	case want.IsInt64() && (problem != nil || got != Int(want.Int64())):
		t.Fatalf("%d %c %d: %v %v, want %v", x, operator, y, got, problem, want)
	case !want.IsInt64() && problem != &intOverflow:
		t.Fatalf("%d %c %d: %v, want an overflow", x, operator, y, got)
	}
}

// checkRounded holds an operation with doubles against the exact result on the operands as doubles, rounded once.
func checkRounded(t *rapid.T, operator byte, a, b Value, got Value, problem *problem) {
	f, _ := float(a)
	g, _ := float(b)
	x, y := new(big.Rat).SetFloat64(f), new(big.Rat).SetFloat64(g)
	exact := new(big.Rat)
	switch operator {
	case '+':
		exact.Add(x, y)
	case '-':
		exact.Sub(x, y)
	case '*':
		exact.Mul(x, y)
	case '/', '\\':
		exact.Quo(rational(a), rational(b))
		if _, isInt := a.(Int); !isInt || operator == '\\' {
			exact.Quo(x, y)
		} else if _, isInt := b.(Int); !isInt {
			exact.Quo(x, y)
		} else if !exact.IsInt() || !exact.Num().IsInt64() {
			exact.Quo(x, y)
		}
	}
	if exact.IsInt() && exact.Num().IsInt64() && operator == '/' {
		if got != Int(exact.Num().Int64()) {
			if _, isInt := a.(Int); isInt {
				t.Fatalf("%v / %v: %v, want %v", a, b, got, exact)
			}
		}
		return
	}
	want, _ := exact.Float64()
	if operator == '\\' {
		want = math.Trunc(want)
	}
	if math.IsInf(want, 0) {
		if problem != &doubleOverflow {
			t.Fatalf("%v %c %v: %v, want an overflow", a, operator, b, got)
		}
		return
	}
	if problem != nil || got != number(want) {
		t.Fatalf("%v %c %v: %v %v, want %v", a, operator, b, got, problem, number(want))
	}
}

func TestNumbersReadAndWriteAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want Value
		json string
	}{
		{"0", Int(0), "0"},
		{"-0", Int(0), "0"},
		{"-0.0", Int(0), "0"},
		{"3", Int(3), "3"},
		{"3.0", Int(3), "3"},
		{"3e2", Int(300), "300"},
		{"30e-1", Int(3), "3"},
		{"0.1", Double(0.1), "0.1"},
		{"9007199254740993", Int(9007199254740993), "9007199254740993"},
		{"9007199254740993.0", Int(9007199254740993), "9007199254740993"},
		{"900719925474099300e-2", Int(9007199254740993), "9007199254740993"},
		{"9223372036854775807", Int(math.MaxInt64), "9223372036854775807"},
		{"-9223372036854775808", Int(math.MinInt64), "-9223372036854775808"},
		{"9223372036854775808", Double(1 << 63), "9223372036854776000"},
		{"18446744073709551615", Double(1 << 64), "18446744073709552000"},
		{"1e21", Double(1e21), "1e+21"},
		{"1e400", Double(math.MaxFloat64), "1.7976931348623157e+308"},
		{"-1e400", Double(-math.MaxFloat64), "-1.7976931348623157e+308"},
		{"1e-400", Int(0), "0"},
		{"1e-7", Double(1e-7), "1e-07"},
		{"123456789.125", Double(123456789.125), "123456789.125"},
	} {
		v, err := ParseJSON([]byte(c.text))
		if err != nil || v != c.want {
			t.Errorf("%s reads as %v (%T), %v; want %v", c.text, v, v, err, c.want)
			continue
		}
		if text, err := AppendJSON(nil, v); err != nil || string(text) != c.json {
			t.Errorf("%s is written as %s, %v; want %s", c.text, text, err, c.json)
		}
	}
}

func TestWrittenNumbersReadBackAsTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := numberValues().Draw(t, "v")
		text, err := AppendJSON(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseJSON(text)
		if err != nil || back != v {
			t.Fatalf("%v (%T) is written as %s and read as %v (%T), %v", v, v, text, back, back, err)
		}
		// JSONB writes numbers without exponent.
		plain := rational(v).FloatString(0)
		if rational(v).IsInt() {
			if back, err := ParseJSON([]byte(plain)); err != nil || back != v {
				t.Fatalf("%v (%T), written as %s, is read as %v, %v", v, v, plain, back, err)
			}
		}
	})
}

func TestRoundDecimal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text   string
		digits int
		want   string
	}{
		{"2.675", 2, "2.68"}, {"1.005", 2, "1.01"}, {"-2.5", 0, "-3"}, {"-0.4", 0, "0"}, {"0.5", 0, "1"}, {"9.999", 2, "10.00"},
		{"-99.95", 1, "-100.0"}, {"1.25", 5, "1.25"}, {"7", 2, "7"}, {"-0.04", 1, "-0.0"},
	} {
		if got := roundDecimal(c.text, c.digits); got != c.want {
			t.Errorf("%s to %d digits: %s, want %s", c.text, c.digits, got, c.want)
		}
	}
}
