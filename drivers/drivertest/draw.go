package drivertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// names are member names that databases tend to misinterpret. The first ones are drawn most often.
var names = []string{
	"a", "b", "n", "0", "A", "a.b", "$a", "", " ", "a ", "1", "00", "-1", "it's", `"q"`, `\`, "é", "e\u0301", "_id", "id",
	"version", "tenant_id", "a[0]", "*", "%", "$", ".", "日本", "\U0001f600", "__proto__", "null", "true",
}

// indexed are the declared paths with an index, among those that are drawn and those in traps.
var indexed = []string{"a", "n", "a.b", "b", "0", "a.0", "$a", "it's", "é"}

// numbers are at the limits of what databases distinguish, in the form in which numbers are saved.
var numbers = []string{
	"0", "1", "-1", "2", "9", "10", "0.5", "-0.5", "0.1", "0.3", "0.30000000000000004", "1.5", "100", "1e2", "2147483647", "2147483648",
	"2251799813685248.5", "9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993", "9007199254740994",
	"9223372036854775806", "9223372036854775807", "9223372036854776000", "-9223372036854775807", "-9223372036854775808", "-9223372036854778000",
	"18446744073709552000", "1e21", "1e22", "-1e21", "1e300", "1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "-5e-324", "2.5e-7", "1e-6",
}

// texts are values that confuse collations, patterns and quoting.
var texts = []string{
	"a", "b", "", "A", "B", "a ", "a  ", " a", " ", "\t", "a\n", "\n", "ab", "aB", "abc", "z", "Z", "é", "e\u0301", "e", "É", "ß", "ss", "ẞ", "ı", "i", "İ", "I", "K", "k",
	"æ", "ae", "co-op", "coop", "\u200b", "\u00ad", "\ue000", "\ufffd", "\uffff", "\U00010000", "\U0001f600", "\U0010ffff", "a\uffff", "a\U00010000",
	"0", "1", "01", "10", "9", "1.0", "null", "true", "%", "_", "a%", "a_", "[a]", "*", "?", "a.c", "^a", "$a", "$$ROOT", `\`, `a\`, `\n`, "'", "''", `"`, "a'b", "; --", "{}", "[]",
	"2026-01-02T03:04:05Z", "\u0001", "\x7f",
	strings.Repeat("x", 249), strings.Repeat("x", 250), strings.Repeat("x", 251), strings.Repeat("x", 249) + "y",
	strings.Repeat("é", 250), strings.Repeat("é", 251), strings.Repeat("\U0001f600", 250), strings.Repeat("\U0001f600", 251),
	strings.Repeat("x", 300) + "a", strings.Repeat("x", 300) + "b", strings.Repeat("long ", 1000) + "a", strings.Repeat("long ", 1000) + "b",
}

// patterns are expressions that dialects of regular expressions interpret differently.
var patterns = []string{
	"a", "^a", "a$", "^a$", "^$", "", ".", "(?s).", "a.c", `a\.c`, "a|b", "^(a|b)+$", "[^a]", "^[^a]*$", "[a-c]{2,3}", "(?i)a", "(?i)é", "(?i)k", "(?i)ss", `\d`, `\D`, `\s$`, `\S`, `^\w+$`, `\W`,
	"[[:alpha:]]", `\pL`, `\p{Lu}`, `^\p{Greek}`, `[\x{10000}-\x{10ffff}]`, `[\[\]\\^-]`, `\\`, `'`, "x{250}", "^x{249}y?$", "a*?b", "^.$", "^..$", `\A\z`, `\n`, `%`, `[$]`,
}

var numberDrawn = rapid.OneOf(
	rapid.SampledFrom(numbers),
	rapid.Map(rapid.IntRange(-3, 12), func(n int) string { return fmt.Sprint(n) }),
	rapid.Map(rapid.Int64(), func(n int64) string { return fmt.Sprint(n) }),
	rapid.Map(rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64), func(x float64) string { return fmt.Sprint(x) }),
	rapid.Map(rapid.IntRange(-400, 400), func(n int) string { return fmt.Sprint(float64(n) / 4) }),
)

var textDrawn = rapid.OneOf(
	rapid.SampledFrom(texts),
	rapid.SampledFrom(texts),
	rapid.StringOfN(rapid.SampledFrom([]rune("aAbBéß .%_\\'\"0\ue000\U0001f600")), 0, 4, -1),
	rapid.Map(rapid.StringN(0, 8, -1), func(text string) string {
		return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "0")
	}),
)

