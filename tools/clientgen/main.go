// Clientgen generates the types and operations of the TypeScript client from an OpenAPI 3.1 document, and for the Go
// client, whose operations oapi-codegen generates, the table of what may be sent again.
//
//	clientgen FROM TYPESCRIPT GO
//
// Each schema of the components becomes a type. Each operation becomes a method of the class Operations, which the
// client extends with what sends requests. An operation's answer is decoded if it is JSON; other answers are returned
// as the Response, unread. Operations that only upgrade a connection are left out.
package main

import (
	"fmt"
	"go/format"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: clientgen FROM TYPESCRIPT GO")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "clientgen:", err)
		os.Exit(1)
	}
}

func run(from, typeScript, goCode string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	g := &generator{document: node{file.Content[0]}}
	g.printf("// Code generated from openapi.yaml by tools/clientgen. DO NOT EDIT.\n\n")
	g.printf("import type { CallOptions, Operation } from \"./operation.js\";\n")
	for name, schema := range g.document.get("components", "schemas").members() {
		g.declare(name, schema)
	}
	all, err := g.readAll()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	g.operations(all)
	if err := os.WriteFile(typeScript, []byte(g.out.String()), 0o644); err != nil {
		return err
	}
	table, err := format.Source([]byte(repeatableTable(all)))
	if err != nil {
		return err
	}
	return os.WriteFile(goCode, table, 0o644)
}

// repeatableTable returns the Go client's table of operations that may be sent again although their methods do not say
// so.
func repeatableTable(all []*operation) string {
	var out strings.Builder
	out.WriteString("// Code generated from openapi.yaml by tools/clientgen. DO NOT EDIT.\n\npackage client\n\n")
	out.WriteString("// repeatable has the operations, besides GET, PUT and DELETE, that may be sent again after a lost answer. The value\n")
	out.WriteString("// says whether that takes an Idempotency-Key.\nvar repeatable = map[string]bool{\n")
	for _, o := range all {
		if !o.repeatable || slices.Contains(safeMethods, strings.ToLower(o.method)) {
			continue
		}
		keyed := slices.ContainsFunc(o.parameters, func(p parameter) bool { return p.name == "Idempotency-Key" })
		fmt.Fprintf(&out, "\t%q: %v,\n", o.method+" "+o.path, keyed)
	}
	out.WriteString("}\n")
	return out.String()
}

// safeMethods are those whose requests may be sent again.
var safeMethods = []string{"get", "put", "delete"}

// node is a part of the document. The zero node represents a part that does not exist.
type node struct{ *yaml.Node }

// members iterates over the members of an object in their order.
func (n node) members() func(yield func(string, node) bool) {
	return func(yield func(string, node) bool) {
		if n.Node == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, node{resolveAlias(n.Content[i+1])}) {
				return
			}
		}
	}
}

func resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// get returns the member at a path.
func (n node) get(path ...string) node {
	for _, wanted := range path {
		var found node
		for name, member := range n.members() {
			if name == wanted {
				found = member
			}
		}
		n = found
	}
	return n
}

// items returns the items of an array.
func (n node) items() []node {
	if n.Node == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	var all []node
	for _, item := range n.Content {
		all = append(all, node{resolveAlias(item)})
	}
	return all
}

// text returns the value of a scalar, and "" for a node that does not exist.
func (n node) text() string {
	if n.Node == nil {
		return ""
	}
	return n.Value
}

func (n node) exists() bool { return n.Node != nil }

type generator struct {
	document node
	out      strings.Builder
}

func (g *generator) printf(format string, args ...any) { fmt.Fprintf(&g.out, format, args...) }

// resolve follows a reference to a component.
func (g *generator) resolve(n node) node {
	reference := n.get("$ref").text()
	if reference == "" {
		return n
	}
	return g.document.get(strings.Split(strings.TrimPrefix(reference, "#/"), "/")...)
}

// renamed are schemas whose names mean something else in TypeScript.
var renamed = map[string]string{"JSON": "JSONValue"}

func typeName(schema string) string {
	if name, ok := renamed[schema]; ok {
		return name
	}
	return schema
}

