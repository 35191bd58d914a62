package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// Limits of one schema.
const (
	MaxSchemaBytes   = 64 << 10
	MaxSubschemas    = 2000
	MaxPatternParts  = 10_000 // of all patterns of a schema, see domain.MaxPatternParts
	maxPointerBytes  = 1000   // of the place of a subschema
	maxInPlaceDepth  = 40     // subschemas that apply to the same value, one inside the other
	maxEnumBytes     = 32 << 10
	maxCompileErrors = 10
)

// Dialect is the only value of $schema that is accepted.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// Schema is a compiled JSON Schema. It is immutable and safe for concurrent use.
type Schema struct {
	root  *node
	bytes int // of memory, about
}

// node is a compiled subschema. Its fields are named after the keywords; nil means that a keyword is absent.
type node struct {
	pointer string // its place in the schema
	never   bool   // the schema false
	trivial bool   // any value satisfies it, such as the schema true

	types     kinds // 0: any
	constant  *string
	enum      map[string]struct{} // canonical forms
	enumTexts []string            // the same, in order
	// The kinds of values that const and enum allow.
	constantKinds   kinds
	longestConstant int    // of their canonical forms, in bytes
	format          string // one that is checked; "": none

	multipleOf                         *decimal
	minimum, maximum                   *decimal
	exclusiveMinimum, exclusiveMaximum *decimal
	minLength, maxLength               *int
	pattern                            *pattern
	minItems, maxItems                 *int
	uniqueItems                        bool
	minContains, maxContains           *int
	minProperties, maxProperties       *int
	required                           []string
	dependentRequired                  map[string][]string

	properties            map[string]*node
	patternProperties     []patternProperty
	additionalProperties  *node
	propertyNames         *node
	dependentSchemas      map[string]*node
	unevaluatedProperties *node
	prefixItems           []*node
	items                 *node
	contains              *node
	unevaluatedItems      *node

	ref                 *node
	allOf, anyOf, oneOf []*node
	not, when           *node
	then, otherwise     *node

	depth int // of subschemas that apply to the same value; 0: unknown
}

type pattern struct {
	domain.Pattern
	parts int
}

type patternProperty struct {
	pattern pattern
	node    *node
}

