package drivers

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
)

// The parts of a sort key: a text whose byte order equals the order that domain.Scalar.Compare gives its scalars. The
// indexes of PostgreSQL and MongoDB hold them, so the keys of stored values must not change. A key begins with the
// kind:
const (
	KeyNull      = "0" // also a missing value
	KeyNegative  = "1" // a negative number: as KeyNumber, of the absolute value, with each digit d as 15-d
	KeyNumber    = "2" // any other number: the 16 hexadecimal digits of its double
	KeyText      = "3" // followed by the text
	KeyFalse     = "4"
	KeyTrue      = "5"
	KeyUnordered = "6" // lists, objects, and texts of more than domain.MaxOrderedCharacters
)

// From 2^53 on, several integers map to one double. There, the integer's nineteen decimal digits follow the double's
// digits. Numbers beyond 64 bits use the digits of 2^63.
const firstInexact = 1 << 53

// SortKey returns a scalar's sort key.
func SortKey(value domain.Scalar) string {
	if value.Kind == domain.ScalarText && utf8.RuneCountInString(value.Text) > domain.MaxOrderedCharacters {
		return KeyUnordered
	}
	return FullSortKey(value)
}

// FullSortKey returns the sort key that the scalar would have if texts of any length had distinct sort keys.
func FullSortKey(value domain.Scalar) string {
	switch value.Kind {
	case domain.ScalarInt:
		size := uint64(value.Int)
		if value.Int < 0 {
			size = -size
		}
		return numberKey(value.Int < 0, float64(size), size)
	case domain.ScalarDouble:
		return numberKey(value.Double < 0, math.Abs(value.Double), 1<<63)
	case domain.ScalarText:
		return KeyText + value.Text
	case domain.ScalarBool:
		if value.Bool {
			return KeyTrue
		}
		return KeyFalse
	}
	return KeyNull
}

func numberKey(negative bool, size float64, digits uint64) string {
	key := fmt.Sprintf("%016x", math.Float64bits(size))
	if size >= firstInexact {
		key += fmt.Sprintf("%019d", digits)
	}
	if !negative {
		return KeyNumber + key
	}
	return KeyNegative + strings.Map(func(digit rune) rune {
		return rune(hexadecimal[len(hexadecimal)-1-strings.IndexRune(hexadecimal, digit)])
	}, key)
}

const hexadecimal = "0123456789abcdef"
