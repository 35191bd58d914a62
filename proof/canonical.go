package proof

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Canonical returns JSON in the form in which leaves commit to it, which is how PostgreSQL prints JSONB. So the
// service, which has this form already, need not parse anything. Keys are sorted by their length in bytes, and then by
// their bytes. There is a space after each comma and colon. Strings escape only ", \ and control characters. Numbers
// stay as they are written.
func Canonical(text []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read JSON: there is more than one value")
	}
	return appendValue(make([]byte, 0, len(text)), value), nil
}

func appendValue(b []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return fmt.Appendf(b, "%t", value)
	case json.Number:
		return append(b, value...)
	case string:
		return appendString(b, value)
	case []any:
		b = append(b, '[')
		for i, item := range value {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendValue(b, item)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		keys := slices.SortedFunc(maps.Keys(value), func(x, y string) int {
			return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
		})
		for i, key := range keys {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(appendString(b, key), ": "...)
			b = appendValue(b, value[key])
		}
		return append(b, '}')
	}
	panic(fmt.Sprintf("JSON has no %T", value))
}

// appendString is PostgreSQL's escape_json.
func appendString(b []byte, text string) []byte {
	b = append(b, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
