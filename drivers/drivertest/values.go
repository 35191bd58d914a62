package drivertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// oddIDs are ids that databases tend to confuse.
var oddIDs = []string{
	"a", "A", "b", "a ", "a  ", " a", " ", "  ", "\t", "\n", "a\n", "a\x01", "\x7f", "é", "e\u0301", "É", "ß", "ss", "ı", "i", "I",
	"'", "''", `"`, `\`, `\\`, `\'`, `\0`, "%", "_", "$1", "?", ":a", "{}", "{a,b}", "NULL", "null", "true", "0", "00", "0.0", "-1", "1e1",
	"a,b", "a;b", "a--b", "/*", "${x}", "$a", "a.b", ".", "..", "\ufeff", "\u200b", "\ufffd", "\U0001f600", "日本語", "\u202e", "\uffff", "\U0010ffff",
	"00000000-0000-0000-0000-000000000000",
	strings.Repeat("x", domain.MaxDocumentIDBytes), strings.Repeat("x", domain.MaxDocumentIDBytes-1) + "y", strings.Repeat("é", domain.MaxDocumentIDBytes/2),
}

// oddData are documents whose values databases tend to change.
var oddData = map[string]string{
	"empty":             `{}`,
	"nulls":             `{"a": null, "b": [null, null], "c": {"d": null}}`,
	"integers":          `{"max": 9223372036854775807, "min": -9223372036854775808, "above 2^53": 9007199254740993, "int32": 2147483648, "zero": 0, "minus": -1}`,
	"beyond 64 bits":    `{"a": 18446744073709551616, "b": -9223372036854775809, "c": 123456789012345678901234567890}`,
	"doubles":           `{"a": 0.1, "b": 1.7976931348623157e308, "c": 5e-324, "d": -0.3, "e": 2.2250738585072014e-308, "f": 0.30000000000000004, "g": 1e21, "h": 1.5e-9}`,
	"wholes as doubles": `{"a": 1.0, "b": 1e3, "c": -0.0, "d": 100e-2}`,
	"kinds":             `{"one": 1, "text": "1", "true": true, "text of true": "true", "list": [1], "empty list": [], "empty object": {}, "list of lists": [[], [[]], {}]}`,
	"text":              `{"quotes": "\" ' \\ / \b \f \n \r \t", "control": "\u0001\u001f\u007f", "é": "e\u0301", "emoji": "\ud83d\ude00", "escaped": "\\u0000", "separators": "\u2028\u2029", "bom": "\ufeff", "non-characters": "\uffff\ufffe"}`,
	"white space":       `{"a": " ", "b": "  x  ", "c": "x\n", "": "", " ": "blank"}`,
	"names":             `{"": 1, ".": 2, "a.b": 3, "$a": 4, "$set": {"a": 1}, "_id": 5, "id": 6, "__proto__": 7, "\"": 8, "\\": 9, "'": 10, "a b": 11, "A": 12, "a": 13, "é": 14, "e\u0301": 15, "0": 16, "00": 17, "日本語": 18, "$a.b": {"$c": {"d.e": [{"$f": 1}]}}, "tenant_id": 19, "version": 20}`,
	"dates as text":     `{"a": "2026-01-02T03:04:05.1234567Z", "b": "2026-01-02", "c": {"$date": "2026-01-02T03:04:05Z"}, "d": {"$numberLong": "1"}, "e": {"$oid": "507f1f77bcf86cd799439011"}}`,
	"order of a list":   `{"a": [3, 1, 2, 3, 1], "b": ["b", "a"]}`,
}

