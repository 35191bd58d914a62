package postgres

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
)

// Sort keys are texts whose byte order equals the order that domain.Scalar.Compare gives their scalars. The indexes of
// declared paths hold them. keyFunction computes them in the database, and sortKey here. Once indexes exist, the
// results must not change, except under a new name. A key begins with the kind:
const (
	keyNull      = "0" // also a missing value
	keyNegative  = "1" // a negative number: as keyNumber, of the absolute value, with each digit d as 15-d
	keyNumber    = "2" // any other number: the 16 hexadecimal digits of its double
	keyText      = "3" // followed by the text
	keyFalse     = "4"
	keyTrue      = "5"
	keyUnordered = "6" // lists, objects, and texts of more than domain.MaxOrderedCharacters
)

// From 2^53 on, several integers map to one double. There, the integer's nineteen decimal digits follow the double's
// digits. Numbers beyond 64 bits use the digits of 2^63.
const firstInexact = 1 << 53

// sortKey returns a scalar's sort key.
func sortKey(value domain.Scalar) string {
	if value.Kind == domain.ScalarText && utf8.RuneCountInString(value.Text) > domain.MaxOrderedCharacters {
		return keyUnordered
	}
	return fullKey(value)
}

// fullKey returns the sort key that the scalar would have if texts of any length had distinct sort keys.
func fullKey(value domain.Scalar) string {
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
		return keyText + value.Text
	case domain.ScalarBool:
		if value.Bool {
			return keyTrue
		}
		return keyFalse
	}
	return keyNull
}

func numberKey(negative bool, size float64, digits uint64) string {
	key := fmt.Sprintf("%016x", math.Float64bits(size))
	if size >= firstInexact {
		key += fmt.Sprintf("%019d", digits)
	}
	if !negative {
		return keyNumber + key
	}
	return keyNegative + strings.Map(func(digit rune) rune {
		return rune(hexadecimal[len(hexadecimal)-1-strings.IndexRune(hexadecimal, digit)])
	}, key)
}

const hexadecimal = "0123456789abcdef"

// keyFunctionDefinition is sortKey in the database. It is PL/pgSQL so that plans do not contain its expanded text. A
// number beyond the range of doubles counts as the largest, and one too near to zero as zero, so that no document fails
// to be saved.
const keyFunctionDefinition = `create function ` + keyFunction + `(value jsonb) returns text
language plpgsql immutable parallel safe cost 20 as $$
declare
	word   text;
	number numeric;
	size   numeric;
	key    text;
begin
	case jsonb_typeof(value)
	when 'string' then
		word := value #>> '{}';
		if char_length(word) <= 250 then
			return '3' || word;
		end if;
		return '6';
	when 'number' then
		number := value::numeric;
		size := abs(number);
		if size > 1.7976931348623157e308 then
			size := 1.7976931348623157e308;
		elsif size <= 2.4703282292062328e-324 then
			number := 0;
			size := 0;
		end if;
		key := encode(float8send(size::float8), 'hex');
		if size >= 9007199254740992 then
			key := key || lpad(trunc(least(size, 9223372036854775808))::text, 19, '0');
		end if;
		if number < 0 then
			return '1' || translate(key, '0123456789abcdef', 'fedcba9876543210');
		end if;
		return '2' || key;
	when 'boolean' then
		return case when value = 'true'::jsonb then '5' else '4' end;
	when 'array', 'object' then
		return '6';
	else
		return '0';
	end case;
end
$$`
