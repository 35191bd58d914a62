package codegen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/format"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Go returns a file of a package with a type for each given version, and a constant for each event type. Its struct
// tags need Go 1.24.
//
//   - An optional or nullable value is a pointer, unless nil is a value of its type already.
//   - Alternatives of different types are a json.RawMessage, with a comment that names them.
//   - A struct has no place for properties that its schema does not name: decoding drops them.
func Go(packageName string, types []Type) ([]byte, error) {
	if !token.IsIdentifier(packageName) || packageName == "_" {
		return nil, fmt.Errorf("%q is not the name of a Go package", packageName)
	}
	g := &goFile{names: names{}, merged: make(map[*shape]*shape), structs: make(map[*shape]string), open: make(map[*shape]bool)}
	units, err := read(types, g.names)
	if err != nil {
		return nil, err
	}
	var constants bytes.Buffer
	for _, u := range units {
		if u.newest {
			fmt.Fprintf(&constants, "\t%s = %s\n", g.names.pick("Type"+u.root.name), strconv.Quote(u.Name))
		}
	}
	for _, u := range units {
		g.define(u.root, "Data of "+u.label()+".")
		for _, d := range u.definitions {
			g.define(d, "")
		}
		if g.out.Len() > maxBytes {
			return nil, errTooLong
		}
	}
	var file bytes.Buffer
	fmt.Fprintf(&file, "%s\npackage %s\n", header, packageName)
	switch {
	case g.usesJSON && g.usesTime:
		file.WriteString("\nimport (\n\"encoding/json\"\n\"time\"\n)\n")
	case g.usesJSON:
		file.WriteString("\nimport \"encoding/json\"\n")
	case g.usesTime:
		file.WriteString("\nimport \"time\"\n")
	}
	if constants.Len() > 0 {
		fmt.Fprintf(&file, "\n// The event types.\nconst (\n%s)\n", constants.Bytes())
	}
	file.Write(g.out.Bytes())
	return format.Source(file.Bytes())
}

// goFile is a Go file under way.
type goFile struct {
	out                bytes.Buffer
	names              names
	merged             map[*shape]*shape // intersections as one shape
	structs            map[*shape]string // the names of declared ones; an intersection may contain itself
	open               map[*shape]bool   // structs under way
	usesJSON, usesTime bool
	current            *definition // which define writes
}

// goType is a type in Go.
type goType struct {
	text string
	// nilable means that nil represents null and a missing value. Other types need a pointer for them.
	nilable bool
	note    string // what the type does not say, for people
}

const rawMessage = "json.RawMessage"

func raw(text, note string) goType { return goType{text, true, note} }

// writes notes the imports of a type that is written, other than in a comment.
func (g *goFile) writes(text string) string {
	g.usesJSON = g.usesJSON || strings.Contains(text, rawMessage)
	g.usesTime = g.usesTime || strings.Contains(text, "time.Time")
	return text
}

// core returns a shape without null, and whether it allows null. Intersections are merged.
func (g *goFile) core(s *shape) (inner *shape, nullable bool) {
	switch s.kind {
	case null:
		return &shape{}, true
	case intersection:
		return g.core(g.merge(s))
	case literals:
		values := slices.DeleteFunc(slices.Clone(s.values), func(value any) bool { return value == nil })
		if len(values) == len(s.values) {
			return s, false
		}
		if len(values) == 0 {
			return &shape{}, true
		}
		copied := *s
		copied.values = values
		return &copied, true
	case union:
		var parts []*shape
		for _, part := range s.parts {
			if part.kind == null {
				nullable = true
				continue
			}
			parts = append(parts, part)
		}
		simple := either(parts)
		if simple.kind == union && sameKind(simple.parts) {
			simple = &shape{kind: simple.parts[0].kind}
		}
		if simple.kind == union {
			copied := *s
			copied.parts = parts
			return &copied, nullable
		}
		inner, innerNullable := g.core(simple)
		return inner, nullable || innerNullable
	}
	return s, false
}

func sameKind(parts []*shape) bool {
	return parts[0].kind >= boolean && parts[0].kind <= dateTime && !slices.ContainsFunc(parts, func(part *shape) bool { return part.kind != parts[0].kind })
}

