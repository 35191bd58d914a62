package mongo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// canonical returns a JSON text with its members sorted and its numbers as domain.Scalar writes them.
func canonical(t interface{ Fatalf(string, ...any) }, text []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var numbers func(value any) any
	numbers = func(value any) any {
		switch value := value.(type) {
		case map[string]any:
			for name, member := range value {
				value[name] = numbers(member)
			}
		case []any:
			for i, element := range value {
				value[i] = numbers(element)
			}
		case json.Number:
			return json.Number(domain.ParseNumber(string(value)).JSON())
		}
		return value
	}
	out, err := json.Marshal(numbers(value))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(out)
}

var drawnText = rapid.Map(rapid.OneOf(
	rapid.StringOf(rapid.SampledFrom([]rune("ab.$% %25\u00a0é\U0001f600\"\\/\n\x01\u2028"))), rapid.String(),
), func(text string) string { return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "") })

func drawValue(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 8).Draw(t, "kind")
	if depth == 0 {
		kind = 7
	} else if depth > 4 {
		kind %= 6
	}
	switch kind {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return rapid.Float64().Draw(t, "double")
	case 4:
		return json.Number(rapid.SampledFrom([]string{
			"1.0", "-0", "-0.0", "1e3", "100e-2", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e308", "-1e308",
			"123456789012345678", "999999999999999999", "9007199254740993.0", "5e-324", "1E+2", "0.1",
		}).Draw(t, "number"))
	case 5, 6:
		return drawnText.Draw(t, "text")
	case 7:
		object := make(map[string]any)
		for range rapid.IntRange(0, 15).Draw(t, "members") {
			object[drawnText.Draw(t, "name")] = drawValue(t, depth+1)
		}
		return object
	default:
		list := make([]any, 0)
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			list = append(list, drawValue(t, depth+1))
		}
		return list
	}
}

// oftener checks a property ten times as often as properties that need a server.
func oftener(t *testing.T, property func(t *rapid.T)) {
	t.Helper()
	for range 10 {
		rapid.Check(t, property)
	}
}

func TestJSONIsTheSameBehindBSON(t *testing.T) {
	t.Parallel()
	oftener(t, func(t *rapid.T) {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(rapid.Bool().Draw(t, "escapes"))
		if rapid.Bool().Draw(t, "indent") {
			encoder.SetIndent(" ", "\t")
		}
		if err := encoder.Encode(drawValue(t, 0)); err != nil {
			t.Skip("a number that JSON has not")
		}
		before := []byte("what was there")
		encoded, err := encodeDocument(before, text.Bytes(), "document x")
		if err != nil {
			t.Fatalf("%s: %v", &text, err)
		}
		raw := bson.Raw(encoded[len(before):])
		if err := raw.Validate(); err != nil {
			t.Fatalf("%s becomes no BSON: %v", &text, err)
		}
		checkNames(t, raw)
		decoded, err := decodeDocument(nil, raw)
		if err != nil {
			t.Fatalf("%s: %v", &text, err)
		}
		if want, got := canonical(t, text.Bytes()), canonical(t, decoded); got != want {
			t.Fatalf("%s\ncomes back as\n%s", want, got)
		}
		if err := domain.CheckJSON(decoded); err != nil {
			t.Fatalf("%s comes back as no JSON: %v", &text, err)
		}
	})
}

// checkNames checks that each name can be a step of a path.
func checkNames(t *rapid.T, raw bson.Raw) {
	elements, err := raw.Elements()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, element := range elements {
		name := element.Key()
		if name == "" || name[0] == '$' || strings.Contains(name, ".") || strings.TrimSpace(name) != name {
			t.Fatalf("the name %q is no step of a path", name)
		}
		switch value := element.Value(); value.Type {
		case bson.TypeEmbeddedDocument:
			checkNames(t, value.Document())
		case bson.TypeArray:
			checkNames(t, bson.Raw(value.Array()))
		}
	}
}

