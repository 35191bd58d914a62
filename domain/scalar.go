package domain

import (
	"cmp"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// ScalarKind is the kind of a Scalar. The values are in the order of kinds: see Scalar.Compare.
type ScalarKind uint8

// The kinds of scalars. Int and Double are one kind to those who write expressions: numbers.
const (
	ScalarNull ScalarKind = iota
	ScalarInt
	ScalarDouble
	ScalarText
	ScalarBool
)

// Scalar is a JSON value that has no parts. The zero Scalar is null. Scalars of the same value are equal by ==: a number
// that is whole and fits into 64 bits is an Int whatever way it was written, any other one a Double, never an infinity or
// NaN.
type Scalar struct {
	Kind   ScalarKind
	Int    int64   // with ScalarInt
	Double float64 // with ScalarDouble
	Text   string  // with ScalarText: UTF-8 without U+0000
	Bool   bool    // with ScalarBool
}

// maxExactDigits bounds the text for which ParseNumber looks beyond the nearest double.
const maxExactDigits = 400

// ParseNumber reads a JSON number: an Int where its value is whole and fits, else the nearest Double. One beyond the range
// of doubles counts as the largest double, so that a number that nobody can mean does not stop anything.
func ParseNumber(text string) Scalar {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return Scalar{Kind: ScalarInt, Int: i}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Scalar{Kind: ScalarDouble, Double: math.Copysign(math.MaxFloat64, f)}
	}
	// Numbers such as 9007199254740993.0 are whole, but no double has their value.
	if abs := math.Abs(f); abs >= 1<<53 && abs <= 1<<63 && len(text) <= maxExactDigits {
		if exact, ok := new(big.Rat).SetString(text); ok && exact.IsInt() && exact.Num().IsInt64() {
			return Scalar{Kind: ScalarInt, Int: exact.Num().Int64()}
		}
	}
	return NumberOf(f)
}

// NumberOf is a number, which must be no infinity and not NaN, in the one form that it has.
func NumberOf(f float64) Scalar {
	// 2^63 itself is the first double that no longer fits.
	if f >= -1<<63 && f < 1<<63 && f == math.Trunc(f) {
		return Scalar{Kind: ScalarInt, Int: int64(f)}
	}
	return Scalar{Kind: ScalarDouble, Double: f}
}

// AppendDouble writes a double that is no infinity and not NaN as JSON, in the shortest form that reads back as the same.
func AppendDouble(dst []byte, f float64) []byte {
	format := byte('f')
	if abs := math.Abs(f); abs < 1e-6 || abs >= 1e21 {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, 64)
}

// AppendText writes a text, which is UTF-8, as a JSON string. Nothing is escaped but what must be.
func AppendText[T string | []byte](dst []byte, text T) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := range len(text) {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(dst, text[start:]...), '"')
}

// JSON writes the scalar as JSON, a number in the shortest form that reads back as the same one.
func (s Scalar) JSON() string {
	switch s.Kind {
	case ScalarInt:
		return strconv.FormatInt(s.Int, 10)
	case ScalarDouble:
		return string(AppendDouble(nil, s.Double))
	case ScalarText:
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(s.Text) // a string always can be encoded, and a Builder takes everything
		return strings.TrimSuffix(text.String(), "\n")
	case ScalarBool:
		return strconv.FormatBool(s.Bool)
	}
	return "null"
}

// Number reports whether the scalar is a number.
func (s Scalar) Number() bool { return s.Kind == ScalarInt || s.Kind == ScalarDouble }

// Comparable reports whether < and its like can compare the two: numbers, texts, or bools, both.
func (s Scalar) Comparable(other Scalar) bool {
	return s.rank() == other.rank() && s.Kind != ScalarNull
}

// Compare orders all scalars: null, then numbers by their exact values, then texts by code point (which is the order of
// their bytes), then false and true.
func (s Scalar) Compare(other Scalar) int {
	if order := cmp.Compare(s.rank(), other.rank()); order != 0 {
		return order
	}
	switch {
	case s.Kind == ScalarText:
		return strings.Compare(s.Text, other.Text)
	case s.Kind == ScalarBool:
		return cmp.Compare(bit(s.Bool), bit(other.Bool))
	case s.Kind == ScalarInt && other.Kind == ScalarInt:
		return cmp.Compare(s.Int, other.Int)
	case s.Kind == ScalarDouble && other.Kind == ScalarDouble:
		return cmp.Compare(s.Double, other.Double)
	case s.Kind == ScalarDouble:
		return compareDoubleInt(s.Double, other.Int)
	case s.Kind == ScalarInt:
		return -compareDoubleInt(other.Double, s.Int)
	}
	return 0
}

// rank is the kind, with numbers as one.
func (s Scalar) rank() ScalarKind {
	if s.Kind == ScalarDouble {
		return ScalarInt
	}
	return s.Kind
}

func bit(b bool) byte {
	if b {
		return 1
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