// target follows references to what they lead to.
func (g *goFile) target(s *shape) (inner *shape, nullable bool) {
	inner, nullable = g.core(s)
	if inner.kind != reference {
		return inner, nullable
	}
	inner, more := g.target(inner.to.shape)
	return inner, nullable || more
}

// merge turns an intersection into one shape: an object with the fields of all parts. The shape is a union, written as
// a json.RawMessage, if Go has no type for it.
func (g *goFile) merge(s *shape) *shape {
	if known := g.merged[s]; known != nil {
		return known
	}
	result := &shape{kind: object} // what parts that contain the intersection itself see of it
	g.merged[s] = result
	var kept []*shape
	for _, part := range s.parts {
		inner, _ := g.target(part)
		if inner.kind != anything && !g.onlyRequires(inner) {
			kept = append(kept, part)
		}
	}
	merged := s.parts[0]
	switch {
	case len(kept) == 1:
		merged = kept[0]
	case len(kept) > 1:
		merged = g.mergeObjects(kept)
	}
	*result = *merged
	result.doc, result.deprecated = cmp.Or(s.doc, merged.doc), merged.deprecated || s.deprecated
	return result
}

// onlyRequires reports whether the parts of a union differ only in the properties that must exist.
func (g *goFile) onlyRequires(s *shape) bool {
	return s.kind == union && !slices.ContainsFunc(s.parts, func(part *shape) bool {
		inner, _ := g.target(part)
		return inner.kind != object || slices.ContainsFunc(inner.fields, func(f field) bool { return f.of.kind != anything && f.of.kind != nothing })
	})
}

func (g *goFile) mergeObjects(parts []*shape) *shape {
	all := &shape{kind: object}
	places := make(map[string]int)
	for _, part := range parts {
		inner, nullable := g.target(part)
		if inner.kind != object || nullable {
			if narrowest := g.narrowest(parts); narrowest != nil {
				return narrowest
			}
			return &shape{kind: union, parts: parts, together: true}
		}
		for _, f := range inner.fields {
			place, there := places[f.name]
			if !there {
				places[f.name] = len(all.fields)
				all.fields = append(all.fields, f)
				continue
			}
			before := &all.fields[place]
			before.required = before.required || f.required
			if both := g.narrowest([]*shape{before.of, f.of}); both != nil {
				before.of = both
			} else {
				before.of = &shape{kind: union, parts: []*shape{before.of, f.of}, together: true}
			}
		}
		if inner.rest != nil && inner.rest.kind != nothing {
			all.rest = &shape{} // a definition's own could contain the intersection, without end
		}
	}
	return all
}

// narrowest returns the shape that allows the least, or nil if the shapes cannot be compared.
func (g *goFile) narrowest(parts []*shape) *shape {
	best := parts[0]
	for _, part := range parts[1:] {
		a, _ := g.target(best)
		b, _ := g.target(part)
		switch {
		case a.kind == anything, b.kind == literals && (a.kind == literals || scalarOf(b) == a.kind), a.kind == text && b.kind == dateTime, a.kind == number && b.kind == integer:
			best = part
		case b.kind == anything, a.kind == literals && scalarOf(a) == b.kind, b.kind == text && a.kind == dateTime, b.kind == number && a.kind == integer:
		case a.kind == b.kind && a.kind >= boolean && a.kind <= dateTime, a == b:
		default:
			return nil
		}
	}
	return best
}

// scalarOf returns the kind of all values, or anything.
func scalarOf(s *shape) kind {
	found := anything
	for i, value := range s.values {
		of := anything
		switch value := value.(type) {
		case bool:
			of = boolean
		case string:
			of = text
		case json.Number:
			of = number
			if _, err := strconv.ParseInt(value.String(), 10, 64); err == nil {
				of = integer
			}
		}
		switch {
		case i == 0, found == integer && of == number:
			found = of
		case found == number && of == integer:
		case found != of:
			return anything
		}
	}
	return found
}