func TestNamesAreApart(t *testing.T) {
	t.Parallel()
	oftener(t, func(t *rapid.T) {
		a, b := drawnText.Draw(t, "a"), drawnText.Draw(t, "b")
		if back := string(unescapeName([]byte(escapeName(a)))); back != a {
			t.Fatalf("%q comes back as %q", a, back)
		}
		if a != b && escapeName(a) == escapeName(b) {
			t.Fatalf("%q and %q both become %q", a, b, escapeName(a))
		}
	})
	for name, want := range map[string]string{
		"a": "a", "": "%", "$a": "%24a", "a$": "a$", "a.b": "a%2Eb", "%": "%25", "%2E": "%252E", " a b ": "%20a b%20", "é": "é", "_id": "_id", "0": "0",
	} {
		if got := escapeName(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}

func TestOfRepeatedNamesTheLastIsKept(t *testing.T) {
	t.Parallel()
	many := func(suffix string) (text string) {
		for i := range 40 {
			text += fmt.Sprintf(`"n%d":"%d%s",`, i%30, i, suffix)
		}
		return text
	}
	for text, want := range map[string]string{
		`{"a":1,"a":2}`:                                              `{"a":2}`,
		`{"a":1,"\u0061":{"b":1,"b":[2]}}`:                           `{"a":{"b":[2]}}`,
		`{"a":{"x":"long"},"b":2,"a":3,"c":4,"b":{}}`:                `{"a":3,"b":{},"c":4}`,
		`{"list":[{"a":1,"a":2},{"a":3}],"":1,"":2}`:                 `{"":2,"list":[{"a":2},{"a":3}]}`,
		`{` + many("x") + `"o":{` + many("y") + `"n1":0},"n2":null}`: canonical(t, []byte(`{`+many("x")+`"o":{`+many("y")+`"n1":0},"n2":null}`)),
	} {
		encoded, err := encodeDocument(nil, []byte(text), "")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		decoded, err := decodeDocument(nil, encoded)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := canonical(t, decoded); got != canonical(t, []byte(want)) {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
		if strings.Count(string(decoded), `"n5"`) > 2 {
			t.Errorf("%s has a name more than once", decoded)
		}
	}
}

func TestWhatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]domain.Code{
		``: domain.CodeInvalidJSON, `[]`: domain.CodeInvalidJSON, `1`: domain.CodeInvalidJSON, `{"a":}`: domain.CodeInvalidJSON, `{"a":"\u0000"}`: domain.CodeInvalidJSON,
		`{"a":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`: domain.CodeInvalidJSON,
		`{"a":[` + strings.Repeat("1,", MaxDataBytes/10) + `1]}`:                      domain.CodeTooLarge,
	} {
		_, err := encodeDocument(nil, []byte(text), "document x")
		if sorted, ok := errors.AsType[*domain.Error](err); !ok || sorted.Code != want || sorted.Where != "document x" {
			t.Errorf("%.40s gives %v, want %s at document x", text, err, want)
		}
	}
}

// Whatever is in the database, decoding it ends with a document or an error.
func FuzzDecodeDocument(f *testing.F) {
	for _, text := range []string{`{}`, `{"a":[1,2.5,{"b":null}],"%":"x","":true}`} {
		encoded, err := encodeDocument(nil, []byte(text), "")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if decoded, err := decodeDocument(nil, raw); err == nil && !json.Valid(decoded) {
			t.Errorf("%x becomes %s", raw, decoded)
		}
	})
}

// A row lists a path as not orderable if domain.SortKeyOf cannot order the document by it, and if a list is on the way.
func TestNotOrderablePathsAreListed(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom([]string{"a", "$b", "0"})
	scalars := []any{nil, true, 7, 1.5, "", strings.Repeat("ä", domain.MaxOrderedCharacters), strings.Repeat("ä", domain.MaxOrderedCharacters+1)}
	var draw func(t *rapid.T, depth int) any
	draw = func(t *rapid.T, depth int) any {
		switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
		case depth == 0 || depth < 4 && kind < 3:
			object := make(map[string]any)
			for range rapid.IntRange(0, 3).Draw(t, "members") {
				object[names.Draw(t, "name")] = draw(t, depth+1)
			}
			return object
		case depth < 4 && kind == 3:
			return []any{draw(t, depth+1)}
		}
		return rapid.SampledFrom(scalars).Draw(t, "scalar")
	}
	oftener(t, func(t *rapid.T) {
		value := draw(t, 0)
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := encodeDocument(nil, text, "")
		if err != nil {
			t.Fatal(err)
		}
		declared := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) domain.Path { return rapid.SliceOfN(names, 1, 4).Draw(t, "path") }), 0, 3).Draw(t, "declared")
		var want []int64
		for i, path := range declared {
			key, err := domain.SortKeyOf(domain.Document{Data: text}, []domain.Order{{Path: path}})
			if err != nil {
				t.Fatal(err)
			}
			listed, at := key.Unordered, value
			for _, step := range path[:len(path)-1] {
				object, _ := at.(map[string]any)
				at = object[step]
				_, isList := at.([]any)
				listed = listed || isList
			}
			if listed {
				want = append(want, int64(i))
			}
		}
		row := bson.Raw(closeDocument(appendNotOrderable(openDocument(nil), encoded, declared), 0))
		var got struct {
			NotOrderable []int64 `bson:"notOrderable"`
		}
		if err := errors.Join(row.Validate(), bson.Unmarshal(row, &got)); err != nil || !slices.Equal(got.NotOrderable, want) {
			t.Fatalf("of %s, the row lists %v of %v, %v; want %v", text, got.NotOrderable, declared, err, want)
		}
	})
}

// A document for whose keys a row has no room is stored without them.
func TestLargeDocumentsHaveNoKeys(t *testing.T) {
	t.Parallel()
	at := placeOf(domain.Build{ProjectionID: domain.ProjectionID{Owner: domain.NewTenantID(), Name: "own"}, Number: 1}, domain.NewTenantID(), table{layout: 1, keyed: []domain.Path{{"a"}}})
	for bytes, keys := range map[int]int{1_000: 1, MaxDataBytes - maxKeysBytes - 100: 1, MaxDataBytes - 100: 0} {
		row, err := encodeRow(nil, at, &domain.Document{ID: "x", Version: 1, Data: []byte(`{"a": "` + strings.Repeat("x", bytes) + `"}`)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bson.Raw(row).LookupErr("key1"); (err == nil) != (keys == 1) || len(row) > 16<<20 {
			t.Errorf("a document of %d bytes: the row has %d bytes, and its key %v; want %d keys", bytes, len(row), err, keys)
		}
	}
}