// comment prints a documentation comment.
func (g *generator) comment(indent string, paragraphs ...string) {
	var lines []string
	for _, paragraph := range paragraphs {
		if paragraph = strings.TrimSpace(paragraph); paragraph == "" {
			continue
		}
		if len(lines) > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, strings.Split(strings.ReplaceAll(paragraph, "*/", "*\\/"), "\n")...)
	}
	switch len(lines) {
	case 0:
	case 1:
		g.printf("%s/** %s */\n", indent, lines[0])
	default:
		g.printf("%s/**\n", indent)
		for _, line := range lines {
			g.printf("%s\n", strings.TrimRight(indent+" * "+line, " "))
		}
		g.printf("%s */\n", indent)
	}
}

// declare prints the type of a schema of the components.
func (g *generator) declare(name string, schema node) {
	g.printf("\n")
	g.comment("", schema.get("description").text())
	if schema.get("properties").exists() && !schema.get("oneOf").exists() {
		g.printf("export interface %s {\n", typeName(name))
		g.properties("  ", schema)
		g.printf("}\n")
		return
	}
	g.printf("export type %s = %s;\n", typeName(name), g.typeOf("", schema))
}

var identifier = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

// properties prints the members of an object's type.
func (g *generator) properties(indent string, schema node) {
	var required []string
	for _, name := range schema.get("required").items() {
		required = append(required, name.Value)
	}
	for name, property := range schema.get("properties").members() {
		g.comment(indent, property.get("description").text())
		optional := "?"
		if slices.Contains(required, name) {
			optional = ""
		}
		key := name
		if !identifier.MatchString(name) {
			key = strconv.Quote(name)
		}
		g.printf("%s%s%s: %s;\n", indent, key, optional, g.typeOf(indent, property))
	}
	if more := schema.get("additionalProperties"); more.exists() && more.text() != "false" {
		g.printf("%s[name: string]: unknown;\n", indent)
	}
}

// typeOf returns the type of a schema.
func (g *generator) typeOf(indent string, schema node) string {
	if reference := schema.get("$ref").text(); reference != "" {
		return typeName(reference[strings.LastIndexByte(reference, '/')+1:])
	}
	for _, keyword := range []string{"allOf", "oneOf", "anyOf"} {
		parts := schema.get(keyword).items()
		switch {
		case len(parts) > 0 && keyword == "allOf":
			return g.join(indent, parts, " & ")
		case len(parts) > 0:
			return g.join(indent, parts, " | ")
		}
	}
	if values := schema.get("enum").items(); len(values) > 0 {
		var all []string
		for _, value := range values {
			if value.Tag == "!!str" {
				all = append(all, strconv.Quote(value.Value))
			} else {
				all = append(all, value.Value)
			}
		}
		return strings.Join(all, " | ")
	}
	kinds := schema.get("type").items()
	if len(kinds) == 0 {
		return g.kind(indent, schema.get("type").text(), schema)
	}
	if len(kinds) >= 6 {
		return "unknown" // any JSON
	}
	var all []string
	for _, kind := range kinds {
		all = append(all, g.kind(indent, kind.Value, schema))
	}
	return strings.Join(all, " | ")
}

func (g *generator) join(indent string, parts []node, separator string) string {
	var all []string
	for _, part := range parts {
		if of := g.typeOf(indent, part); !slices.Contains(all, of) {
			all = append(all, of)
		}
	}
	return strings.Join(all, separator)
}

// kind returns the type of values of one of JSON's kinds.
func (g *generator) kind(indent, kind string, schema node) string {
	switch kind {
	case "string", "boolean", "null":
		return kind
	case "integer", "number":
		return "number"
	case "array":
		item := g.typeOf(indent, schema.get("items"))
		if strings.Contains(item, " ") {
			return "Array<" + item + ">"
		}
		return item + "[]"
	case "object":
		if schema.get("properties").exists() {
			inner := &generator{document: g.document}
			inner.properties(indent+"  ", schema)
			return "{\n" + inner.out.String() + indent + "}"
		}
		if values := schema.get("additionalProperties"); values.Node != nil && values.Kind == yaml.MappingNode {
			return "Record<string, " + g.typeOf(indent, values) + ">"
		}
		return "Record<string, any>" // any: values of interfaces may be given, too
	}
	return "unknown"
}

