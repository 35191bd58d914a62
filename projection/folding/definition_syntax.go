package folding

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/manifold-es/manifold/domain"
)

// tree is parsed YAML or JSON: the same for both, with the line of each value.
type tree struct {
	line  int
	value any // nil, bool, number, string, []tree or []field
}

// number is a number in JSON's form.
type number string

type field struct {
	name  string
	line  int
	value tree
}

// maxTreeDepth limits the nesting of a definition in YAML; only its initial document is nested deeply.
const maxTreeDepth = 64

func parseTree(text []byte) (tree, error) {
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return parseJSONTree(text)
	}
	return parseYAMLTree(text)
}

// parseJSONTree applies the log's own rules: what they refuse, such as U+0000, could not be stored.
func parseJSONTree(text []byte) (tree, error) {
	r := jsonReader{text: text, JSONScanner: domain.NewJSONScanner(text), line: 1}
	v, err := r.value()
	if err == nil {
		err = r.End()
	}
	if wrong, ok := errors.AsType[*domain.JSONError](err); ok {
		return tree{}, domain.Errorf(domain.CodeInvalidDefinition, place(wrong.Line(text)), "not JSON: %s", wrong)
	}
	return v, err
}

// jsonReader builds a tree from JSON.
type jsonReader struct {
	*domain.JSONScanner
	text    []byte
	counted int // bytes whose line ends are counted in line
	line    int
}

// here returns the line of the last token.
func (r *jsonReader) here() int {
	r.line += bytes.Count(r.text[r.counted:r.Offset()], []byte("\n"))
	r.counted = r.Offset()
	return r.line
}

func (r *jsonReader) value() (v tree, err error) {
	next := r.Next()
	v.line = r.here()
	switch next {
	case '{':
		fields := []field{}
		err = r.Object(func(name string) (err error) {
			f := field{name: name, line: r.here()}
			f.value, err = r.value()
			fields = append(fields, f)
			return err
		})
		v.value = fields
	case '[':
		items := []tree{}
		err = r.Array(func(int) error {
			item, err := r.value()
			items = append(items, item)
			return err
		})
		v.value = items
	case '"':
		v.value, err = r.Text()
	default:
		var word json.RawMessage
		word, err = r.Value()
		switch string(word) {
		case "null":
		case "true", "false":
			v.value = string(word) == "true"
		default:
			v.value = number(word)
		}
	}
	return v, err
}

func parseYAMLTree(text []byte) (_ tree, err error) {
	if !utf8.Valid(text) {
		return tree{}, domain.Errorf(domain.CodeInvalidDefinition, "", "it is not UTF-8 text")
	}
	if err := checkYAMLSize(text); err != nil {
		return tree{}, err
	}
	// The parser is third-party code, and a client's text must never crash the program.
	defer func() {
		if r := recover(); r != nil {
			err = domain.Errorf(domain.CodeInvalidDefinition, "", "cannot parse the YAML: %v", r)
		}
	}()
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		where, message := "", err.Error()
		if at, ok := errors.AsType[yaml.Error](err); ok {
			message = at.GetMessage()
			if token := at.GetToken(); token != nil && token.Position != nil {
				where = place(token.Position.Line)
			}
		}
		return tree{}, domain.Errorf(domain.CodeInvalidDefinition, where, "not YAML: %s", message)
	}
	documents := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	if len(documents) != 1 {
		return tree{}, domain.Errorf(domain.CodeInvalidDefinition, "", "there are %d YAML documents here; a file has one", len(documents))
	}
	return yamlValue(documents[0].Body, 0)
}

// Limits for YAML only. Its parser takes time quadratic in the length of a line and of the whole text; JSON's does not.
const (
	maxYAMLBytes = 64 << 10
	maxYAMLLine  = 16 << 10
)

// checkYAMLSize refuses text that would make the parser run long or deep, which no definition needs.
func checkYAMLSize(text []byte) error {
	if len(text) > maxYAMLBytes {
		return domain.Errorf(domain.CodeTooLarge, "", "the definition has %d bytes; at most %d are allowed in YAML, and %d in JSON", len(text), maxYAMLBytes, MaxDefinitionBytes)
	}
	brackets := 0
	for i, line := range bytes.Split(text, []byte("\n")) {
		if len(line) > maxYAMLLine {
			return domain.Errorf(domain.CodeInvalidDefinition, place(i+1), "the line has %d bytes; at most %d are allowed in YAML: break it up", len(line), maxYAMLLine)
		}
		dashes := 0
		for _, c := range line {
			switch c {
			case '[', '{':
				brackets++
			case ']', '}':
				brackets = max(0, brackets-1)
			case '-', '?', ':':
				dashes++
			case ' ', '\t':
			default:
				dashes = 0
			}
			if brackets > maxTreeDepth || dashes > maxTreeDepth {
				return domain.Errorf(domain.CodeInvalidDefinition, place(i+1), "lists and objects are nested more than %d deep", maxTreeDepth)
			}
		}
	}
	return nil
}

