package codegen_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	esbuild "github.com/evanw/esbuild/pkg/api"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/schema/codegen"
	"github.com/manifold-es/manifold/schema/codegen/testdata/events"
)

var update = flag.Bool("update", false, "write the golden files")

// goldenTypes returns the schemas in testdata, in files named TYPE.VERSION.json.
func goldenTypes(t *testing.T) (all []codegen.Type) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := schema.Compile(text); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		dot := strings.LastIndexByte(name, '.')
		version, err := strconv.ParseInt(name[dot+1:], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, codegen.Type{Name: name[:dot], Version: version, Schema: text})
	}
	return all
}

func generateBoth(t rapid.TB, types []codegen.Type) (typeScript, goCode []byte) {
	t.Helper()
	typeScript, err := codegen.TypeScript(types)
	if err != nil {
		t.Fatalf("TypeScript: %v\n%v", err, types)
	}
	goCode, err = codegen.Go("events", types)
	if err != nil {
		t.Fatalf("Go: %v\n%v", err, types)
	}
	return typeScript, goCode
}

func TestGoldenFiles(t *testing.T) {
	t.Parallel()
	types := goldenTypes(t)
	typeScript, goCode := generateBoth(t, types)
	for path, got := range map[string][]byte{"testdata/events.ts": typeScript, "testdata/events/events.go": goCode} {
		if *update {
			if err := os.WriteFile(path, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs (%v); run the test with -update, and look at the difference:\n%s", path, err, got)
		}
	}
	// The order of the input does not matter.
	for i, j := 0, len(types)-1; i < j; i, j = i+1, j-1 {
		types[i], types[j] = types[j], types[i]
	}
	again, goAgain := generateBoth(t, types)
	if !bytes.Equal(again, typeScript) || !bytes.Equal(goAgain, goCode) {
		t.Error("the output depends on the order of the input")
	}
}

// The generated Go types decode data, and encode it again without loss.
func TestGeneratedGoDecodesData(t *testing.T) {
	t.Parallel()
	const data = `{
		"customer": {"name": "Ann", "id": "0190d3a4-5b6c-7def-8123-456789abcde0", "referredBy": {"name": "Bob", "id": "0190d3a4-5b6c-7def-8123-456789abcde1"}},
		"lines": [{"sku": "s-1", "quantity": 2, "price": 4.5, "bundle": [{"sku": "s-2", "quantity": 1, "discount": 0}]}],
		"currency": "EUR", "channel": "web", "placed_at": "2026-03-01T09:30:00Z", "total": 0, "priority": 2,
		"payment": {"kind": "card", "last4": "4242"}, "position": [1, 2.5], "tags": ["a", null], "attributes": {"n": 1}, "anything": [true],
		"utm-source": "x", "utm_source": "y", "gift": {"to": "Eve", "card": {"text": ""}}, "odd": {"a,b": "c"}
	}`
	compiler := jsonschema.NewCompiler()
	schemaText, err := os.ReadFile("testdata/OrderPlaced.2.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaText))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.AddResource("placed.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("placed.json")
	if err != nil {
		t.Fatal(err)
	}
	var placed events.OrderPlaced
	decoder := json.NewDecoder(strings.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&placed); err != nil {
		t.Fatal(err)
	}
	var card events.OrderPlacedPaymentCard
	if err := json.Unmarshal(placed.Payment, &card); err != nil || card.Last4 != "4242" || card.Kind != events.OrderPlacedPaymentCardKindCard {
		t.Errorf("the payment is %+v, %v", card, err)
	}
	if placed.Currency != events.OrderPlacedCurrencyEUR || placed.Customer.ReferredBy.Name != "Bob" || placed.Note != nil || *placed.Total != 0 {
		t.Errorf("it is %+v", placed)
	}
	text, err := json.Marshal(placed)
	if err != nil {
		t.Fatal(err)
	}
	var before, after any
	if json.Unmarshal([]byte(data), &before) != nil || json.Unmarshal(text, &after) != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("it became %s", text)
	}
	if err := compiled.Validate(after); err != nil {
		t.Error(err)
	}
}

// hostile are texts that try to leave comments, strings and names.
var hostile = []string{
	"", "a", "id", "Order", "a b", "1st", "a-b", "a_b", "type", "func", "__proto__", "constructor", "-", "*/ x: string; /*", "`", "a`b", `"`, `\`, "a\nb",
	"x\r\n// y", "\u2028z", "\u202e", "\ufeff", "\x00", "客户", "ß", "ǅ", "é", "go:build ignore", "${x}", "'", "//", "/*", "</script>", "%s", "\U0001F600", "a,omitempty", "json",
	"time", "Events", "X", "Item", "AItem", "\n\n# Heading\n\n\tcode\n- list", "@deprecated", "+build x", "line x.go:1", "̈", "٣",
}

// drawSchema draws a schema. References lead to the whole schema, or to one of three definitions.
func drawSchema(t *rapid.T, depth int) any {
	some := rapid.SampledFrom(hostile)
	if depth == 0 {
		return rapid.SampledFrom([]any{true, false, map[string]any{"type": "string"}, map[string]any{"$ref": "#/$defs/a"}, map[string]any{"$ref": "#"}, map[string]any{"type": "null"}}).Draw(t, "leaf")
	}
	schemas := func(label string) any {
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any { return drawSchema(t, depth-1) }), 1, 3).Draw(t, label)
	}
	named := func(label string) map[string]any {
		found := make(map[string]any)
		for _, name := range rapid.SliceOfN(some, 0, 4).Draw(t, label) {
			found[name] = drawSchema(t, depth-1)
		}
		return found
	}
	schema := make(map[string]any)
	for _, keyword := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"type", "type", "types", "properties", "properties", "required", "additionalProperties", "patternProperties", "items", "prefixItems", "minItems",
		"enum", "const", "$ref", "allOf", "anyOf", "oneOf", "title", "description", "deprecated", "format", "unevaluatedProperties",
	}), 0, 5, rapid.ID[string]).Draw(t, "keywords") {
		kinds := rapid.SampledFrom([]string{"string", "object", "array", "null", "number", "integer", "boolean"})
		value := rapid.SampledFrom([]any{nil, true, 1, -1.5, json.Number("1e40"), json.Number("1e400"), "a", "*/", "`", "\"", "\n", "", []any{1, "*/"}, map[string]any{"*/": 1}, map[string]any{}})
		switch keyword {
		case "type":
			schema["type"] = kinds.Draw(t, "type")
		case "types":
			schema["type"] = rapid.SliceOfNDistinct(kinds, 1, 3, rapid.ID[string]).Draw(t, "types")
		case "properties":
			schema[keyword] = named(keyword)
		case "required":
			schema[keyword] = rapid.SliceOfNDistinct(some, 0, 3, rapid.ID[string]).Draw(t, keyword)
		case "patternProperties":
			schema[keyword] = map[string]any{"^a": drawSchema(t, depth-1)}
		case "items", "additionalProperties", "unevaluatedProperties":
			schema[keyword] = drawSchema(t, depth-1)
		case "prefixItems", "allOf", "anyOf", "oneOf":
			schema[keyword] = schemas(keyword)
		case "minItems":
			schema[keyword] = rapid.SampledFrom([]any{0, 1, 2, json.Number("1e300")}).Draw(t, keyword)
		case "enum":
			schema[keyword] = rapid.SliceOfN(rapid.OneOf(value, rapid.Map(some, func(text string) any { return text })), 1, 4).Draw(t, keyword)
		case "const":
			schema[keyword] = value.Draw(t, keyword)
		case "$ref":
			schema[keyword] = rapid.SampledFrom([]string{"#", "#/$defs/a", "#/$defs/a-b", "#/$defs/a_b", "#named", "#/%24defs/a~1b"}).Draw(t, keyword)
		case "title", "description":
			schema[keyword] = some.Draw(t, keyword)
		case "deprecated":
			schema[keyword] = true
		case "format":
			schema[keyword] = "date-time"
		}
	}
	return schema
}