// Compile compiles the text of a schema. The error is a *domain.Error with domain.CodeInvalidDefinition that lists up
// to ten problems, each with its place in the schema.
func Compile(text []byte) (*Schema, error) {
	if len(text) > MaxSchemaBytes {
		return nil, domain.Errorf(domain.CodeTooLarge, "schema", "the schema has %d bytes; at most %d are allowed", len(text), MaxSchemaBytes)
	}
	if err := domain.CheckJSON(text); err != nil {
		return nil, domain.Errorf(domain.CodeInvalidJSON, "schema", "%s", err)
	}
	document, err := parseValue(text)
	if err != nil {
		return nil, domain.Errorf(domain.CodeInvalidJSON, "schema", "%s", err)
	}
	c := &compiler{document: document, nodes: make(map[string]*node), anchors: make(map[string]string)}
	if object, ok := document.(map[string]any); ok {
		c.collectAnchors("", object)
	}
	root := c.compile("", document)
	if len(c.problems) == 0 {
		c.checkCycles()
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	// Measured: a node takes about 700 bytes, and a part of a pattern about 100 after its first match.
	return &Schema{root: root, bytes: 1000 + 4*len(text) + 800*len(c.nodes) + 120*c.parts}, nil
}

// compiler compiles one schema.
type compiler struct {
	document any
	nodes    map[string]*node  // by pointer
	anchors  map[string]string // pointers by name
	parts    int               // of patterns
	full     bool              // there are too many subschemas
	problems []*domain.Error
}

// fail records a problem at a place in the schema.
func (c *compiler) fail(pointer, format string, args ...any) {
	if len(c.problems) < maxCompileErrors {
		c.problems = append(c.problems, domain.Errorf(domain.CodeInvalidDefinition, "schema"+domain.Clip(pointer, 200), format, args...))
	}
}

func (c *compiler) err() error {
	switch len(c.problems) {
	case 0:
		return nil
	case 1:
		return c.problems[0]
	}
	lines := make([]string, len(c.problems))
	for i, problem := range c.problems {
		lines[i] = problem.Error()
	}
	return &domain.Error{
		Code: domain.CodeInvalidDefinition, Where: "schema", Message: fmt.Sprintf("%d problems: %s", len(lines), strings.Join(lines, "; ")), Parts: c.problems,
	}
}

// annotations are keywords without an effect on validation.
var annotations = map[string]bool{
	"title": true, "description": true, "default": true, "examples": true, "deprecated": true, "readOnly": true, "writeOnly": true, "$comment": true,
	"contentEncoding": true, "contentMediaType": true, "contentSchema": true, "$defs": true, "definitions": true, "$anchor": true, "$schema": true, "$id": true,
	"then": true, "else": true, // compiled with if
}

// advice says what to write instead of a keyword.
var advice = map[string]string{
	"$dynamicRef": "dynamic references are not supported; use $ref", "$dynamicAnchor": "dynamic references are not supported; use $anchor",
	"$recursiveRef": "it belongs to another draft; use $ref", "$recursiveAnchor": "it belongs to another draft; use $anchor",
	"$vocabulary": "only meta-schemas have vocabularies; remove it", "dependencies": "it belongs to another draft; use dependentRequired or dependentSchemas",
	"additionalItems": "it belongs to another draft; use prefixItems, with items for the rest", "id": "it belongs to another draft; remove it",
	"require": "did you mean required?", "optional": "a property is optional unless required names it", "nullable": `it belongs to OpenAPI; use "type": ["string", "null"]`,
}

// collectAnchors finds the named places of the document, wherever an object could be a schema.
func (c *compiler) collectAnchors(at string, value any) {
	switch value := value.(type) {
	case map[string]any:
		if name, ok := value["$anchor"].(string); ok {
			if _, twice := c.anchors[name]; twice {
				c.fail(at+"/$anchor", "the anchor %q exists twice", domain.Clip(name, 60))
			}
			c.anchors[name] = at
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if name != "const" && name != "enum" && name != "default" && name != "examples" && len(at) <= maxPointerBytes {
				c.collectAnchors(at+"/"+escape(name), value[name])
			}
		}
	case []any:
		for i, element := range value {
			c.collectAnchors(at+"/"+strconv.Itoa(i), element)
		}
	}
}

// compile returns the node of a subschema. It may still be incomplete if the schema refers to itself.
func (c *compiler) compile(at string, value any) *node {
	if n := c.nodes[at]; n != nil {
		return n
	}
	n := &node{pointer: at}
	if len(c.nodes) >= MaxSubschemas || len(at) > maxPointerBytes {
		switch {
		case c.full:
		case len(at) > maxPointerBytes:
			c.fail(at, "the subschema is nested too deeply, or its names are too long: its place has %d bytes, at most %d are allowed", len(at), maxPointerBytes)
		default:
			c.fail("", "the schema has more than %d subschemas; split it", MaxSubschemas)
		}
		c.full = true
		return n
	}
	c.nodes[at] = n
	switch value := value.(type) {
	case bool:
		n.never, n.trivial = !value, value
	case map[string]any:
		n.trivial = true
		for _, keyword := range slices.Sorted(maps.Keys(value)) {
			n.trivial = n.trivial && (annotations[keyword] || strings.HasPrefix(keyword, "x-"))
			c.keyword(n, keyword, value)
		}
	default:
		c.fail(at, "a schema is an object, true or false")
	}
	return n
}

// keyword compiles one keyword of a subschema.
func (c *compiler) keyword(n *node, keyword string, schema map[string]any) {
	value, at := schema[keyword], n.pointer+"/"+escape(keyword)
	switch keyword {
	case "$schema":
		if text, ok := value.(string); !ok || strings.TrimSuffix(text, "#") != Dialect {
			c.fail(at, "only %q is supported", Dialect)
		} else if n.pointer != "" {
			c.fail(at, "only the whole schema may have it")
		}
	case "$id":
		if _, ok := value.(string); !ok || n.pointer != "" {
			c.fail(at, "only the whole schema may have an id, which is a string; refer to parts by #/$defs/name")
		}
	case "$ref":
		n.ref = c.reference(at, value)
	case "$defs", "definitions":
		for _, name := range c.object(at, value) {
			c.compile(at+"/"+escape(name), value.(map[string]any)[name])
		}
	case "type":
		n.types = c.typesOf(at, value)
	case "const":
		canonical := string(canonicalForm(nil, value, math.MaxInt))
		n.longestConstant = max(n.longestConstant, len(canonical))
		n.constant = &canonical
		n.constantKinds |= kindOf(value)
	case "enum":
		c.enum(n, at, value)
	case "format":
		text, ok := value.(string)
		if !ok {
			c.fail(at, "expected a string")
		}
		if checksFormat(text) {
			n.format = text
		}
	case "multipleOf":
		n.multipleOf = c.number(at, value)
		if d := n.multipleOf; d != nil && (d.sign <= 0 || len(d.digits) > maxDivisorDigits) {
			c.fail(at, "expected a number above 0 with at most %d digits", maxDivisorDigits)
		}
	case "minimum":
		n.minimum = c.number(at, value)
	case "maximum":
		n.maximum = c.number(at, value)
	case "exclusiveMinimum":
		n.exclusiveMinimum = c.number(at, value)
	case "exclusiveMaximum":
		n.exclusiveMaximum = c.number(at, value)
	case "minLength":
		n.minLength = c.count(at, value)
	case "maxLength":
		n.maxLength = c.count(at, value)
	case "minItems":
		n.minItems = c.count(at, value)
	case "maxItems":
		n.maxItems = c.count(at, value)
	case "minContains":
		n.minContains = c.count(at, value)
	case "maxContains":
		n.maxContains = c.count(at, value)
	case "minProperties":
		n.minProperties = c.count(at, value)
	case "maxProperties":
		n.maxProperties = c.count(at, value)
	case "uniqueItems":
		flag, ok := value.(bool)
		if n.uniqueItems = flag; !ok {
			c.fail(at, "expected true or false")
		}
	case "pattern":
		text, ok := value.(string)
		if !ok {
			c.fail(at, "expected a string")
			return
		}
		n.pattern = c.pattern(at, text)
	case "required":
		n.required = c.names(at, value)
	case "dependentRequired":
		n.dependentRequired = make(map[string][]string)
		for _, name := range c.object(at, value) {
			n.dependentRequired[name] = c.names(at+"/"+escape(name), value.(map[string]any)[name])
		}
	case "properties":
		n.properties = c.schemasByName(at, value)
	case "dependentSchemas":
		n.dependentSchemas = c.schemasByName(at, value)
	case "patternProperties":
		for _, name := range c.object(at, value) {
			within := at + "/" + escape(name)
			if p := c.pattern(within, name); p != nil {
				n.patternProperties = append(n.patternProperties, patternProperty{*p, c.compile(within, value.(map[string]any)[name])})
			}
		}
	case "additionalProperties":
		n.additionalProperties = c.compile(at, value)
	case "propertyNames":
		n.propertyNames = c.compile(at, value)
	case "unevaluatedProperties":
		n.unevaluatedProperties = c.compile(at, value)
	case "unevaluatedItems":
		n.unevaluatedItems = c.compile(at, value)
	case "contains":
		n.contains = c.compile(at, value)
	case "items":
		if _, list := value.([]any); list {
			c.fail(at, "a list of schemas belongs to another draft; use prefixItems")
			return
		}
		n.items = c.compile(at, value)
	case "prefixItems":
		n.prefixItems = c.schemas(at, value)
	case "allOf":
		n.allOf = c.schemas(at, value)
	case "anyOf":
		n.anyOf = c.schemas(at, value)
	case "oneOf":
		n.oneOf = c.schemas(at, value)
	case "not":
		n.not = c.compile(at, value)
	case "if":
		n.when = c.compile(at, value)
		if then, ok := schema["then"]; ok {
			n.then = c.compile(n.pointer+"/then", then)
		}
		if otherwise, ok := schema["else"]; ok {
			n.otherwise = c.compile(n.pointer+"/else", otherwise)
		}
	default:
		if instead := advice[keyword]; instead != "" {
			c.fail(at, "%s", instead)
		} else if !annotations[keyword] && !strings.HasPrefix(keyword, "x-") {
			c.fail(at, "unknown keyword; names of your own begin with x-")
		}
	}
}

// object returns the sorted names of an object.
func (c *compiler) object(at string, value any) []string {
	object, ok := value.(map[string]any)
	if !ok {
		c.fail(at, "expected an object")
	}
	return slices.Sorted(maps.Keys(object))
}

func (c *compiler) schemasByName(at string, value any) map[string]*node {
	found := make(map[string]*node)
	for _, name := range c.object(at, value) {
		found[name] = c.compile(at+"/"+escape(name), value.(map[string]any)[name])
	}
	return found
}

func (c *compiler) schemas(at string, value any) []*node {
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		c.fail(at, "expected a list of schemas, at least one")
	}
	found := make([]*node, len(list))
	for i, element := range list {
		found[i] = c.compile(at+"/"+strconv.Itoa(i), element)
	}
	return found
}

