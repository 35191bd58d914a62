package projection

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// asStored writes the numbers of an event's data, or metadata, as the log gives them back: without an exponent, and 0 for
// -0. What an event is folded from must be the same before it is appended and behind that: expressions know a number by its
// value, but a handler written in Go may look at its form, and cannot read 1e2 into an int. All else that the log changes
// makes no difference to a fold: the order of an object's fields, blanks.
// The text is checked JSON, and one that is in that form already is returned itself.
func asStored(text json.RawMessage) json.RawMessage {
	return domain.RewriteNumbers(text, func(number []byte) string {
		if number[0] != '-' && !bytes.ContainsAny(number, "eE") {
			return ""
		}
		return storedNumber(string(number))
	})
}

// storedNumber is a JSON number as PostgreSQL's NUMERIC writes it.
func storedNumber(number string) string {
	sign, rest := "", number
	if rest[0] == '-' {
		sign, rest = "-", rest[1:]
	}
	mantissa, exponent := rest, 0
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		mantissa = rest[:i]
		var err error
		if exponent, err = strconv.Atoi(rest[i+1:]); err != nil {
			return number // beyond what the log takes
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if strings.Trim(whole+fraction, "0") == "" {
		sign, exponent = "", min(exponent, len(fraction)) // nothing to move; NUMERIC has no -0
	}
	switch {
	case exponent > len(fraction):
		whole, fraction = whole+fraction+strings.Repeat("0", exponent-len(fraction)), ""
	case exponent > 0:
		whole, fraction = whole+fraction[:exponent], fraction[exponent:]
	case exponent < 0:
		if missing := -exponent - len(whole) + 1; missing > 0 {
			whole = strings.Repeat("0", missing) + whole
		}
		cut := len(whole) + exponent
		whole, fraction = whole[:cut], whole[cut:]+fraction
	}
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
}
