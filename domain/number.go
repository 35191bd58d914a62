package domain

import "encoding/json"

// CanonicalNumbers rewrites each number of a JSON text in its canonical form, as Scalar.JSON writes what ParseNumber
// reads. Everything else stays unchanged. If all numbers are canonical already, the text itself is returned. Invalid
// JSON stays invalid.
func CanonicalNumbers(text json.RawMessage) json.RawMessage {
	return RewriteNumbers(text, func(number []byte) string {
		if plainNumber(number) || !json.Valid(number) {
			return ""
		}
		return ParseNumber(string(number)).JSON()
	})
}

// RewriteNumbers replaces each number of a JSON text by the result of rewrite; "" leaves the number unchanged.
// Everything else stays unchanged. If no number changes, the text itself is returned. In invalid JSON, whatever looks
// like a number counts as one.
func RewriteNumbers(text json.RawMessage, rewrite func(number []byte) string) json.RawMessage {
	var out json.RawMessage
	kept := 0 // the part of text before this is already in out
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			i = endOfString(text, i)
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(text) && inNumber(text[end]) {
				end++
			}
			if number := rewrite(text[i:end]); number != "" && number != string(text[i:end]) {
				out = append(append(out, text[kept:i]...), number...)
				kept = end
			}
			i = end
		default:
			i++
		}
	}
	if out == nil {
		return text
	}
	return append(out, text[kept:]...)
}

// endOfString returns the offset after the string that begins at start.
func endOfString(text []byte, start int) int {
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func inNumber(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// plainNumber reports whether a number is known to be canonical without parsing it. Most are: integers of up to 18
// digits, and numbers with up to 15 digits and no exponent, because no two of those have the same nearest double.
func plainNumber(number []byte) bool {
	digits := number
	if digits[0] == '-' {
		digits = digits[1:]
	}
	point := -1
	for i, c := range digits {
		switch {
		case c == '.' && point < 0:
			point = i
		case c < '0' || c > '9':
			return false
		}
	}
	switch {
	case len(digits) == 0:
		return false
	case point < 0:
		return len(digits) <= 18 && (digits[0] != '0' || len(digits) == 1 && len(number) == 1)
	case point == 0 || len(digits) > 16 || digits[len(digits)-1] == '0' || point == len(digits)-1:
		return false
	case digits[0] != '0':
		return true
	}
	// Below a millionth, the canonical form has an exponent.
	for _, c := range digits[2:min(len(digits), 8)] {
		if c != '0' {
			return point == 1
		}
	}
	return false
}
