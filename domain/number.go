package domain

import "encoding/json"

// CanonicalNumbers writes each number of a JSON text in the one form that its value has, as Scalar.JSON writes what
// ParseNumber reads. All else stays as it is; a text whose numbers are in that form already is returned itself. What is no
// JSON comes back as something that is none either.
func CanonicalNumbers(text json.RawMessage) json.RawMessage {
	return RewriteNumbers(text, func(number []byte) string {
		if plainNumber(number) || !json.Valid(number) {
			return ""
		}
		return ParseNumber(string(number)).JSON()
	})
}

// RewriteNumbers writes each number of a JSON text as rewrite says; "" leaves it as it is. All else stays as it is, and
// where every number does the text is returned itself. In what is no JSON, a number is what looks like one.
func RewriteNumbers(text json.RawMessage, rewrite func(number []byte) string) json.RawMessage {
	var out json.RawMessage
	kept := 0 // what of the text is in out already
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

// endOfString is the place behind the string that begins at start.
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

// plainNumber reports whether a number is known to be in canonical form without reading it. That is so for most: whole
// ones of up to 18 digits, and those with up to 15 digits and no exponent, since no two such have one nearest double.
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