// names returns a list of different strings.
func (c *compiler) names(at string, value any) []string {
	list, ok := value.([]any)
	if !ok {
		c.fail(at, "expected a list of names")
	}
	names := make([]string, 0, len(list))
	seen := make(map[string]bool, len(list))
	for _, element := range list {
		name, ok := element.(string)
		if !ok || seen[name] {
			c.fail(at, "expected a list of different names")
			break
		}
		seen[name] = true
		names = append(names, name)
	}
	return names
}

func (c *compiler) typesOf(at string, value any) kinds {
	names := []any{value}
	if list, ok := value.([]any); ok {
		names = list
	}
	var types kinds
	for _, one := range names {
		name, _ := one.(string)
		kind, ok := kindByName[name]
		if !ok {
			c.fail(at, "expected one or more of %s", strings.Join(kindNames(anyKind), ", "))
			return 0
		}
		types |= kind
	}
	if len(names) == 0 {
		c.fail(at, "the list is empty")
	}
	return types
}

func (c *compiler) enum(n *node, at string, value any) {
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		c.fail(at, "expected a list of values, at least one")
		return
	}
	n.enum = make(map[string]struct{}, len(list))
	bytes := 0
	for _, element := range list {
		canonical := string(canonicalForm(nil, element, math.MaxInt))
		n.longestConstant = max(n.longestConstant, len(canonical))
		n.constantKinds |= kindOf(element)
		if _, twice := n.enum[canonical]; !twice {
			n.enum[canonical] = struct{}{}
			n.enumTexts = append(n.enumTexts, canonical)
		}
		bytes += len(canonical)
	}
	if bytes > maxEnumBytes {
		c.fail(at, "the values have %d bytes; at most %d are allowed", bytes, maxEnumBytes)
	}
}

