package codegen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// TypeScript returns a module with a type for each given version, and these:
//
//	Events         from each event type to the data of its newest version
//	EventVersions  from each event type to its versions, if a type has several
//	EventType      the names of the event types
//	EventOf        an event with its type and data: checking its type narrows its data
func TypeScript(types []Type) ([]byte, error) {
	units, err := read(types, names{"Events": true, "EventVersions": true, "EventType": true, "EventOf": true})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString(header)
	for _, u := range units {
		writeDeclaration(&out, u.root, "Data of "+u.label()+".")
		for _, d := range u.definitions {
			writeDeclaration(&out, d, "")
		}
		if out.Len() > maxBytes {
			return nil, errTooLong
		}
	}
	out.WriteString("\n/** The data of each event type, in its newest version. */\n")
	writeInterface(&out, "Events", units, func(all []*unit) string { return all[len(all)-1].root.name })
	if slices.ContainsFunc(units, func(u *unit) bool { return !u.newest }) {
		out.WriteString("\n/** The data of each event type, by version. */\n")
		writeInterface(&out, "EventVersions", units, func(all []*unit) string {
			var versions strings.Builder
			for _, u := range all {
				fmt.Fprintf(&versions, "    %d: %s;\n", u.Version, u.root.name)
			}
			return "{\n" + versions.String() + "  }"
		})
	}
	out.WriteString(`
/** The event types. */
export type EventType = keyof Events;

/** An event with its data. Checking its type narrows its data. */
export type EventOf<T extends EventType = EventType> = {
  [K in T]: { type: K; data: Events[K] };
}[T];
`)
	return out.Bytes(), nil
}

var errTooLong = errors.New("the schemas generate more than 8 MiB of code")

// writeInterface writes an interface with a property for each event type.
func writeInterface(out *bytes.Buffer, name string, units []*unit, of func(versions []*unit) string) {
	fmt.Fprintf(out, "export interface %s {\n", name)
	first := 0
	for i, u := range units {
		if u.newest {
			fmt.Fprintf(out, "  %s: %s;\n", propertyName(u.Name), of(units[first:i+1]))
			first = i + 1
		}
	}
	out.WriteString("}\n")
}

func writeDeclaration(out *bytes.Buffer, d *definition, intro string) {
	out.WriteString("\n")
	s := d.shape
	if s.doc != "" && intro != "" {
		intro += "\n\n"
	}
	writeDoc(out, "", intro+s.doc, s.deprecated)
	if s.isInterface() {
		fmt.Fprintf(out, "export interface %s %s\n", d.name, typeScriptOf(s, ""))
		return
	}
	fmt.Fprintf(out, "export type %s =%s;\n", d.name, spaced(typeScriptOf(s, "")))
}

func writeDoc(out *bytes.Buffer, indent, text string, deprecated bool) {
	all := lines(text)
	if deprecated {
		all = append(all, "@deprecated")
	}
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "*/", `*\/`)
	}
	switch len(all) {
	case 0:
	case 1:
		fmt.Fprintf(out, "%s/** %s */\n", indent, all[0])
	default:
		out.WriteString(indent + "/**\n")
		for _, line := range all {
			out.WriteString(strings.TrimRight(indent+" * "+line, " ") + "\n")
		}
		out.WriteString(indent + " */\n")
	}
}

// spaced puts a space before a type, unless it begins on the next line.
func spaced(of string) string {
	if strings.HasPrefix(of, "\n") {
		return of
	}
	return " " + of
}

var scalarNames = map[kind]string{
	anything: "unknown", nothing: "never", null: "null", boolean: "boolean", integer: "number", number: "number", text: "string", dateTime: "string",
}

// typeScriptOf returns a type. Its further lines are indented.
func typeScriptOf(s *shape, indent string) string {
	switch s.kind {
	case array:
		return typeScriptElement(s.rest, indent) + "[]"
	case tuple:
		return typeScriptTuple(s, indent)
	case object:
		return typeScriptObject(s, indent)
	case literals:
		texts := make([]string, len(s.values))
		for i, value := range s.values {
			texts[i] = literal(value)
		}
		return alternatives(texts, indent)
	case union:
		texts := make([]string, len(s.parts))
		for i, part := range s.parts {
			if texts[i] = typeScriptOf(part, indent+"    "); part.kind == intersection || strings.HasPrefix(texts[i], "\n") {
				texts[i] = parenthesized(texts[i], indent+"    ")
			}
		}
		return alternatives(texts, indent)
	case intersection:
		texts := make([]string, len(s.parts))
		for i, part := range s.parts {
			texts[i] = typeScriptElement(part, indent)
		}
		return strings.Join(texts, " & ")
	case reference:
		return s.to.name
	}
	return scalarNames[s.kind]
}

// typeScriptElement returns a type that may stand before [] or beside &.
func typeScriptElement(s *shape, indent string) string {
	of := typeScriptOf(s, indent)
	if s.kind == intersection || strings.HasPrefix(of, "\n") || (s.kind == union || s.kind == literals) && strings.Contains(of, " | ") {
		return parenthesized(of, indent)
	}
	return of
}