// Whatever the service accepts as a schema, the TypeScript parses and the Go compiles, and no text of the schema leaves
// its comment or string.
func TestEveryAcceptedSchemaGeneratesCode(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	// The compiler's export data: with -trimpath, the sources are not where the importer of sources looks.
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		file, err := exec.Command("go", "list", "-export", "-f", "{{.Export}}", path).Output()
		if err != nil {
			return nil, err
		}
		return os.Open(string(bytes.TrimSpace(file)))
	})
	rapid.Check(t, func(t *rapid.T) {
		var types []codegen.Type
		for i := range rapid.IntRange(1, 3).Draw(t, "types") {
			document, ok := drawSchema(t, 3).(map[string]any)
			if !ok {
				continue
			}
			document["$defs"] = map[string]any{
				"a": drawSchema(t, 2), "a-b": drawSchema(t, 2), "a_b": drawSchema(t, 2), "a/b": drawSchema(t, 1),
				"n": map[string]any{"$anchor": "named", "type": "object", "properties": map[string]any{"next": map[string]any{"$ref": "#named"}}, "required": []string{"a"}},
			}
			text, err := json.Marshal(document)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := schema.Compile(text); err != nil {
				continue
			}
			name := rapid.SampledFrom([]string{"Order", "order", "a.b", "a/b", "1", "+", "Events", "EventType", "Order.a", "Date", "TypeOrder"}).Draw(t, "name")
			types = append(types, codegen.Type{Name: name, Version: int64(i + 1), Schema: text})
		}
		typeScript, goCode := generateBoth(t, types)
		result := esbuild.Transform(string(typeScript), esbuild.TransformOptions{Loader: esbuild.LoaderTS, Target: esbuild.ESNext})
		if len(result.Errors)+len(result.Warnings) > 0 || len(bytes.TrimSpace(result.Code)) > 0 {
			t.Fatalf("the TypeScript does not parse, or has code: %v %s\n%s", result.Errors, result.Code, typeScript)
		}
		file, err := parser.ParseFile(files, "", goCode, parser.ParseComments)
		if err != nil {
			t.Fatalf("%v\n%s", err, goCode)
		}
		for _, declaration := range file.Decls {
			if d, ok := declaration.(*ast.GenDecl); !ok || d.Tok == token.VAR {
				t.Fatalf("the Go code has more than types and constants:\n%s", goCode)
			}
		}
		if _, err := (&gotypes.Config{Importer: imports}).Check("events", files, []*ast.File{file}, nil); err != nil {
			t.Fatalf("the Go code does not compile: %v\n%s", err, goCode)
		}
	})
}

