package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// kinds is a set of the kinds of JSON values.
type kinds uint8

const (
	nullKind kinds = 1 << iota
	boolKind
	integerKind // a number without a fraction, however it is written
	fractionKind
	stringKind
	arrayKind
	objectKind

	numberKind = integerKind | fractionKind
	anyKind    = nullKind | boolKind | numberKind | stringKind | arrayKind | objectKind
)

var kindByName = map[string]kinds{
	"null": nullKind, "boolean": boolKind, "integer": integerKind, "number": numberKind, "string": stringKind, "array": arrayKind, "object": objectKind,
}

// kindNames returns the names of a set, as the keyword type has them.
func kindNames(set kinds) []string {
	var names []string
	for _, name := range [...]string{"array", "boolean", "integer", "null", "number", "object", "string"} {
		kind := kindByName[name]
		if set&kind == kind && (name != "integer" || set&fractionKind == 0) {
			names = append(names, name)
		}
	}
	return names
}

// kindOf returns the kind of a value from parseValue.
func kindOf(value any) kinds {
	switch value := value.(type) {
	case nil:
		return nullKind
	case bool:
		return boolKind
	case string:
		return stringKind
	case json.Number:
		if plainInteger(string(value)) {
			return integerKind
		}
		if d := parseDecimal(string(value)); d.whole() {
			return integerKind
		}
		return fractionKind
	case []any:
		return arrayKind
	}
	return objectKind
}

// parseValue parses JSON that the log can keep: into nil, bool, string, json.Number, []any and map[string]any. Of equal
// names in an object the last one counts, as in JSONB.
func parseValue(text []byte) (any, error) {
	scanner := domain.NewStoredJSONScanner(text)
	value, err := scanValue(scanner)
	if err == nil {
		err = scanner.End()
	}
	return value, err
}

func scanValue(scanner *domain.JSONScanner) (any, error) {
	switch scanner.Next() {
	case '{':
		object := make(map[string]any)
		err := scanner.Object(func(name string) error {
			value, err := scanValue(scanner)
			object[name] = value
			return err
		})
		return object, err
	case '[':
		array := []any{}
		err := scanner.Array(func(int) error {
			value, err := scanValue(scanner)
			array = append(array, value)
			return err
		})
		return array, err
	case '"':
		return scanner.Text()
	}
	text, err := scanner.Value()
	if err != nil {
		return nil, err
	}
	switch text[0] {
	case 'n':
		return nil, nil
	case 't', 'f':
		return text[0] == 't', nil
	}
	return json.Number(text), nil
}

// canonicalForm appends a text to b that two values share if they are equal: numbers by value, objects without order.
// It may end early once the text has more than most bytes.
func canonicalForm(b []byte, value any, most int) []byte {
	if len(b) > most {
		return b
	}
	switch value := value.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, value)
	case string:
		return domain.AppendText(b, value)
	case json.Number:
		if plainInteger(string(value)) {
			return append(b, value...)
		}
		d := parseDecimal(string(value))
		return append(b, d.String()...)
	case []any:
		b = append(b, '[')
		for i, element := range value {
			if len(b) > most {
				return b
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = canonicalForm(b, element, most)
		}
		return append(b, ']')
	}
	object := value.(map[string]any)
	if len(b)+len(object) > most {
		return append(b, make([]byte, len(object)+1)...)
	}
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(object)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(domain.AppendText(b, name), ':')
		b = canonicalForm(b, object[name], most)
	}
	return append(b, '}')
}

// decimal is a number, sign * 0.digits * 10^exponent, exactly. The digits neither begin nor end with 0. Its size is
// that of its text, and comparing two takes as long as their digits: 1e131071 is no larger than 1e1.
type decimal struct {
	sign     int // -1, 0 or 1
	digits   string
	exponent int
}

// maxDivisorDigits limits the digits of multipleOf, so that a remainder times ten fits into 64 bits.
const maxDivisorDigits = 17

// plainInteger reports whether a number is written in its canonical form as a short whole number.
func plainInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	if len(digits) > 18 || text == "-0" {
		return false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return digits != ""
}

// maxExponent limits exponents, beyond what the log can keep, so that sums do not overflow.
const maxExponent = 1 << 40

// parseDecimal parses a JSON number.
func parseDecimal(text string) decimal {
	d := decimal{sign: 1}
	if rest, negative := strings.CutPrefix(text, "-"); negative {
		d.sign, text = -1, rest
	}
	if plainInteger(text) {
		d.exponent = len(text)
		if d.digits = strings.TrimRight(text, "0"); d.digits == "" {
			return decimal{}
		}
		return d
	}
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		exponent, err := strconv.Atoi(strings.TrimPrefix(text[at+1:], "+"))
		if err != nil || exponent > maxExponent || exponent < -maxExponent {
			exponent = maxExponent
			if strings.HasPrefix(text[at+1:], "-") {
				exponent = -maxExponent
			}
		}
		d.exponent, text = exponent, text[:at]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := whole + fraction
	d.exponent += len(whole)
	trimmed := strings.TrimLeft(digits, "0")
	d.exponent -= len(digits) - len(trimmed)
	if d.digits = strings.TrimRight(trimmed, "0"); d.digits == "" {
		return decimal{}
	}
	return d
}

// whole reports whether the number has no fraction.
func (d *decimal) whole() bool { return len(d.digits) <= d.exponent || d.sign == 0 }

// compare returns -1, 0 or 1.
func (d *decimal) compare(other *decimal) int {
	if d.sign != other.sign {
		return sign(d.sign - other.sign)
	}
	if d.exponent != other.exponent {
		return d.sign * sign(d.exponent-other.exponent)
	}
	return d.sign * strings.Compare(d.digits, other.digits)
}

func sign(n int) int { return min(1, max(-1, n)) }

// multipleOf reports whether the number is a whole multiple of a positive divisor of at most maxDivisorDigits.
func (d *decimal) multipleOf(divisor *decimal) bool {
	// In whole numbers d.digits and divisor.digits, times powers of ten.
	zeros := (d.exponent - len(d.digits)) - (divisor.exponent - len(divisor.digits))
	if d.sign == 0 {
		return true
	}
	if zeros < 0 {
		return false // the digits do not end with 0
	}
	by, _ := strconv.ParseUint(divisor.digits, 10, 64)
	rest := uint64(0)
	for i := range len(d.digits) {
		rest = (rest*10 + uint64(d.digits[i]-'0')) % by
	}
	for ; zeros > 0 && rest > 0; zeros-- {
		rest = rest * 10 % by
		if zeros > 200_000 {
			return false // no such number can be kept
		}
	}
	return rest == 0
}

// plainDigits is how many digits String writes without an exponent.
const plainDigits = 30

// String returns the canonical form of the number. It is a JSON number.
func (d *decimal) String() string {
	if d.sign == 0 {
		return "0"
	}
	minus := ""
	if d.sign < 0 {
		minus = "-"
	}
	switch {
	case len(d.digits) <= d.exponent && d.exponent <= plainDigits:
		return minus + d.digits + strings.Repeat("0", d.exponent-len(d.digits))
	case d.exponent > 0 && d.exponent < len(d.digits):
		return minus + d.digits[:d.exponent] + "." + d.digits[d.exponent:]
	case d.exponent <= 0 && d.exponent > -plainDigits:
		return minus + "0." + strings.Repeat("0", -d.exponent) + d.digits
	}
	return minus + d.digits + "e" + strconv.Itoa(d.exponent-len(d.digits))
}
