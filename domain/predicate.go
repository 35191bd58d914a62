package domain

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Predicate selects documents. It is a tree of And, Or and the leaves below; no other type implements it.
//
// Match defines what a predicate means: a driver's query returns exactly the documents for which Match is true. Package
// expr makes predicates from expressions, so that a document matches if and only if the expression, evaluated with it
// as `doc`, is true. The tree has no "not". Package expr pushes it down to the leaves, because a leaf and its opposite
// are not complements. If a document has no value at a leaf's path, or one of a kind that the leaf cannot judge, the
// expression would fail. Then neither the leaf nor its opposite matches.
//
// Predicates are immutable.
type Predicate interface {
	match(document map[string]any) bool
}

// Match reports whether the document matches. A nil predicate matches every document. Match returns an error if the
// document's data is not a JSON object.
func Match(predicate Predicate, document Document) (bool, error) {
	if predicate == nil {
		return true, nil
	}
	members, err := decodeObject(document.Data)
	if err != nil {
		return false, fmt.Errorf("document %q: %w", document.ID, err)
	}
	return predicate.match(members), nil
}

// decodeObject returns a document's members, with numbers as json.Number.
func decodeObject(data json.RawMessage) (members map[string]any, err error) {
	if err = DecodeJSON(data, &members); err == nil && members == nil {
		err = errors.New("null is no object")
	}
	return members, err
}

// Path leads to a value in a document by the names of members, from the outside inwards. It never leads into a list,
// whatever the names are. It has at least one name.
type Path []string

// String returns the path in the syntax of expressions: doc.customer["zip code"].
func (p Path) String() string {
	text := "doc"
	for _, name := range p {
		if identifier.MatchString(name) && !slices.Contains(words, name) {
			text += "." + name
		} else {
			text += "[" + Scalar{Kind: ScalarText, Text: name}.JSON() + "]"
		}
	}
	return text
}

// identifier matches names that may follow a dot, unless they are one of the language's words.
var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	words      = []string{"in", "true", "false", "null"}
)

// Value returns the value at the path in decoded JSON; ok is false if there is none.
func (p Path) Value(document map[string]any) (value any, ok bool) {
	value = document
	for _, name := range p {
		members, isObject := value.(map[string]any)
		if !isObject {
			return nil, false
		}
		if value, ok = members[name]; !ok {
			return nil, false
		}
	}
	return value, true
}

// ScalarOf converts decoded JSON, with numbers as json.Number, to a scalar; ok is false for a list or an object.
func ScalarOf(value any) (scalar Scalar, ok bool) {
	switch value := value.(type) {
	case nil:
		return Scalar{}, true
	case bool:
		return Scalar{Kind: ScalarBool, Bool: value}, true
	case string:
		return Scalar{Kind: ScalarText, Text: value}, true
	case json.Number:
		return ParseNumber(string(value)), true
	}
	return Scalar{}, false
}

// And matches documents that all of its parts match. Without parts it matches every document.
type And []Predicate

func (p And) match(document map[string]any) bool {
	return !slices.ContainsFunc(p, func(part Predicate) bool { return !part.match(document) })
}

// Or matches documents that at least one of its parts matches. Without parts it matches no document.
type Or []Predicate

func (p Or) match(document map[string]any) bool {
	return slices.ContainsFunc(p, func(part Predicate) bool { return part.match(document) })
}

// Place is a leaf's place in its expression, for messages: "line 1, column 12". It is empty if unknown.
type Place string

// Where returns the place in a request, as in an Error: "filter, line 1, column 12".
func (p Place) Where() string {
	if p == "" {
		return "filter"
	}
	return "filter, " + string(p)
}

// Has matches if the object that contains the path's last name exists and has that member, even if the member is null.
// Its opposite matches if the object exists without the member, or if null is in the object's place.
type Has struct {
	Path  Path
	Not   bool // the opposite
	Place Place
}

func (p Has) match(document map[string]any) bool {
	last := len(p.Path) - 1
	around, ok := p.Path[:last].Value(document)
	if last == 0 {
		around, ok = document, true
	}
	if !ok {
		return false
	}
	if around == nil {
		return p.Not
	}
	members, isObject := around.(map[string]any)
	_, has := members[p.Path[last]]
	return isObject && has != p.Not
}