// define writes the type of a definition.
func (g *goFile) define(d *definition, intro string) {
	g.current = d
	s, nullable := g.core(d.shape)
	copied := *s
	s, copied.doc, copied.deprecated = &copied, cmp.Or(s.doc, d.shape.doc), s.deprecated || d.shape.deprecated
	if g.named(s) {
		g.declare(d.name, s, intro)
		return
	}
	of := g.typeOf(s, d.name)
	if nullable && !of.nilable {
		of.note = strings.TrimSpace(of.note + " It may be null.")
	}
	g.writeDoc(intro, s.doc, of.note, s.deprecated)
	equals := "= "
	if s.kind == array || s.kind == tuple || s.kind == object {
		equals = "" // an alias must not contain itself
	}
	fmt.Fprintf(&g.out, "type %s %s%s\n", d.name, equals, g.writes(of.text))
}

// named reports whether a shape, which is a core, needs a declared type.
func (g *goFile) named(s *shape) bool {
	return s.kind == object && len(s.fields) > 0 && hasTags(s.fields) || s.kind == literals && scalarOf(s) == text
}

// hasTags reports whether all fields can be named in struct tags.
func hasTags(fields []field) bool {
	return !slices.ContainsFunc(fields, func(f field) bool {
		return f.name == "" || strings.ContainsFunc(f.name, func(r rune) bool {
			return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
		})
	})
}

// declare writes a struct, or a string type with its constants.
func (g *goFile) declare(name string, s *shape, intro string) {
	if g.out.Len() > maxBytes {
		return // Go reports it
	}
	if s.kind == literals {
		g.writeDoc(intro, s.doc, "", s.deprecated)
		fmt.Fprintf(&g.out, "type %s string\n\nconst (\n", name)
		seen := make(map[string]bool)
		for _, value := range s.values {
			if value := value.(string); !seen[value] { // named has looked
				seen[value] = true
				label := "Empty"
				if value != "" {
					label = exported(value)
				}
				fmt.Fprintf(&g.out, "\t%s %s = %s\n", g.names.pick(name+label), name, strconv.Quote(value))
			}
		}
		g.out.WriteString(")\n")
		return
	}
	g.open[s] = true
	defer delete(g.open, s)
	// Fields may declare types, which are written first.
	var body bytes.Buffer
	taken := names{}
	for _, f := range s.fields {
		if f.of.kind == nothing {
			continue
		}
		of, nullable := g.use(f.of, name+exported(f.name))
		nullable = nullable || g.recursive(f.of) // a struct must not contain itself
		doc := comment(f.of.doc, of.note, f.of.deprecated)
		if body.Len() > 0 && doc != "" {
			body.WriteString("\n")
		}
		body.WriteString(doc)
		option := ""
		if !f.required {
			option = ",omitzero"
		}
		if (nullable || !f.required) && !of.nilable {
			of.text = "*" + of.text
		}
		if f.name == "-" && f.required {
			option = "," // without the comma, "-" means no name
		}
		fmt.Fprintf(&body, "\t%s %s `json:\"%s%s\"`\n", taken.pick(exported(f.name)), g.writes(of.text), f.name, option)
	}
	note := ""
	if s.rest != nil && s.rest.kind != nothing {
		note = "Further properties are allowed; decoding drops them."
	}
	g.writeDoc(intro, s.doc, note, s.deprecated)
	fmt.Fprintf(&g.out, "type %s struct {\n%s}\n", name, body.Bytes())
}

// use returns the type of a field or an element, and whether it may be null.
func (g *goFile) use(s *shape, name string) (goType, bool) {
	inner, nullable := g.core(s)
	of := g.typeOf(inner, name)
	if inner.kind == reference {
		_, more := g.target(inner)
		nullable = nullable || more
	}
	return of, nullable
}

// recursive reports whether a shape is a struct under way, or refers to a definition that refers to the current one.
func (g *goFile) recursive(s *shape) bool {
	inner, _ := g.core(s)
	return g.open[inner] || inner.kind == reference && (inner.to == g.current || reaches(inner.to, g.current, make(map[*definition]bool)))
}

// element returns the type of an element of an array or a map.
func (g *goFile) element(s *shape, name string) string {
	of, nullable := g.use(s, name+"Item")
	if nullable && !of.nilable {
		return "*" + of.text
	}
	return of.text
}