// scalarDrawn draws a value as encoding/json decodes it, a number as the json.Number that a save writes.
var scalarDrawn = rapid.OneOf(
	rapid.Map(numberDrawn, func(text string) any { return json.Number(domain.ParseNumber(text).JSON()) }),
	rapid.Map(textDrawn, func(text string) any { return text }),
	rapid.Map(numberDrawn, func(text string) any { return json.Number(domain.ParseNumber(text).JSON()) }),
	rapid.Map(textDrawn, func(text string) any { return text }),
	rapid.Map(rapid.Bool(), func(b bool) any { return b }),
	rapid.Just[any](nil),
)

// world is a drawn set of documents, and what to ask about them.
type world struct {
	names   []string // the few names that the documents have
	members []map[string]any
	ids     []string
}

func drawWorld(t *rapid.T) world {
	var w world
	w.names = rapid.SliceOfNDistinct(rapid.OneOf(rapid.SampledFrom(names[:4]), rapid.SampledFrom(names)), 1, 5, rapid.ID[string]).Draw(t, "names")
	w.ids = rapid.SliceOfNDistinct(rapid.SampledFrom(oddIDs), 10, 30, rapid.ID[string]).Draw(t, "ids")
	name := rapid.SampledFrom(w.names)
	list := rapid.Map(rapid.SliceOfN(rapid.OneOf(scalarDrawn,
		rapid.Map(rapid.MapOfN(name, scalarDrawn, 0, 2), func(members map[string]any) any { return members }),
		rapid.Map(rapid.SliceOfN(scalarDrawn, 0, 2), func(list []any) any { return list }),
	), 0, 3), func(list []any) any { return list })
	value := rapid.OneOf(scalarDrawn, scalarDrawn, scalarDrawn, list)
	for range 2 {
		members := rapid.Map(rapid.MapOfN(name, value, 0, 3), func(members map[string]any) any { return members })
		value = rapid.OneOf(scalarDrawn, scalarDrawn, scalarDrawn, list, members)
	}
	for range w.ids {
		w.members = append(w.members, rapid.MapOfN(name, value, 0, len(w.names)).Draw(t, "data"))
	}
	return w
}

// documents returns the world's documents, all with one version.
func (w world) documents(t fatalf, version int64) []domain.Document {
	t.Helper()
	documents := make([]domain.Document, len(w.ids))
	for i, members := range w.members {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(members); err != nil {
			t.Fatalf("%v", err)
		}
		documents[i] = domain.Document{ID: w.ids[i], Version: version, Data: bytes.TrimSpace(text.Bytes())}
	}
	return documents
}

// drawPath draws a path: one that leads somewhere in a document, or into a list where none may, or any. The value is
// what it leads to in that document, or nil if it leads to nothing.
func (w world) drawPath(t *rapid.T) (path domain.Path, value any) {
	if rapid.IntRange(0, 4).Draw(t, "any path") == 4 {
		return rapid.SliceOfN(rapid.SampledFrom(slices.Concat(w.names, []string{"0"})), 1, 3).Draw(t, "path"), nil
	}
	value = rapid.SampledFrom(w.members).Draw(t, "document")
	for {
		switch inner := value.(type) {
		case map[string]any:
			if len(inner) == 0 || len(path) > 0 && rapid.IntRange(0, 3).Draw(t, "stop") == 3 {
				break
			}
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(inner))).Draw(t, "name")
			path, value = append(path, name), inner[name]
			continue
		case []any:
			if rapid.IntRange(0, 3).Draw(t, "into the list") == 3 {
				path = append(path, rapid.SampledFrom(slices.Concat(w.names, []string{"0"})).Draw(t, "name"))
			} else if len(inner) > 0 && rapid.Bool().Draw(t, "an element") {
				value = inner[0]
			}
		}
		if len(path) == 0 {
			path = domain.Path{rapid.SampledFrom(w.names).Draw(t, "name")}
		}
		return path, value
	}
}

// drawScalar draws a constant: the value itself, one near it, or any.
func drawScalar(t *rapid.T, value any) domain.Scalar {
	switch rapid.IntRange(0, 3).Draw(t, "constant") {
	case 0, 1:
	case 2:
		switch near := value.(type) {
		case json.Number:
			number := domain.ParseNumber(string(near))
			if number.Kind == domain.ScalarInt && number.Int < math.MaxInt64 {
				number.Int++
			} else if number.Kind == domain.ScalarDouble {
				number = domain.ParseNumber(fmt.Sprint(math.Nextafter(number.Double, 0)))
			}
			return number
		case string:
			return domain.Scalar{Kind: domain.ScalarText, Text: near + rapid.SampledFrom([]string{" ", "a", "\uffff", "\U00010000"}).Draw(t, "more")}
		}
	case 3:
		value = scalarDrawn.Draw(t, "scalar")
	}
	switch value := value.(type) {
	case bool:
		return domain.Scalar{Kind: domain.ScalarBool, Bool: value}
	case string:
		return domain.Scalar{Kind: domain.ScalarText, Text: value}
	case json.Number:
		return domain.ParseNumber(string(value))
	}
	return domain.Scalar{}
}

