package domain_test

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

func whole(i int64) domain.Scalar      { return domain.Scalar{Kind: domain.ScalarInt, Int: i} }
func fraction(f float64) domain.Scalar { return domain.Scalar{Kind: domain.ScalarDouble, Double: f} }
func text(s string) domain.Scalar      { return domain.Scalar{Kind: domain.ScalarText, Text: s} }
func truth(b bool) domain.Scalar       { return domain.Scalar{Kind: domain.ScalarBool, Bool: b} }

func TestParseNumber(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want domain.Scalar
		json string
	}{
		{"0", whole(0), "0"}, {"-0", whole(0), "0"}, {"-0.0", whole(0), "0"}, {"0e9", whole(0), "0"},
		{"3", whole(3), "3"}, {"3.0", whole(3), "3"}, {"3e2", whole(300), "300"}, {"30e-1", whole(3), "3"},
		{"0.1", fraction(0.1), "0.1"}, {"1e-400", whole(0), "0"}, {"1e-7", fraction(1e-7), "1e-07"}, {"0.000001", fraction(1e-6), "0.000001"},
		{"9007199254740993", whole(9007199254740993), "9007199254740993"}, {"9007199254740993.0", whole(9007199254740993), "9007199254740993"},
		{"900719925474099300e-2", whole(9007199254740993), "9007199254740993"}, {"9007199254740992.5", whole(9007199254740992), "9007199254740992"},
		{"9223372036854775807", whole(math.MaxInt64), "9223372036854775807"}, {"9223372036854775807.0", whole(math.MaxInt64), "9223372036854775807"},
		{"-9223372036854775808", whole(math.MinInt64), "-9223372036854775808"}, {"-9223372036854775809", whole(math.MinInt64), "-9223372036854775808"},
		{"9223372036854775808", fraction(1 << 63), "9223372036854776000"}, {"18446744073709551615", fraction(1 << 64), "18446744073709552000"},
		{"1e21", fraction(1e21), "1e+21"}, {"1e400", fraction(math.MaxFloat64), "1.7976931348623157e+308"}, {"-1e400", fraction(-math.MaxFloat64), "-1.7976931348623157e+308"},
		{"1" + strings.Repeat("0", 500) + "e-500", whole(1), "1"},
	} {
		got := domain.ParseNumber(c.text)
		if got != c.want {
			t.Errorf("%.40s reads as %+v; want %+v", c.text, got, c.want)
		}
		if json := got.JSON(); domain.ParseNumber(json) != got || json != c.json {
			t.Errorf("%.40s is written as %s; want %s", c.text, json, c.json)
		}
	}
}