// typeOf returns the type of a core. If it needs a declaration, its name is like the given one.
func (g *goFile) typeOf(s *shape, name string) goType {
	switch s.kind {
	case boolean:
		return goType{text: "bool"}
	case integer:
		return goType{text: "int64"}
	case number:
		return goType{text: "float64"}
	case text:
		return goType{text: "string"}
	case dateTime:
		return goType{text: "time.Time"}
	case array:
		return goType{text: "[]" + g.element(s.rest, name), nilable: true}
	case tuple:
		return raw("[]"+rawMessage, "A list with a type for each place: "+strings.Join(g.list(s.parts, name), ", ")+".")
	case object:
		switch {
		case len(s.fields) > 0 && !hasTags(s.fields):
			return raw("map[string]"+rawMessage, "It has properties whose names cannot be in struct tags.")
		case len(s.fields) > 0:
			declared, known := g.structs[s]
			if !known {
				declared = g.names.pick(name)
				g.structs[s] = declared
				g.declare(declared, s, "")
			}
			return goType{text: declared}
		case s.rest == nil, s.rest.kind == nothing:
			return goType{text: "map[string]any", nilable: true}
		}
		return goType{text: "map[string]" + g.element(s.rest, name), nilable: true}
	case literals:
		scalar := scalarOf(s)
		if scalar == text {
			name = g.names.pick(name)
			g.declare(name, s, "")
			return goType{text: name}
		}
		texts := make([]string, len(s.values))
		for i, value := range s.values {
			texts[i] = literal(value)
		}
		note := "One of " + strings.Join(texts, ", ") + "."
		if scalar == anything {
			return raw(rawMessage, note)
		}
		of := g.typeOf(&shape{kind: scalar}, name)
		of.note = note
		return of
	case union:
		of := "One of "
		if s.together {
			of = "All of "
		}
		return raw(rawMessage, of+strings.Join(g.list(s.parts, name), ", ")+".")
	case reference:
		target, _ := g.target(s)
		// The same type as the definition's, which says itself what it is.
		return goType{text: s.to.name, nilable: !g.named(target) && g.nilable(target)}
	}
	return goType{text: "any", nilable: true}
}

// nilable reports whether the type of a core, which is not declared, has nil.
func (g *goFile) nilable(s *shape) bool {
	switch s.kind {
	case boolean, integer, number, text, dateTime:
		return false
	case literals:
		return scalarOf(s) == anything
	}
	return true
}

// list returns the types of parts, and declares them where needed.
func (g *goFile) list(parts []*shape, name string) []string {
	texts := make([]string, 0, len(parts))
	for i, part := range parts {
		suffix := "Option" + strconv.Itoa(i+1)
		if part.title != "" {
			suffix = exported(part.title)
		}
		of, _ := g.use(part, name+suffix)
		text := of.text
		if of.note != "" {
			text += " (" + strings.TrimSuffix(of.note, ".") + ")"
		}
		texts = append(texts, text)
	}
	return texts
}

// reaches reports whether references lead from one definition to another.
func reaches(from, to *definition, seen map[*definition]bool) bool {
	var visit func(s *shape) bool
	visit = func(s *shape) bool {
		if s == nil {
			return false
		}
		if s.to != nil {
			if s.to == to {
				return true
			}
			if !seen[s.to] {
				seen[s.to] = true
				return visit(s.to.shape)
			}
			return false
		}
		return visit(s.rest) || slices.ContainsFunc(s.parts, visit) || slices.ContainsFunc(s.fields, func(f field) bool { return visit(f.of) })
	}
	return visit(from.shape)
}

// comment returns a comment with paragraphs.
func comment(doc, note string, deprecated bool) string {
	paragraphs := []string{doc, note}
	if deprecated {
		paragraphs = append(paragraphs, "Deprecated: do not use it in new code.")
	}
	var out strings.Builder
	for _, paragraph := range paragraphs {
		if all := lines(paragraph); len(all) > 0 {
			if out.Len() > 0 {
				out.WriteString("//\n")
			}
			for _, line := range all {
				out.WriteString(strings.TrimRight("// "+line, " ") + "\n")
			}
		}
	}
	return out.String()
}

func (g *goFile) writeDoc(intro, doc, note string, deprecated bool) {
	if intro != "" && doc != "" {
		intro += "\n\n"
	}
	g.out.WriteString("\n" + comment(intro+doc, note, deprecated))
}