func (s *suite) values(t *testing.T) {
	t.Parallel()
	s.each(t, "ids are bytes", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		batch := drivers.Batch{To: 1}
		for i, id := range oddIDs {
			batch.Upserts = append(batch.Upserts, document(id, 1, fmt.Sprintf(`{"n": %d}`, i)))
		}
		s.save(t, build, tenant, batch)
		s.wantDocuments(t, build, tenant, batch.Upserts...)
		for _, document := range batch.Upserts {
			got, ok, err := s.driver.Get(t.Context(), build, tenant, document.ID)
			if err != nil || !ok || got.ID != document.ID || compareJSON(document.Data, got.Data) != "" {
				t.Errorf("Get(%q) = %q %s, %t, %v; want %s", document.ID, got.ID, got.Data, ok, err, document.Data)
			}
		}
		// Each is removed separately.
		left := batch.Upserts
		for at := int64(1); len(left) > 0; at++ {
			most := min(len(left), 9)
			next := drivers.Batch{From: at, To: at + 1}
			for _, document := range left[:most] {
				next.Deletes = append(next.Deletes, drivers.Deletion{ID: document.ID, Version: at + 1})
			}
			s.save(t, build, tenant, next)
			left = left[most:]
			s.wantDocuments(t, build, tenant, left...)
		}
	})

	s.each(t, "data comes back as it was", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		batch := drivers.Batch{To: 1}
		for id, data := range oddData {
			batch.Upserts = append(batch.Upserts, document(id, 1, data))
		}
		batch.Upserts = append(batch.Upserts,
			document("deep", 1, nested(s.MaxDepth)),
			document("wide", 1, `{"a0": 0`+func() (rest string) {
				var text strings.Builder
				for i := range 5000 {
					fmt.Fprintf(&text, `, "a%d": %d`, i+1, i)
				}
				return text.String()
			}()+`}`),
			document("long text", 1, `{"a": "`+strings.Repeat("0123456789 é ", 100_000)+`"}`),
			document("long name", 1, `{"`+strings.Repeat("name", 1000)+`": 1}`))
		s.save(t, build, tenant, batch)
		s.wantDocuments(t, build, tenant, batch.Upserts...)
	})

	s.each(t, "of two members of one name the last is kept", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{document("a", 1, `{"a": 1, "b": 0, "a": {"b": 1, "b": 2}}`)}})
		s.wantDocuments(t, build, tenant, document("a", 1, `{"a": {"b": 2}, "b": 0}`))
	})

	s.each(t, "drawn ids and data", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		at := int64(0)
		rapid.Check(t, func(t *rapid.T) {
			batch := drivers.Batch{From: at, To: at + 1}
			ids := rapid.SliceOfNDistinct(rapid.StringN(1, -1, domain.MaxDocumentIDBytes), 1, 10, rapid.ID[string]).Draw(t, "ids")
			for i, id := range ids {
				if domain.CheckDocumentID("", id) == nil {
					batch.Upserts = append(batch.Upserts, document(id, at+1, drawJSON(t, fmt.Sprint("data ", i))))
				}
			}
			s.save(t, build, tenant, batch)
			at++
			s.wantDocuments(t, build, tenant, batch.Upserts...)
			clear := drivers.Batch{From: at, To: at + 1}
			for _, document := range batch.Upserts {
				clear.Deletes = append(clear.Deletes, drivers.Deletion{ID: document.ID, Version: at + 1})
			}
			s.save(t, build, tenant, clear)
			at++
		})
	})
}

// drawJSON draws a JSON object that domain.CheckJSON accepts.
func drawJSON(t *rapid.T, label string) string {
	text := rapid.Map(rapid.String(), func(text string) string { return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "0") })
	scalar := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Float64Range(-1e300, 1e300), func(x float64) any { return x }),
		rapid.Map(text, func(text string) any { return text }),
	)
	list := rapid.Map(rapid.SliceOfN(scalar, 0, 4), func(list []any) any { return list })
	inner := rapid.Map(rapid.MapOfN(text, rapid.OneOf(scalar, list), 0, 4), func(members map[string]any) any { return members })
	object := rapid.MapOfN(text, rapid.OneOf(scalar, list, inner), 0, 5).Draw(t, label)
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(data)
}

// compareJSON reports where two JSON texts differ in what the contract promises to preserve; empty: nowhere. It
// compares 64-bit integers exactly, other numbers as doubles, and numbers of different kinds by value.
func compareJSON(want, got []byte) string {
	a, err := decode(want)
	if err != nil {
		return fmt.Sprintf("the wanted data is no JSON: %v", err)
	}
	b, err := decode(got)
	if err != nil {
		return fmt.Sprintf("the data is no JSON: %v", err)
	}
	return compare(a, b)
}

func decode(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, fmt.Errorf("more follows the value")
	}
	return value, nil
}

// compare reports where in the wanted value the difference is, and what it is.
func compare(want, got any) string {
	different := func() string { return fmt.Sprintf(" is %.80v (%T), want %.80v (%T)", got, got, want, want) }
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok || len(got) != len(want) {
			return different()
		}
		for name, value := range want {
			other, ok := got[name]
			if !ok {
				return fmt.Sprintf(" has no member %q", name)
			}
			if difference := compare(value, other); difference != "" {
				return fmt.Sprintf(".%.80s%s", name, difference)
			}
		}
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return different()
		}
		for i, value := range want {
			if difference := compare(value, got[i]); difference != "" {
				return fmt.Sprintf("[%d]%s", i, difference)
			}
		}
	case json.Number:
		got, ok := got.(json.Number)
		if !ok || number(want) != number(got) {
			return different()
		}
	default:
		if want != got {
			return different()
		}
	}
	return ""
}

// number returns an int64 if the number is one, even if written with a fraction or an exponent, and otherwise a
// float64.
func number(text json.Number) any {
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n
	}
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return string(text)
	}
	if n := int64(x); -1<<63 <= x && x < 1<<63 && float64(n) == x {
		return n
	}
	return x
}