// A part of a schema can extend the definition that contains it.
func TestGoTypesOfAnExtendedDefinitionAreFinite(t *testing.T) {
	t.Parallel()
	_, goCode := generateBoth(t, []codegen.Type{{Name: "Tree", Version: 1, Schema: []byte(`{
		"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["id"], "properties": {
			"id": {"type": "integer"}, "child": {"allOf": [{"$ref": "#/$defs/node"}, {"type": "object", "required": ["child", "x"], "properties": {"x": {"type": "boolean"}}}]}
		}}}
	}`)}})
	if want := "type TreeNodeChild struct {\n\tID    int64          `json:\"id\"`\n\tChild *TreeNodeChild `json:\"child\"`\n\tX     bool           `json:\"x\"`\n}"; !strings.Contains(string(goCode), want) {
		t.Errorf("it is\n%s", goCode)
	}
}

// TypeScript's compiler refuses an unnamed optional element that contains the tuple's own type in another tuple or
// list.
func TestElementsOfRecursiveTuplesHaveNames(t *testing.T) {
	t.Parallel()
	const own, end = `{"$ref": "#"}`, `, "items": false}`
	inner := `{"prefixItems": [` + own + `]` + end
	for tuple, want := range map[string]string{
		`{"prefixItems": [` + inner + `]` + end:                                       "[item1?: [X?]]",
		`{"prefixItems": [` + inner + `], "minItems": 1` + end:                        "[[X?]]",
		`{"prefixItems": [` + own + `, ` + inner + `]` + end:                          "[X?, [X?]?]",
		`{"prefixItems": [` + inner + `], "items": ` + own + `}`:                      "[[X?]?, ...X[]]",
		`{"prefixItems": [{}], "items": {"items": ` + own + `}}`:                      "[item1?: unknown, ...rest: X[][]]",
		`{"prefixItems": [{"items": {"properties": {"a": ` + own + `}}}]` + end:       "[{\n      a?: X;\n    }[]?]",
		`{"prefixItems": [{"items": {"type": "string"}}], "items": {"type": "null"}}`: "[string[]?, ...null[]]",
	} {
		typeScript, _ := generateBoth(t, []codegen.Type{{Name: "X", Version: 1, Schema: []byte(`{"anyOf": [{"type": "string"}, ` + tuple + `]}`)}})
		if !strings.Contains(string(typeScript), want) {
			t.Errorf("%s gives no %s:\n%s", tuple, want, typeScript)
		}
	}
}

func TestGoTypesOfAnExtendedMapAreFinite(t *testing.T) {
	t.Parallel()
	_, goCode := generateBoth(t, []codegen.Type{{Name: "Tree", Version: 1, Schema: []byte(`{"type": "object", "additionalProperties": {"$ref": "#", "type": "object"}}`)}})
	if want := "type Tree map[string]map[string]any\n"; !strings.Contains(string(goCode), want) {
		t.Errorf("it is\n%s", goCode)
	}
}

func TestGoRefusesABadPackageName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "_", "a b", "func", "x;import \"os\""} {
		if _, err := codegen.Go(name, nil); err == nil {
			t.Errorf("it accepts %q", name)
		}
	}
}

func TestSchemasThatGenerateTooMuchAreRefused(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(`{"$defs": {"all": {"type": "object", "properties": {"a": true`)
	for i := range 600 {
		fmt.Fprintf(&text, `,"p%d": {}`, i)
	}
	text.WriteString(`}}`)
	var references strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, `, "d%d": {"allOf": [{"$ref": "#/$defs/all"}, {"required": ["b"]}]}`, i)
		fmt.Fprintf(&references, `,"p%d": {"$ref": "#/$defs/d%d"}`, i, i)
	}
	text.WriteString(`}, "type": "object", "properties": {"a": true` + references.String() + `}}`)
	if _, err := schema.Compile([]byte(text.String())); err != nil {
		t.Fatal(err)
	}
	types := make([]codegen.Type, 3)
	for i := range types {
		types[i] = codegen.Type{Name: "T", Version: int64(i + 1), Schema: []byte(text.String())}
	}
	if _, err := codegen.Go("events", types); err == nil || !strings.Contains(err.Error(), "8 MiB") {
		t.Errorf("it ends with %v", err)
	}
	if _, err := codegen.TypeScript(types); err != nil {
		t.Errorf("TypeScript: %v", err)
	}
}
