package projection

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// normalizeNumbers writes the numbers of an event's data or metadata as the log returns them: without an exponent, and
// 0 instead of -0. An event must fold the same before and after its append. Expressions compare numbers by value, but a
// Go handler may look at their text, and cannot unmarshal 1e2 into an int. The log's other changes (field order,
// whitespace) do not affect a fold.
//
// The text must be valid JSON. If it is already in that form, normalizeNumbers returns it unchanged.
func normalizeNumbers(text json.RawMessage) json.RawMessage {
	return domain.RewriteNumbers(text, func(number []byte) string {
		if number[0] != '-' && !bytes.ContainsAny(number, "eE") {
			return ""
		}
		return formatNumeric(string(number))
	})
}

// formatNumeric formats a JSON number as PostgreSQL's NUMERIC does.
func formatNumeric(number string) string {
	sign, rest := "", number
	if rest[0] == '-' {
		sign, rest = "-", rest[1:]
	}
	mantissa, exponent := rest, 0
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		mantissa = rest[:i]
		var err error
		if exponent, err = strconv.Atoi(rest[i+1:]); err != nil {
			return number // more than the log accepts
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if strings.Trim(whole+fraction, "0") == "" {
		sign, exponent = "", min(exponent, len(fraction)) // nothing to shift; NUMERIC has no -0
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
