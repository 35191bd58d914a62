package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	library "github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// drawSchema draws a schema of up to the given depth, with references to the definitions a and b.
func drawSchema(t *rapid.T, depth int) any {
	if rapid.IntRange(0, 9).Draw(t, "bool") == 0 {
		return rapid.Bool().Draw(t, "schema")
	}
	s := map[string]any{}
	keywords := []string{"type", "const", "enum", "minimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems",
		"required", "minProperties", "maxProperties", "dependentRequired"}
	if depth > 0 {
		keywords = append(keywords, "properties", "properties", "additionalProperties", "patternProperties", "propertyNames", "items", "prefixItems", "contains", "allOf", "anyOf", "oneOf",
			"not", "if", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "$ref")
	}
	sub := func() any { return drawSchema(t, depth-1) }
	list := func() any {
		all := make([]any, rapid.IntRange(1, 3).Draw(t, "length"))
		for i := range all {
			all[i] = sub()
		}
		return all
	}
	names := func() any {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(propertyNames), 0, 2, rapid.ID[string]).Draw(t, "names")
	}
	for range rapid.IntRange(1, 3).Draw(t, "keywords") {
		switch keyword := rapid.SampledFrom(keywords).Draw(t, "keyword"); keyword {
		case "type":
			s[keyword] = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"null", "boolean", "integer", "number", "string", "array", "object"}), 1, 3, rapid.ID[string]).Draw(t, "types")
		case "const":
			s[keyword] = drawValue(t, 1)
		case "enum":
			s[keyword] = []any{drawValue(t, 1), drawValue(t, 0)}
		case "minimum", "exclusiveMaximum":
			s[keyword] = drawNumber(t)
		case "multipleOf":
			s[keyword] = json.Number(rapid.SampledFrom([]string{"1", "2", "0.5", "1e1", "0.3"}).Draw(t, "divisor"))
		case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
			s[keyword] = rapid.IntRange(0, 2).Draw(t, "count")
		case "pattern":
			s[keyword] = rapid.SampledFrom([]string{"a", "^b", "^(a|b)*$"}).Draw(t, "pattern")
		case "uniqueItems":
			s[keyword] = true
		case "required":
			s[keyword] = names()
		case "dependentRequired":
			s[keyword] = map[string]any{"a": names()}
		case "properties", "dependentSchemas":
			s[keyword] = map[string]any{"a": sub(), "b": sub()}
		case "patternProperties":
			s[keyword] = map[string]any{"^b": sub()}
		case "prefixItems", "allOf", "anyOf", "oneOf":
			s[keyword] = list()
		case "if":
			s["if"], s["then"], s["else"] = sub(), sub(), sub()
		case "$ref":
			s[keyword] = "#/$defs/" + rapid.SampledFrom([]string{"a", "b"}).Draw(t, "definition")
		default:
			s[keyword] = sub()
		}
	}
	return s
}

var propertyNames = []string{"a", "b", "bb", "c"}

func drawNumber(t *rapid.T) json.Number {
	return json.Number(rapid.SampledFrom([]string{"0", "-0", "1", "1.0", "10e-1", "2", "1.5", "-3", "0.30", "1e2", "100", "12345678901234567890123", "3e-2"}).Draw(t, "number"))
}

func drawValue(t *rapid.T, depth int) any {
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return drawNumber(t)
	case 3:
		return rapid.SampledFrom([]string{"", "a", "b", "ab", "c", "é"}).Draw(t, "text")
	case 4:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		object[rapid.SampledFrom(propertyNames).Draw(t, "name")] = drawValue(t, depth-1)
	}
	return object
}

func drawDocument(t *rapid.T) []byte {
	document := map[string]any{"allOf": []any{drawSchema(t, 2)}, "$defs": map[string]any{"a": drawSchema(t, 1), "b": drawSchema(t, 0)}}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A value satisfies a schema exactly if another implementation says so.
func TestEvaluationAgreesWithTheLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := drawDocument(t)
		compiled, err := Compile(text)
		if err != nil {
			if !strings.Contains(err.Error(), "without end") {
				t.Fatalf("%s: %v", text, err)
			}
			t.Skip("it is endless")
		}
		document, err := library.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		compiler := library.NewCompiler()
		compiler.DefaultDraft(library.Draft2020)
		if err := compiler.AddResource("schema.json", document); err != nil {
			t.Fatal(err)
		}
		oracle, err := compiler.Compile("schema.json")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for range 5 {
			value, err := json.Marshal(drawValue(t, 3))
			if err != nil {
				t.Fatal(err)
			}
			want, err := library.UnmarshalJSON(bytes.NewReader(value))
			if err != nil {
				t.Fatal(err)
			}
			mine, err := parseValue(value)
			if err != nil {
				t.Fatal(err)
			}
			e := &evaluator{left: 1_000_000}
			ok, err := e.evaluate(compiled, mine)
			if valid := oracle.Validate(want) == nil; err != nil || ok != valid {
				t.Fatalf("%s\n%s\nis valid: %v, the library says %v (%v) %+v", text, value, ok, valid, err, oracle.Validate(want))
			}
			if ok != (len(e.found) == 0) {
				t.Fatalf("%s\n%s\nis valid: %v, with the violations %+v", text, value, ok, e.found)
			}
		}
	})
}