func yamlValue(n ast.Node, depth int) (tree, error) {
	v := tree{line: n.GetToken().Position.Line}
	if depth > maxTreeDepth {
		return v, domain.Errorf(domain.CodeInvalidDefinition, place(v.line), "lists and objects are nested more than %d deep", maxTreeDepth)
	}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		v.value = n.Value
	case *ast.StringNode:
		v.value = n.Value
	case *ast.LiteralNode:
		v.value = n.Value.Value
	case *ast.IntegerNode:
		v.value = number(fmt.Sprint(n.Value))
	case *ast.FloatNode:
		v.value = number(strconv.FormatFloat(n.Value, 'g', -1, 64))
		if math.IsInf(n.Value, 0) {
			return v, domain.Errorf(domain.CodeInvalidDefinition, place(v.line), "the number is out of range")
		}
	case *ast.SequenceNode:
		items := make([]tree, len(n.Values))
		for i, item := range n.Values {
			var err error
			if items[i], err = yamlValue(item, depth+1); err != nil {
				return v, err
			}
		}
		v.value = items
	case *ast.MappingNode:
		return yamlObject(v, n.Values, depth)
	case *ast.MappingValueNode:
		return yamlObject(v, []*ast.MappingValueNode{n}, depth)
	default:
		return v, domain.Errorf(domain.CodeInvalidDefinition, place(v.line),
			"a definition may not use anchors, aliases, tags, merge keys, .inf and .nan (this is a YAML %s)", strings.ToLower(n.Type().String()))
	}
	return v, nil
}

func yamlObject(v tree, entries []*ast.MappingValueNode, depth int) (tree, error) {
	fields := make([]field, len(entries))
	for i, entry := range entries {
		f := field{line: entry.Key.GetToken().Position.Line}
		switch key := entry.Key.(type) {
		case *ast.StringNode:
			f.name = key.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
			f.name = key.GetToken().Value
		default:
			return v, domain.Errorf(domain.CodeInvalidDefinition, place(f.line), "a field's name is plain text here")
		}
		var err error
		if f.value, err = yamlValue(entry.Value, depth+1); err != nil {
			return v, err
		}
		fields[i] = f
	}
	v.value = fields
	return v, nil
}

func place(line int) string { return fmt.Sprintf("line %d", line) }

func (t tree) addWrongType(found *problems, where, wanted string) {
	what := ""
	switch v := t.value.(type) {
	case nil:
		what = "null"
	case bool:
		what = fmt.Sprint(v)
	case number:
		what = "the number " + Clip(string(v))
	case string:
		what = "the string " + strconv.Quote(Clip(v))
	case []tree:
		what = "a list"
	case []field:
		what = "an object"
	}
	if where != "" {
		where += ", "
	}
	found.add(where+place(t.line), "expected %s, not %s", wanted, what)
}

// object passes each field to the reader of its name; unknown and repeated names are problems.
func (t tree) object(found *problems, where string, known map[string]func(tree)) {
	for _, f := range t.fields(found, where) {
		read, ok := known[f.name]
		if !ok {
			found.add(place(f.line), "unknown field %q; known are %s", Clip(f.name), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			continue
		}
		read(f.value)
	}
}

func (t tree) fields(found *problems, where string) []field {
	fields, ok := t.value.([]field)
	if !ok {
		t.addWrongType(found, where, "an object")
	}
	seen := make(map[string]bool, len(fields))
	for _, f := range fields {
		if seen[f.name] {
			found.add(place(f.line), "the field %q is given twice", Clip(f.name))
		}
		seen[f.name] = true
	}
	return fields
}

func (t tree) text(found *problems, where string) string {
	text, ok := t.value.(string)
	if !ok || text == "" {
		t.addWrongType(found, where, "a non-empty string")
	}
	return text
}

func (t tree) boolean(found *problems, where string) bool {
	value, ok := t.value.(bool)
	if !ok {
		t.addWrongType(found, where, "true or false")
	}
	return value
}

// expression reads an expression's text. Unquoted, YAML turns some expressions into values, which is reported.
func (t tree) expression(found *problems, where string) string {
	if text, ok := t.value.(string); ok && text != "" {
		return text
	}
	t.addWrongType(found, where, "an expression as a string (in YAML, quote it: 'null', '{\"a\": 1}')")
	return ""
}

func (t tree) texts(found *problems, where string) []string {
	items, ok := t.value.([]tree)
	if !ok {
		t.addWrongType(found, where, "a list of strings")
	}
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = item.text(found, fmt.Sprintf("%s[%d]", where, i))
	}
	return texts
}

func (t tree) json(found *problems, where string) json.RawMessage {
	return json.RawMessage(t.appendJSON(nil, found, where))
}

func (t tree) appendJSON(dst []byte, found *problems, where string) []byte {
	switch v := t.value.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case number:
		return append(dst, v...)
	case string:
		return appendText(dst, v)
	case []tree:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst, found, where)
		}
		return append(dst, ']')
	default:
		dst = append(dst, '{')
		for i, f := range t.fields(found, where) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendText(dst, f.name), ':')
			dst = f.value.appendJSON(dst, found, where)
		}
		return append(dst, '}')
	}
}

func appendText(dst []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		return append(dst, `""`...) // a string always has a JSON form
	}
	return append(dst, quoted...)
}