// parameter is a parameter of an operation.
type parameter struct {
	name, in, option string // option: its name in the options
	required         bool
	schema           node
	description      string
}

// operation is one operation of the document.
type operation struct {
	id, method, path     string
	summary, description string
	parameters           []parameter
	body                 string // its type, "" if there is none
	bodyRequired         bool
	answer               string // its type
	raw                  bool   // the answer is not JSON
	lines                bool   // the body is not JSON
	repeatable           bool
}

// of returns the parameters in a place.
func (o *operation) of(in string) []parameter {
	return slices.DeleteFunc(slices.Clone(o.parameters), func(p parameter) bool { return p.in != in })
}

// readAll reads the operations in their order.
func (g *generator) readAll() ([]*operation, error) {
	var all []*operation
	for path, item := range g.document.get("paths").members() {
		for method, described := range item.members() {
			if !slices.Contains([]string{"get", "put", "post", "patch", "delete"}, method) {
				continue
			}
			o, err := g.read(method, path, item, described)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			if o != nil {
				all = append(all, o)
			}
		}
	}
	return all, nil
}

// operations prints the table of operations, the types of their options, and the class with their methods.
func (g *generator) operations(all []*operation) {
	g.printf("\n/** The operations of the contract, as the client sends them. */\nexport const operations = {\n")
	for _, o := range all {
		g.entry(o)
	}
	g.printf("} satisfies Record<string, Operation>;\n")
	for _, o := range all {
		g.options(o)
	}
	g.printf("\n/** Has a method for each operation of the contract. {@link Client} extends it with what sends them. */\n")
	g.printf("export abstract class Operations {\n")
	g.printf("  /** Sends a request, and returns the decoded answer, or the Response if that is not JSON. */\n")
	g.printf("  protected abstract send(operation: Operation, path: Array<string | number>, options: object, body?: unknown): Promise<any>;\n")
	for _, o := range all {
		g.method(o)
	}
	g.printf("}\n")
}

// read reads an operation. It returns nil for one that only upgrades its connection.
func (g *generator) read(method, path string, item, described node) (*operation, error) {
	o := &operation{
		id: described.get("operationId").text(), method: strings.ToUpper(method), path: path,
		summary: described.get("summary").text(), description: described.get("description").text(),
		repeatable: slices.Contains(safeMethods, method) || described.get("x-repeatable").text() == "true",
	}
	for _, given := range append(item.get("parameters").items(), described.get("parameters").items()...) {
		given = g.resolve(given)
		p := parameter{
			name: given.get("name").text(), in: given.get("in").text(), required: given.get("required").text() == "true",
			schema: given.get("schema"), description: given.get("description").text(),
		}
		p.option = camel(p.name)
		if slices.Contains([]string{"signal", "retry"}, p.option) {
			return nil, fmt.Errorf("the parameter %s has the name of an option of the client", p.name)
		}
		if !p.schema.exists() || given.get("explode").text() != "false" && p.schema.get("type").text() == "array" {
			return nil, fmt.Errorf("the parameter %s has a form that is not supported", p.name)
		}
		o.parameters = append(o.parameters, p)
	}
	if body := described.get("requestBody"); body.exists() {
		o.bodyRequired = body.get("required").text() == "true"
		if schema := body.get("content", "application/json", "schema"); schema.exists() {
			o.body = g.typeOf("  ", schema)
		} else {
			o.body, o.lines = "BodyInit", true
		}
	}
	var answers []string
	for status, response := range described.get("responses").members() {
		content := g.resolve(response).get("content")
		answer := "Response"
		switch {
		case status == "304" || status == "204":
			answer = "undefined"
		case status[0] != '2':
			continue
		case content.get("application/json").exists():
			answer = g.typeOf("  ", content.get("application/json", "schema"))
		}
		if !slices.Contains(answers, answer) {
			answers = append(answers, answer)
		}
	}
	if len(answers) == 0 {
		return nil, nil
	}
	if slices.Equal(answers, []string{"undefined"}) {
		answers[0] = "void"
	}
	o.answer, o.raw = strings.Join(answers, " | "), slices.Contains(answers, "Response")
	return o, nil
}

