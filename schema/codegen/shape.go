package codegen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// kind says what a shape allows.
type kind int

const (
	anything kind = iota
	nothing
	null
	boolean
	integer
	number
	text
	dateTime
	array        // of rest
	tuple        // parts, and then any number of rest
	object       // with fields and rest
	literals     // one of values
	union        // one of parts
	intersection // all of parts
	reference    // to a definition
)

// shape is what a type can express of a subschema.
type shape struct {
	kind       kind
	doc        string
	deprecated bool
	title      string
	parts      []*shape
	least      int // of a tuple's parts that must exist
	fields     []field
	// rest describes the elements of an array, those of a tuple after its parts, and the properties of an object that
	// are no fields. There it is nil if the schema does not mention them.
	rest   *shape
	values []any
	to     *definition
	// together marks a union in Go that represents an intersection: all of its parts apply.
	together bool
}

type field struct {
	name     string
	required bool
	of       *shape
}

// definition is a subschema to which references lead.
type definition struct {
	pointer string
	shape   *shape
	name    string // of its type
}

// lastName returns the last name of its place.
func (d *definition) lastName() string {
	return unescape(d.pointer[strings.LastIndexByte(d.pointer, '/')+1:])
}

// members is a JSON object in the order of its text.
type members struct {
	names  []string
	values map[string]any
}

func (m *members) get(name string) any { return m.values[name] }

func (m *members) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, there := m.values[name]; return there })
}

// object returns a member that is an object, or an empty one.
func (m *members) object(name string) *members {
	if inner, ok := m.values[name].(*members); ok {
		return inner
	}
	return &members{}
}

func (m *members) list(name string) []any {
	list, _ := m.values[name].([]any)
	return list
}

func (m *members) string(name string) string {
	text, _ := m.values[name].(string)
	return text
}

// maxDepth limits the nesting of a schema. Package schema allows less.
const maxDepth = 1000

var errTooDeep = errors.New("it is nested too deeply")

// parse decodes JSON into *members, []any, string, json.Number, bool and nil.
func parse(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	value, err := parseNext(decoder, 0)
	if err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is not one JSON value")
	}
	return value, nil
}