// Comparison is how a Compare compares.
type Comparison string

// The comparisons.
const (
	Equal          Comparison = "=="
	NotEqual       Comparison = "!="
	Less           Comparison = "<"
	LessOrEqual    Comparison = "<="
	Greater        Comparison = ">"
	GreaterOrEqual Comparison = ">="
)

// Compare compares the value at a path with a constant. Equal and NotEqual apply to every existing value: values of
// different kinds are not equal, and a list or an object equals no constant. The other comparisons match only a value
// that is comparable with the constant: numbers with numbers, strings with strings, bools with bools, and never null.
type Compare struct {
	Path       Path
	Comparison Comparison
	Value      Scalar
	Place      Place
}

func (p Compare) match(document map[string]any) bool {
	value, ok := p.Path.Value(document)
	if !ok {
		return false
	}
	scalar, isScalar := ScalarOf(value)
	switch p.Comparison {
	case Equal:
		return isScalar && scalar == p.Value
	case NotEqual:
		return !isScalar || scalar != p.Value
	}
	if !isScalar || !scalar.Comparable(p.Value) {
		return false
	}
	order := scalar.Compare(p.Value)
	switch p.Comparison {
	case Less:
		return order < 0
	case LessOrEqual:
		return order <= 0
	case Greater:
		return order > 0
	case GreaterOrEqual:
		return order >= 0
	}
	return false
}

// OneOf matches if the value at a path equals one of the constants. Its opposite matches if there is a value and it
// equals none of them.
type OneOf struct {
	Path   Path
	Values []Scalar
	Not    bool // the opposite
	Place  Place
}

func (p OneOf) match(document map[string]any) bool {
	value, ok := p.Path.Value(document)
	if !ok {
		return false
	}
	scalar, isScalar := ScalarOf(value)
	return (isScalar && slices.Contains(p.Values, scalar)) != p.Not
}

// Contains matches if the path leads to a list with an element that equals the constant, or to an object with a member
// of that name. Its opposite matches if the path leads to a list or an object without it.
type Contains struct {
	Path  Path
	Value Scalar
	Not   bool // the opposite
	Place Place
}

func (p Contains) match(document map[string]any) bool {
	value, ok := p.Path.Value(document)
	if !ok {
		return false
	}
	switch value := value.(type) {
	case []any:
		return slices.ContainsFunc(value, func(element any) bool {
			scalar, isScalar := ScalarOf(element)
			return isScalar && scalar == p.Value
		}) != p.Not
	case map[string]any:
		_, has := value[p.Value.Text]
		return (has && p.Value.Kind == ScalarText) != p.Not
	}
	return false
}

// TextTest is the test that a Text makes.
type TextTest string

// The tests of strings.
const (
	StartsWith TextTest = "startsWith"
	EndsWith   TextTest = "endsWith"
	Includes   TextTest = "contains"
)

// Text matches if a string is at the path and starts with, ends with or contains the given string, byte for byte. Its
// opposite matches if a string is there and does not.
type Text struct {
	Path  Path
	Test  TextTest
	Text  string
	Not   bool // the opposite
	Place Place
}

func (p Text) match(document map[string]any) bool {
	value, _ := p.Path.Value(document)
	text, ok := value.(string)
	if !ok {
		return false
	}
	switch p.Test {
	case StartsWith:
		return strings.HasPrefix(text, p.Text) != p.Not
	case EndsWith:
		return strings.HasSuffix(text, p.Text) != p.Not
	case Includes:
		return strings.Contains(text, p.Text) != p.Not
	}
	return false
}

// Matches matches if a string is at the path and a part of it matches the pattern. Its opposite matches if a string is
// there and no part matches. A driver whose database cannot preserve this meaning refuses the query with
// CodeUnsupported and the place.
type Matches struct {
	Path    Path
	Pattern Pattern
	Not     bool // the opposite
	Place   Place
}

func (p Matches) match(document map[string]any) bool {
	value, _ := p.Path.Value(document)
	text, ok := value.(string)
	return ok && p.Pattern.MatchString(text) != p.Not
}
