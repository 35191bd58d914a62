package domain

import (
	"cmp"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// ScalarKind is the kind of a Scalar. The values are in the order that Scalar.Compare uses.
type ScalarKind uint8

// The kinds of scalars. In expressions, Int and Double are one kind: numbers.
const (
	ScalarNull ScalarKind = iota
	ScalarInt
	ScalarDouble
	ScalarText
	ScalarBool
)

// Scalar is a JSON value without parts. The zero Scalar is null. Scalars of the same value are equal by ==. A whole
// number that fits into 64 bits is an Int, however it was written. Any other number is a Double, never an infinity or
// NaN.
type Scalar struct {
	Kind   ScalarKind
	Int    int64   // with ScalarInt
	Double float64 // with ScalarDouble
	Text   string  // with ScalarText: UTF-8 without U+0000
	Bool   bool    // with ScalarBool
}

// maxExactDigits limits the texts that ParseNumber reads more precisely than the nearest double.
const maxExactDigits = 400

// ParseNumber parses a JSON number: as an Int if its value is whole and fits, otherwise as the nearest Double. A number
// beyond the range of doubles counts as the largest double, so that a nonsensical number does not stop anything.
func ParseNumber(text string) Scalar {
	if !strings.ContainsAny(text, ".eE") {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return Scalar{Kind: ScalarInt, Int: i}
		}
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

// NumberOf returns a number in its canonical form. The number must not be an infinity or NaN.
func NumberOf(f float64) Scalar {
	// 2^63 itself is the first double that does not fit.
	if f >= -1<<63 && f < 1<<63 && f == math.Trunc(f) {
		return Scalar{Kind: ScalarInt, Int: int64(f)}
	}
	return Scalar{Kind: ScalarDouble, Double: f}
}

// AppendDouble appends a double as JSON, in the shortest form that reads back as the same number. The double must not
// be an infinity or NaN.
func AppendDouble(dst []byte, f float64) []byte {
	format := byte('f')
	if abs := math.Abs(f); abs < 1e-6 || abs >= 1e21 {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, 64)
}

// AppendText appends a UTF-8 text as a JSON string. It escapes only what must be escaped.
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

// JSON returns the scalar as JSON, a number in the shortest form that reads back as the same number.
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
		_ = encoder.Encode(s.Text) // a string can always be encoded, and writing to a Builder cannot fail
		return strings.TrimSuffix(text.String(), "\n")
	case ScalarBool:
		return strconv.FormatBool(s.Bool)
	}
	return "null"
}

// Number reports whether the scalar is a number.
func (s Scalar) Number() bool { return s.Kind == ScalarInt || s.Kind == ScalarDouble }

// Comparable reports whether < and similar operators can compare the two: both must be numbers, strings, or bools.
func (s Scalar) Comparable(other Scalar) bool {
	return s.rank() == other.rank() && s.Kind != ScalarNull
}

// Compare orders all scalars: null, then numbers by their exact values, then strings by code point (which is also the
// order of their bytes), then false and true.
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

// rank returns the kind, with all numbers as one kind.
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