// If a schema is compatible with another one, it accepts what that one accepts, except by the lenient rule.
func TestCompatibleSchemasAcceptTheSameValues(t *testing.T) {
	t.Parallel()
	compatible := 0
	rapid.Check(t, func(t *rapid.T) {
		narrowText := drawDocument(t)
		var wideText []byte
		if rapid.Bool().Draw(t, "other") {
			wideText = drawDocument(t)
		} else {
			wideText = mutate(t, narrowText)
		}
		narrow, err := Compile(narrowText)
		if err != nil {
			t.Skip(err)
		}
		wide, err := Compile(wideText)
		if err != nil {
			t.Skip(err)
		}
		if len(newComparer("new", "old", false).compare(wide, narrow)) > 0 {
			return
		}
		compatible++
		for range 5 {
			value, err := parseValue(must(json.Marshal(drawValue(t, 3))))
			if err != nil {
				t.Fatal(err)
			}
			e := &evaluator{left: 1_000_000}
			if ok, err := e.evaluate(narrow, value); err != nil || !ok {
				continue
			}
			if ok, err := e.evaluate(wide, value); err != nil || !ok {
				t.Fatalf("%s\naccepts %v, which the compatible\n%s\ndoes not: %+v", narrowText, value, wideText, e.found)
			}
		}
	})
	if compatible == 0 {
		t.Error("no two schemas were compatible")
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

// mutate replaces one number or keyword of a schema.
func mutate(t *rapid.T, text []byte) []byte {
	from := rapid.SampledFrom([][2]string{{`"minLength":1`, `"minLength":0`}, {`"maxLength":1`, `"maxLength":2`}, {`"minItems":1`, `"minItems":0`}, {`"type":["integer"`, `"type":["number"`},
		{`"required":["a"]`, `"required":[]`}, {`"minimum":1`, `"minimum":0`}, {`"uniqueItems":true`, `"uniqueItems":false`}, {`"maxItems":1`, `"maxItems":2`}, {`"a":true`, `"a":{}`}, {"false", "true"}}).Draw(t, "mutation")
	return bytes.Replace(text, []byte(from[0]), []byte(from[1]), 1)
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"type": "strin"}`:                                      "schema/type: expected one or more of",
		`{"require": ["a"]}`:                                     "did you mean required?",
		`{"properties": {"a": {"foo": 1}}}`:                      "schema/properties/a/foo: unknown keyword",
		`{"$ref": "https://example.com/a"}`:                      "nothing is loaded from elsewhere",
		`{"$ref": "file:///etc/passwd"}`:                         "nothing is loaded from elsewhere",
		`{"$ref": "other.json#/a"}`:                              "nothing is loaded from elsewhere",
		`{"$ref": "#/$defs/a"}`:                                  "leads nowhere",
		`{"$ref": "#a"}`:                                         "no $anchor",
		`{"$ref": "#"}`:                                          "without end",
		`{"anyOf": [{"not": {"$ref": "#"}}]}`:                    "without end",
		`{"$dynamicRef": "#a"}`:                                  "dynamic references are not supported",
		`{"items": [{}]}`:                                        "use prefixItems",
		`{"$schema": "http://json-schema.org/draft-07/schema#"}`: "only \"https://json-schema.org/draft/2020-12/schema\"",
		`{"$defs": {"a": {"$id": "b"}}}`:                         "only the whole schema may have an id",
		`{"pattern": "(?=a)"}`:                                   "not a regular expression",
		`{"pattern": "(((a{200}){200}){200})"}`:                  "schema/pattern",
		`{"minLength": -1}`:                                      "a whole number from 0",
		`{"minLength": 1.5}`:                                     "a whole number from 0",
		`{"multipleOf": 0}`:                                      "above 0",
		`{"required": ["a", "a"]}`:                               "different names",
		`{"enum": []}`:                                           "at least one",
		`{"anyOf": []}`:                                          "at least one",
		`{"properties": []}`:                                     "expected an object",
		`{"properties": {"a": 1}}`:                               "a schema is an object, true or false",
		`[]`:                                                     "a schema is an object, true or false",
		`{"a"`:                                                   "the JSON ends",
		`{"minimum": 1e200000}`:                                  "schema",
		`{"allOf": [` + strings.Repeat(`true,`, 2500) + `true]}`:                                                                               "more than 2000 subschemas",
		`{"properties": {"` + strings.Repeat("a", 2000) + `": {"type": "string"}}}`:                                                            "names are too long",
		`{"description": "` + strings.Repeat("a", 70_000) + `"}`:                                                                               "at most 65536",
		strings.Repeat(`{"not":`, 60) + `{"type":"string"}` + strings.Repeat(`}`, 60):                                                          "apply to the same value",
		`{"properties": {"a": {"pattern": "` + strings.Repeat("a{255}", 30) + `"}, "b": {"pattern": "` + strings.Repeat("b{255}", 30) + `"}}}`: "more than 10000 parts",
	} {
		_, err := Compile([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v; want %q", text, err, want)
		}
	}
}

func TestCompatibility(t *testing.T) {
	t.Parallel()
	const order = `{"type": "object", "required": ["customer"], "properties": {"customer": {"type": "string"}, "total": {"type": "number", "minimum": 0}}}`
	closed := strings.Replace(order, `"type": "object",`, `"type": "object", "additionalProperties": false,`, 1)
	tree := `{"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"left": {"$ref": "#/$defs/t"}, "n": {"type": "integer"}}}}}`
	kinds := `{"oneOf": [{"properties": {"kind": {"const": "a"}}, "required": ["kind"], "type": "object"}, {"properties": {"kind": {"const": "b"}, "n": {"type": "integer"}}, "required": ["kind"], "type": "object"}%s]}`
	for _, test := range []struct {
		name, old, new string
		backward       string // the place of the first violation; empty: compatible
		forward        string
	}{
		{"the same", order, order, "", ""},
		{"an optional property, open", order, strings.Replace(order, `"total"`, `"note": {"type": "string"}, "total"`, 1), "", ""},
		{"an optional property, closed", closed, strings.Replace(closed, `"total"`, `"note": {"type": "string"}, "total"`, 1), "", "/additionalProperties"},
		{"a required property", order, strings.Replace(order, `["customer"]`, `["customer", "total"]`, 1), "/required", ""},
		{"an optional one", order, strings.Replace(order, `["customer"]`, `[]`, 1), "", "/required"},
		{"another type", order, strings.Replace(order, `{"type": "string"}`, `{"type": "integer"}`, 1), "/properties/customer/type", "/properties/customer/type"},
		{"a wider type", order, strings.Replace(order, `{"type": "string"}`, `{"type": ["string", "null"]}`, 1), "", "/properties/customer/type"},
		{"a higher limit", order, strings.Replace(order, `"minimum": 0`, `"minimum": 1`, 1), "/properties/total/minimum", ""},
		{"closed content", order, closed, "/additionalProperties", ""},
		{"a removed property, closed", closed, `{"type": "object", "required": ["customer"], "additionalProperties": false, "properties": {"customer": {"type": "string"}}}`, "/additionalProperties", ""},
		{"a recursive schema", tree, tree, "", ""},
		{"a changed recursive schema", tree, strings.Replace(tree, "integer", "number", 1), "", "/$defs/t/properties/n/type"},
		{"an enum that grows", `{"enum": ["a", "b"]}`, `{"enum": ["a", "b", "c"]}`, "", "/enum"},
		{"another alternative", fmt.Sprintf(kinds, ""), fmt.Sprintf(kinds, `, {"properties": {"kind": {"const": "c"}}, "required": ["kind"], "type": "object"}`), "", "/oneOf"},
		{"alternatives as types", `{"anyOf": [{"type": "string"}, {"type": "integer"}]}`, `{"type": ["string", "number"]}`, "", "/anyOf"},
		{"a definition moved", `{"properties": {"a": {"type": "string", "minLength": 1}}}`, `{"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string", "minLength": 1}}}`, "", ""},
		{"a pattern", `{"type": "string"}`, `{"type": "string", "pattern": "^a"}`, "/pattern", ""},
		{"not", `{"not": {"type": "string"}}`, `{"not": {"type": "integer"}}`, "/not", "/not"},
	} {
		before, err := Compile([]byte(test.old))
		if err != nil {
			t.Fatal(test.name, err)
		}
		after, err := Compile([]byte(test.new))
		if err != nil {
			t.Fatal(test.name, err)
		}
		first := func(wide, narrow *Schema) string {
			if found := compareSchemas(wide, narrow, "wide", "narrow"); len(found) > 0 {
				return found[0].Pointer
			}
			return ""
		}
		if got := first(after, before); got != test.backward {
			t.Errorf("%s, backward: the first violation is at %q, want %q", test.name, got, test.backward)
		}
		if got := first(before, after); got != test.forward {
			t.Errorf("%s, forward: the first violation is at %q, want %q", test.name, got, test.forward)
		}
	}
}