func parenthesized(of, indent string) string {
	if strings.HasPrefix(of, "\n") {
		return "(" + of + "\n" + indent + ")"
	}
	return "(" + of + ")"
}

// alternatives joins different types by |, on one line if they fit.
func alternatives(texts []string, indent string) string {
	unique := texts[:0]
	seen := make(map[string]bool, len(texts))
	for _, text := range texts {
		if !seen[text] {
			seen[text] = true
			unique = append(unique, text)
		}
	}
	joined := strings.Join(unique, " | ")
	if len(unique) < 2 || len(indent)+len(joined) < 60 && !strings.Contains(joined, "\n") {
		return joined
	}
	return "\n" + indent + "  | " + strings.Join(unique, "\n"+indent+"  | ")
}

func typeScriptTuple(s *shape, indent string) string {
	texts := make([]string, 0, len(s.parts)+1)
	named := needsNames(s)
	for i, part := range s.parts {
		of, optional := typeScriptElement(part, indent), ""
		if i >= s.least {
			optional = "?"
		}
		if named {
			of = "item" + strconv.Itoa(i+1) + optional + ": " + of
		} else {
			of += optional
		}
		texts = append(texts, of)
	}
	if s.rest.kind != nothing {
		rest := typeScriptElement(s.rest, indent) + "[]"
		if named {
			rest = "rest: " + rest
		}
		texts = append(texts, "..."+rest)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// needsNames reports whether the elements of a tuple must have names. The compiler resolves an array or a tuple within
// an optional element or a rest at once, and refuses a type that contains itself there. It resolves it later if the
// element has a name, or if an element is itself a type that may contain the tuple. In the latter case, a named rest
// would be refused.
func needsNames(s *shape) bool {
	if isAlias(s.rest) || slices.ContainsFunc(s.parts, isAlias) {
		return false
	}
	return mentionsAlias(s.rest) || slices.ContainsFunc(s.parts[min(s.least, len(s.parts)):], mentionsAlias)
}

// isAlias reports whether a type, or an alternative of it, is the name of a type other than an interface.
func isAlias(s *shape) bool {
	switch s.kind {
	case reference:
		return !s.to.shape.isInterface()
	case union, intersection:
		return slices.ContainsFunc(s.parts, isAlias)
	}
	return false
}

// mentionsAlias reports whether isAlias holds for a type, or for an element in it.
func mentionsAlias(s *shape) bool {
	switch s.kind {
	case array:
		return mentionsAlias(s.rest)
	case tuple:
		return mentionsAlias(s.rest) || slices.ContainsFunc(s.parts, mentionsAlias)
	case union, intersection:
		return slices.ContainsFunc(s.parts, mentionsAlias)
	}
	return isAlias(s)
}

// isInterface reports whether a definition of this shape is an interface. The properties of an interface, and of any
// object, may contain it.
func (s *shape) isInterface() bool { return s.kind == object && len(s.fields) > 0 }

func typeScriptObject(s *shape, indent string) string {
	rest := s.rest
	if len(s.fields) == 0 {
		if rest == nil {
			rest = &shape{}
		}
		return "{ [key: string]:" + spaced(typeScriptOf(rest, indent)) + " }"
	}
	var out bytes.Buffer
	out.WriteString("{\n")
	inner := indent + "  "
	for _, f := range s.fields {
		writeDoc(&out, inner, f.of.doc, f.of.deprecated)
		optional := "?"
		if f.required {
			optional = ""
		}
		fmt.Fprintf(&out, "%s%s%s:%s;\n", inner, propertyName(f.name), optional, spaced(typeScriptOf(f.of, inner)))
	}
	if rest != nil && rest.kind != nothing {
		out.WriteString(inner + "[key: string]: unknown;\n") // a narrower type would have to fit the other properties
	}
	out.WriteString(indent + "}")
	return out.String()
}

var bareName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

func propertyName(name string) string {
	if bareName.MatchString(name) {
		return name
	}
	return quoted(name)
}

// quoted returns a string of both JavaScript and JSON.
func quoted(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can always be encoded
	return strings.TrimSpace(out.String())
}

// literal returns the type of one JSON value.
func literal(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(value)
	case string:
		return quoted(value)
	case json.Number:
		exact, err := value.Float64()
		if err != nil {
			return "number"
		}
		return strconv.FormatFloat(exact, 'g', -1, 64)
	case []any:
		texts := make([]string, len(value))
		for i, element := range value {
			texts[i] = literal(element)
		}
		return "[" + strings.Join(texts, ", ") + "]"
	case *members:
		if len(value.names) == 0 {
			return "{ [key: string]: never }"
		}
		texts := make([]string, len(value.names))
		for i, name := range value.names {
			texts[i] = propertyName(name) + ": " + literal(value.get(name))
		}
		return "{ " + strings.Join(texts, "; ") + " }"
	}
	return "unknown"
}