// camel turns a header's name into that of an option: If-None-Match into ifNoneMatch.
func camel(name string) string {
	words := strings.Split(name, "-")
	for i, word := range words {
		switch {
		case i == 0 && (len(words) > 1 || word == strings.ToUpper(word)):
			words[i] = strings.ToLower(word)
		case i > 0:
			words[i] = strings.ToUpper(word[:1]) + strings.ToLower(word[1:])
		}
	}
	return strings.Join(words, "")
}

// entry prints an operation's row of the table.
func (g *generator) entry(o *operation) {
	g.printf("  %s: { method: %q, path: %q", o.id, o.method, o.path)
	if query := o.of("query"); len(query) > 0 {
		var names []string
		for _, p := range query {
			names = append(names, strconv.Quote(p.name))
		}
		g.printf(", query: [%s]", strings.Join(names, ", "))
	}
	if headers := o.of("header"); len(headers) > 0 {
		var names []string
		for _, p := range headers {
			names = append(names, fmt.Sprintf("%s: %q", p.option, p.name))
		}
		g.printf(", headers: { %s }", strings.Join(names, ", "))
	}
	if o.repeatable {
		g.printf(", repeatable: true")
	}
	if o.raw {
		g.printf(", raw: true")
	}
	if o.lines {
		g.printf(", lines: true")
	}
	g.printf(" },\n")
}

func optionsName(o *operation) string { return strings.ToUpper(o.id[:1]) + o.id[1:] + "Options" }

// hasOptions reports whether an operation has options besides those of every call, and whether one is required.
func (o *operation) hasOptions() (some, required bool) {
	for _, p := range o.parameters {
		if p.in != "path" {
			some, required = true, required || p.required
		}
	}
	return some, required
}

// options prints the type of an operation's options.
func (g *generator) options(o *operation) {
	if some, _ := o.hasOptions(); !some {
		return
	}
	g.printf("\n/** Options of {@link Operations.%s}. */\nexport interface %s extends CallOptions {\n", o.id, optionsName(o))
	for _, p := range o.parameters {
		if p.in == "path" {
			continue
		}
		g.comment("  ", p.description)
		optional := "?"
		if p.required {
			optional = ""
		}
		of := g.typeOf("  ", p.schema)
		if p.name == "Expected-Version" {
			of = "number | " + of
		}
		g.printf("  %s%s: %s;\n", p.option, optional, of)
	}
	g.printf("}\n")
}

var placeholder = regexp.MustCompile(`\{([^}]+)\}`)

// method prints an operation's method.
func (g *generator) method(o *operation) {
	g.printf("\n")
	g.comment("  ", o.summary+".", o.description)
	var arguments, names []string
	for _, match := range placeholder.FindAllStringSubmatch(o.path, -1) {
		for _, p := range o.of("path") {
			if p.name == match[1] {
				names = append(names, p.option)
				arguments = append(arguments, p.option+": "+g.typeOf("  ", p.schema))
			}
		}
	}
	some, required := o.hasOptions()
	options := "options: CallOptions = {}"
	switch {
	case required:
		options = "options: " + optionsName(o)
	case some:
		options = "options: " + optionsName(o) + " = {}"
	}
	body := ""
	if o.body != "" {
		body = ", body"
		if o.bodyRequired {
			arguments = append(arguments, "body: "+o.body)
		} else {
			arguments = append(arguments, "body: "+o.body+" | undefined = undefined")
		}
	}
	arguments = append(arguments, options)
	g.printf("  %s(%s): Promise<%s> {\n", o.id, strings.Join(arguments, ", "), o.answer)
	g.printf("    return this.send(operations.%s, [%s], options%s);\n  }\n", o.id, strings.Join(names, ", "), body)
}