func (c *compiler) number(at string, value any) *decimal {
	text, ok := value.(json.Number)
	if !ok {
		c.fail(at, "expected a number")
		return nil
	}
	d := parseDecimal(string(text))
	return &d
}

// count returns a whole number from 0; one that no value can reach counts as the largest.
func (c *compiler) count(at string, value any) *int {
	text, _ := value.(json.Number)
	d := parseDecimal(string(text))
	if text == "" || d.sign < 0 || !d.whole() {
		c.fail(at, "expected a whole number from 0")
		return nil
	}
	count := math.MaxInt32
	if n, err := strconv.Atoi(d.String()); err == nil {
		count = min(n, count)
	}
	return &count
}

func (c *compiler) pattern(at, text string) *pattern {
	parsed, err := domain.ParsePattern(text)
	if err != nil {
		c.fail(at, "%s", err)
		return nil
	}
	if c.parts += parsed.Parts(); c.parts > MaxPatternParts {
		c.fail(at, "with repetitions written out, the patterns of the schema have more than %d parts; simplify them", MaxPatternParts)
		return nil
	}
	return &pattern{parsed, parsed.Parts()}
}

// reference resolves a $ref. It must lead to a place in the same schema: nothing is ever loaded from elsewhere.
func (c *compiler) reference(at string, value any) *node {
	text, ok := value.(string)
	fragment, local := strings.CutPrefix(text, "#")
	if !ok || !local {
		c.fail(at, "a reference leads to a place in the same schema, such as #/$defs/address; nothing is loaded from elsewhere")
		return nil
	}
	target, err := url.PathUnescape(fragment)
	if err != nil {
		c.fail(at, "%q is not a place in the schema, such as #/$defs/address", domain.Clip(text, 100))
		return nil
	}
	if target != "" && target[0] != '/' {
		if target, ok = c.anchors[target]; !ok {
			c.fail(at, "there is no $anchor %q", domain.Clip(text[1:], 60))
			return nil
		}
	}
	found, ok := c.document, true
	for _, token := range strings.Split(target, "/")[1:] {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch inside := found.(type) {
		case map[string]any:
			found, ok = inside[token]
		case []any:
			index, err := strconv.Atoi(token)
			if ok = err == nil && index >= 0 && index < len(inside); ok {
				found = inside[index]
			}
		default:
			ok = false
		}
		if !ok {
			c.fail(at, "%q leads nowhere", domain.Clip(text, 100))
			return nil
		}
	}
	return c.compile(target, found)
}

// inPlace returns the subschemas that apply to the same value.
func (n *node) inPlace() []*node {
	all := slices.Concat(n.allOf, n.anyOf, n.oneOf, []*node{n.ref, n.not, n.when, n.then, n.otherwise})
	for _, one := range n.dependentSchemas {
		all = append(all, one)
	}
	return slices.DeleteFunc(all, func(one *node) bool { return one == nil })
}

// checkCycles refuses schemas that would be evaluated forever, or too deeply, on one value.
func (c *compiler) checkCycles() {
	const underWay = -1
	var visit func(n *node) bool
	visit = func(n *node) bool {
		switch {
		case n.depth == underWay:
			c.fail(n.pointer, "the subschema applies itself to the same value again, without end")
			return false
		case n.depth > 0:
			return true
		}
		n.depth = underWay
		depth := 1
		for _, inner := range n.inPlace() {
			if !visit(inner) {
				return false
			}
			depth = max(depth, inner.depth+1)
		}
		n.depth = depth
		if depth > maxInPlaceDepth {
			c.fail(n.pointer, "more than %d subschemas apply to the same value, one inside the other", maxInPlaceDepth)
			return false
		}
		return true
	}
	for _, at := range slices.Sorted(maps.Keys(c.nodes)) {
		if !visit(c.nodes[at]) {
			return
		}
	}
}

// escape escapes a name for a JSON Pointer.
func escape(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}