// drawPredicate draws one of every kind of predicate, with nested ones down to the depth.
func (w world) drawPredicate(t *rapid.T, depth int) domain.Predicate {
	kind := rapid.IntRange(0, 9).Draw(t, "kind of predicate")
	if depth > 0 && kind >= 8 {
		parts := make([]domain.Predicate, rapid.SampledFrom([]int{2, 3, 1, 0}).Draw(t, "parts"))
		for i := range parts {
			parts[i] = w.drawPredicate(t, depth-1)
		}
		if kind == 8 {
			return domain.And(parts)
		}
		return domain.Or(parts)
	}
	path, value := w.drawPath(t)
	for range 3 {
		// Most of the time the value should be one that the leaf can judge.
		_, isText := value.(string)
		_, isList := value.([]any)
		_, isObject := value.(map[string]any)
		if kind == 5 && !isList && !isObject || (kind == 6 || kind == 7) && !isText {
			path, value = w.drawPath(t)
		}
	}
	not := rapid.Bool().Draw(t, "not")
	switch kind {
	case 0, 1, 2, 8, 9:
		comparison := rapid.SampledFrom([]domain.Comparison{domain.Equal, domain.NotEqual, domain.Less, domain.LessOrEqual, domain.Greater, domain.GreaterOrEqual}).Draw(t, "comparison")
		return domain.Compare{Path: path, Comparison: comparison, Value: drawScalar(t, value)}
	case 3:
		return domain.Has{Path: path, Not: not}
	case 4:
		values := make([]domain.Scalar, rapid.IntRange(0, 4).Draw(t, "values"))
		for i := range values {
			values[i] = drawScalar(t, value)
		}
		return domain.OneOf{Path: path, Values: values, Not: not}
	case 5:
		switch inner := value.(type) {
		case []any:
			if len(inner) > 0 {
				value = rapid.SampledFrom(inner).Draw(t, "element")
			}
		case map[string]any:
			value = rapid.SampledFrom(w.names).Draw(t, "name")
		}
		return domain.Contains{Path: path, Value: drawScalar(t, value), Not: not}
	case 6:
		if text, ok := value.(string); ok {
			// A part of that text.
			runes := []rune(text)
			from := rapid.IntRange(0, len(runes)).Draw(t, "from")
			value = string(runes[from:rapid.IntRange(from, len(runes)).Draw(t, "to")])
		}
		text := drawScalar(t, value).Text
		return domain.Text{Path: path, Test: rapid.SampledFrom([]domain.TextTest{domain.StartsWith, domain.EndsWith, domain.Includes}).Draw(t, "test"), Text: text, Not: not}
	default:
		pattern, err := domain.ParsePattern(rapid.SampledFrom(patterns).Draw(t, "pattern"))
		if err != nil {
			t.Fatalf("%v", err)
		}
		return domain.Matches{Path: path, Pattern: pattern, Not: not, Place: "line 1, column 7"}
	}
}

func (w world) drawOrder(t *rapid.T) []domain.Order {
	order := make([]domain.Order, rapid.IntRange(0, domain.MaxOrderTerms).Draw(t, "terms"))
	for i := range order {
		order[i].Path, _ = w.drawPath(t)
		order[i].Descending = rapid.Bool().Draw(t, "descending")
	}
	return order
}

// drawPlace draws a place in the order: a document's, or any.
func (w world) drawPlace(t *rapid.T, documents []domain.Document, order []domain.Order) *domain.SortKey {
	key, err := domain.SortKeyOf(rapid.SampledFrom(documents).Draw(t, "place"), order)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if rapid.Bool().Draw(t, "another id") {
		key.ID = rapid.SampledFrom(slices.Concat(oddIDs, []string{""})).Draw(t, "id")
	}
	for i := range key.Values {
		if rapid.IntRange(0, 2).Draw(t, "another value") == 2 {
			if value := drawScalar(t, nil); len(value.Text) <= domain.MaxOrderedCharacters {
				key.Values[i] = value
			}
		}
	}
	return &key
}