func parseNext(decoder *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for decoder.More() {
			element, err := parseNext(decoder, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		_, err = decoder.Token()
		return list, err
	case json.Delim('{'):
		m := &members{values: make(map[string]any)}
		for decoder.More() {
			name, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			value, err := parseNext(decoder, depth+1)
			if err != nil {
				return nil, err
			}
			key := name.(string) // the decoder refuses other names
			if !m.has(key) {
				m.names = append(m.names, key)
			}
			m.values[key] = value
		}
		_, err = decoder.Token()
		return m, err
	}
	return token, nil
}

// schemaReader reads one schema.
type schemaReader struct {
	document    any
	anchors     map[string]any
	anchorAt    map[string]string
	definitions map[string]*definition // by pointer
	order       []*definition
}

// readSchema returns the whole schema as a definition, and the parts of it that references lead to, in the order in
// which the schema mentions them.
func readSchema(text []byte) (root *definition, others []*definition, err error) {
	document, err := parse(text)
	if err != nil {
		return nil, nil, err
	}
	r := &schemaReader{document: document, anchors: make(map[string]any), anchorAt: make(map[string]string), definitions: make(map[string]*definition)}
	r.collectAnchors("", document)
	root = &definition{}
	r.definitions[""] = root
	if root.shape, err = r.read(document, 0); err != nil {
		return nil, nil, err
	}
	return root, r.order, nil
}

func (r *schemaReader) collectAnchors(at string, value any) {
	switch value := value.(type) {
	case *members:
		if name := value.string("$anchor"); name != "" {
			r.anchors[name], r.anchorAt[name] = value, at
		}
		for _, name := range value.names {
			if name != "const" && name != "enum" && name != "default" && name != "examples" {
				r.collectAnchors(at+"/"+escape(name), value.get(name))
			}
		}
	case []any:
		for i, element := range value {
			r.collectAnchors(at+"/"+strconv.Itoa(i), element)
		}
	}
}

func escape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

func unescape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// refer returns the definition that a reference leads to.
func (r *schemaReader) refer(to string, depth int) (*definition, error) {
	fragment, local := strings.CutPrefix(to, "#")
	pointer, err := url.PathUnescape(fragment)
	if err != nil || !local {
		return nil, fmt.Errorf("the reference %q does not lead to a place in it", to)
	}
	found, ok := r.document, true
	if pointer != "" && pointer[0] != '/' {
		found, ok = r.anchors[pointer]
		pointer = r.anchorAt[pointer]
	} else {
		for _, token := range strings.Split(pointer, "/")[1:] {
			switch inside := found.(type) {
			case *members:
				found, ok = inside.values[unescape(token)]
			case []any:
				index, err := strconv.Atoi(token)
				if ok = err == nil && index >= 0 && index < len(inside); ok {
					found = inside[index]
				}
			default:
				ok = false
			}
			if !ok {
				break
			}
		}
	}
	if !ok {
		return nil, fmt.Errorf("the reference %q leads nowhere", to)
	}
	if known := r.definitions[pointer]; known != nil {
		return known, nil
	}
	d := &definition{pointer: pointer}
	r.definitions[pointer] = d
	r.order = append(r.order, d)
	d.shape, err = r.read(found, depth+1)
	return d, err
}

// read returns the shape of a subschema.
func (r *schemaReader) read(value any, depth int) (*shape, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	m, ok := value.(*members)
	if !ok {
		if value == false {
			return &shape{kind: nothing}, nil
		}
		return &shape{}, nil
	}
	parts, err := r.own(m, depth)
	if err != nil {
		return nil, err
	}
	if to, ok := m.get("$ref").(string); ok {
		d, err := r.refer(to, depth)
		if err != nil {
			return nil, err
		}
		parts = append(parts, &shape{kind: reference, to: d})
	}
	all, err := r.readAll(m.list("allOf"), depth)
	if err != nil {
		return nil, err
	}
	parts = append(parts, all...)
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if !m.has(keyword) {
			continue
		}
		alternatives, err := r.readAll(m.list(keyword), depth)
		if err != nil {
			return nil, err
		}
		parts = append(parts, either(alternatives))
	}
	parts = slices.DeleteFunc(parts, func(part *shape) bool { return part.kind == anything })
	s := &shape{}
	switch len(parts) {
	case 0:
	case 1:
		s = parts[0]
	default:
		s = &shape{kind: intersection, parts: parts}
	}
	return annotate(s, m), nil
}

// annotate adds a subschema's texts to its shape.
func annotate(s *shape, m *members) *shape {
	title, description := m.string("title"), m.string("description")
	switch sentence := strings.TrimRight(title, ".") + "."; {
	case title == "" && description != "":
		s.doc = description
	case title != "" && description == "":
		s.doc = sentence
	case title != "":
		s.doc = sentence + "\n\n" + description
	}
	if title != "" {
		s.title = title
	}
	s.deprecated = s.deprecated || m.get("deprecated") == true
	return s
}