// numberTexts draws numbers as JSON can write them, most of them near where their kinds meet.
func numberTexts() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,2})?`),
		rapid.StringMatching(`-?[1-9][0-9]{14,19}(\.[0-9]{1,3})?(e-?[0-3])?`),
		rapid.StringMatching(`-?90071992547409(8|9)[0-9](\.(0|5|00))?`),
		rapid.StringMatching(`-?92233720368547758(06|07|08|09)(\.0|\.5)?`),
		rapid.StringMatching(`-?[1-9](\.[0-9]{1,20})?e-?3[0-3][0-9]`),
		rapid.Map(rapid.Float64(), func(f float64) string {
			if math.IsInf(f, 0) || math.IsNaN(f) {
				f = 0
			}
			return strconv.FormatFloat(f, 'g', -1, 64)
		}),
	)
}

// A number is an Int where its value is whole and fits, else the nearest double: held against arithmetic without
// bounds.
func TestParseNumberAgreesWithBigNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := numberTexts().Draw(t, "text")
		exact, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("%s is no number", text)
		}
		var want domain.Scalar
		if exact.IsInt() && exact.Num().IsInt64() {
			want = whole(exact.Num().Int64())
		} else if f, _ := exact.Float64(); math.IsInf(f, 0) {
			want = fraction(math.Copysign(math.MaxFloat64, f))
		} else if f == math.Trunc(f) && f >= -1<<63 && f < 1<<63 {
			want = whole(int64(f))
		} else {
			want = fraction(f)
		}
		got := domain.ParseNumber(text)
		if got != want {
			t.Fatalf("%s reads as %+v; want %+v", text, got, want)
		}
		if back := domain.ParseNumber(got.JSON()); back != got || !json.Valid([]byte(got.JSON())) {
			t.Fatalf("%s is written as %s, which reads as %+v", text, got.JSON(), back)
		}
	})
}

func scalars() *rapid.Generator[domain.Scalar] {
	return rapid.OneOf(
		rapid.Just(domain.Scalar{}),
		rapid.Map(numberTexts(), domain.ParseNumber),
		rapid.Map(rapid.OneOf(rapid.SampledFrom([]string{"", "a", "a ", "A", "ab", "ä", "\uFFFD", "\U0001F600", "\u2028", "<&>\"\\\n"}), rapid.String()), func(s string) domain.Scalar {
			return text(strings.ReplaceAll(s, "\x00", ""))
		}),
		rapid.Map(rapid.Bool(), truth),
	)
}

func rational(s domain.Scalar) *big.Rat {
	if s.Kind == domain.ScalarInt {
		return new(big.Rat).SetInt64(s.Int)
	}
	return new(big.Rat).SetFloat64(s.Double)
}

func TestScalarsAreTotallyOrdered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := scalars().Draw(t, "a"), scalars().Draw(t, "b"), scalars().Draw(t, "c")
		ab, bc := a.Compare(b), b.Compare(c)
		if ab != -b.Compare(a) || (ab == 0) != (a == b) || a.Compare(a) != 0 {
			t.Fatalf("%+v and %+v compare as %d, the other way round as %d", a, b, ab, b.Compare(a))
		}
		if ab <= 0 && bc <= 0 && a.Compare(c) > 0 {
			t.Fatalf("%+v, %+v, %+v go in a circle", a, b, c)
		}
		switch {
		case a.Number() && b.Number():
			if want := rational(a).Cmp(rational(b)); ab != want || !a.Comparable(b) {
				t.Fatalf("%+v and %+v compare as %d; want %d", a, b, ab, want)
			}
		case a.Kind == domain.ScalarText && b.Kind == domain.ScalarText:
			if want := compareCodePoints([]rune(a.Text), []rune(b.Text)); ab != want || !a.Comparable(b) {
				t.Fatalf("%q and %q compare as %d; want %d", a.Text, b.Text, ab, want)
			}
		case a.Kind != b.Kind && a.Comparable(b), a.Kind == domain.ScalarNull && a.Comparable(b):
			t.Fatalf("%+v and %+v are comparable", a, b)
		}
	})
}

func compareCodePoints(a, b []rune) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			return map[bool]int{true: -1, false: 1}[a[i] < b[i]]
		}
	}
	switch {
	case len(a) < len(b):
		return -1
	case len(a) > len(b):
		return 1
	}
	return 0
}

func TestKindsAreInOrder(t *testing.T) {
	t.Parallel()
	ordered := []domain.Scalar{{}, fraction(-1e300), whole(math.MinInt64), whole(-1), fraction(-0.5), whole(0), fraction(0.5), whole(1 << 53), whole(1<<53 + 1), whole(math.MaxInt64), fraction(1 << 63),
		text(""), text("A"), text("a"), text("a "), text("\uFFFD"), text("\U0001F600"), truth(false), truth(true)}
	for i, a := range ordered {
		for j, b := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := a.Compare(b); got != want {
				t.Errorf("%s and %s compare as %d; want %d", a.JSON(), b.JSON(), got, want)
			}
		}
	}
}

func TestScalarsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := scalars().Draw(t, "scalar")
		decoder := json.NewDecoder(strings.NewReader(s.JSON()))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			t.Fatalf("%s: %v", s.JSON(), err)
		}
		back := domain.Scalar{}
		switch value := value.(type) {
		case json.Number:
			back = domain.ParseNumber(string(value))
		case string:
			back = text(value)
		case bool:
			back = truth(value)
		}
		if back != s {
			t.Fatalf("%+v is written as %s and read as %+v", s, s.JSON(), back)
		}
	})
}

func TestAppendText(t *testing.T) {
	t.Parallel()
	if got, want := string(domain.AppendText([]byte("x"), "\x00\x1f\"\\/\n\r\t\x7f<é\u2028")), `x"\u0000\u001f\"\\/\n\r\t`+"\x7f<é\u2028\""; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		var got string
		if written := domain.AppendText(nil, []byte(want)); json.Unmarshal(written, &got) != nil || got != want {
			t.Fatalf("%s reads as %q, not %q", written, got, want)
		}
	})
}