func (r *schemaReader) readAll(schemas []any, depth int) ([]*shape, error) {
	found := make([]*shape, len(schemas))
	var err error
	for i, schema := range schemas {
		if found[i], err = r.read(schema, depth+1); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// either returns a union, or something simpler.
func either(alternatives []*shape) *shape {
	var parts []*shape
	onlyLiterals := true
	for _, part := range alternatives {
		switch part.kind {
		case anything:
			return &shape{}
		case nothing:
		case union:
			parts, onlyLiterals = append(parts, part.parts...), false
		default:
			parts, onlyLiterals = append(parts, part), onlyLiterals && part.kind == literals
		}
	}
	switch {
	case len(parts) == 0:
		return &shape{kind: nothing}
	case len(parts) == 1:
		return parts[0]
	case onlyLiterals:
		all := &shape{kind: literals}
		for _, part := range parts {
			all.values = append(all.values, part.values...)
		}
		return all
	}
	return &shape{kind: union, parts: parts}
}

var scalars = map[string]kind{"null": null, "boolean": boolean, "integer": integer, "number": number, "string": text}

// own returns what a subschema says itself, without other subschemas that apply to the same value. A schema without a
// type is meant for objects if it mentions properties, and for arrays if it mentions items.
func (r *schemaReader) own(m *members, depth int) ([]*shape, error) {
	if m.has("const") {
		return []*shape{{kind: literals, values: []any{m.get("const")}}}, nil
	}
	if m.has("enum") {
		return []*shape{{kind: literals, values: m.list("enum")}}, nil
	}
	var types []string
	switch declared := m.get("type").(type) {
	case string:
		types = []string{declared}
	case []any:
		for _, name := range declared {
			if name, ok := name.(string); ok && !slices.Contains(types, name) {
				types = append(types, name)
			}
		}
	default:
		if m.has("properties", "required", "additionalProperties", "patternProperties") {
			types = append(types, "object")
		}
		if m.has("items", "prefixItems") {
			types = append(types, "array")
		}
	}
	if slices.Contains(types, "number") {
		types = slices.DeleteFunc(types, func(name string) bool { return name == "integer" })
	}
	var parts []*shape
	for _, name := range types {
		s := &shape{kind: scalars[name]}
		var err error
		switch name {
		case "string":
			if m.string("format") == "date-time" {
				s.kind = dateTime
			}
		case "array":
			s, err = r.array(m, depth)
		case "object":
			s, err = r.object(m, depth)
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, s)
	}
	if len(parts) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(parts, func(a, b *shape) int { return isNull(a) - isNull(b) }) // null last
	return []*shape{either(parts)}, nil
}

func isNull(s *shape) int {
	if s.kind == null {
		return 1
	}
	return 0
}

func (r *schemaReader) array(m *members, depth int) (*shape, error) {
	s := &shape{kind: array, rest: &shape{}}
	var err error
	if m.has("items") {
		if s.rest, err = r.read(m.get("items"), depth+1); err != nil {
			return nil, err
		}
	}
	if prefix := m.list("prefixItems"); len(prefix) > 0 {
		s.kind = tuple
		if least, ok := m.get("minItems").(json.Number); ok {
			exact, _ := least.Float64() // out of range: the largest
			s.least = int(min(exact, float64(len(prefix))))
		}
		s.parts, err = r.readAll(prefix, depth)
	}
	return s, err
}

func (r *schemaReader) object(m *members, depth int) (*shape, error) {
	s := &shape{kind: object}
	required := make(map[string]bool)
	for _, name := range m.list("required") {
		if name, ok := name.(string); ok {
			required[name] = true
		}
	}
	properties := m.object("properties")
	for _, name := range properties.names {
		of, err := r.read(properties.get(name), depth+1)
		if err != nil {
			return nil, err
		}
		s.fields = append(s.fields, field{name, required[name], of})
	}
	for _, name := range m.list("required") {
		if name, ok := name.(string); ok && !properties.has(name) {
			s.fields = append(s.fields, field{name, true, &shape{}})
		}
	}
	patterns := m.object("patternProperties")
	others := make([]any, 0, len(patterns.names)+1)
	for _, name := range patterns.names {
		others = append(others, patterns.get(name))
	}
	switch {
	case m.has("additionalProperties"):
		others = append(others, m.get("additionalProperties"))
	case m.has("unevaluatedProperties"):
		others = append(others, m.get("unevaluatedProperties"))
	case len(others) > 0:
		others = append(others, true)
	default:
		return s, nil
	}
	rest, err := r.readAll(others, depth)
	if err == nil {
		s.rest = either(rest)
	}
	return s, err
}
