package domain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Predicate says which documents are meant. It is a tree of And, Or and the leaves below; no other type can be one.
//
// What a predicate means is fixed here, by Match: a driver's query gives the documents for which Match gives true, no
// more and no less. Package expr makes predicates from expressions, so that a document matches if and only if the
// expression, evaluated on it as `doc`, gives true. There is no "not" in the tree: expr takes it down to the leaves,
// because a leaf and its opposite are not complements. Where a document has no value at a leaf's path, or one of a kind
// that the leaf cannot judge, the expression would fault, and neither the leaf nor its opposite matches.
//
// Predicates are immutable.
type Predicate interface {
	match(document map[string]any) bool
}

// Match reports whether the document matches. A nil predicate matches every document. It is an error if the document's
// data is no JSON object.
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

// decodeObject gives a document's members; numbers are json.Number.
func decodeObject(data json.RawMessage) (members map[string]any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err = decoder.Decode(&members); err == nil && members == nil {
		err = errors.New("null is no object")
	}
	return members, err
}

// Path leads to a value in a document: the names of members, from the document inwards. It never leads through a list,
// whatever the names are. It has at least one name.
type Path []string

// String gives the path as an expression has it: doc.customer["zip code"].
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

// identifier is what may stand behind a point, unless it is one of the language's words.
var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	words      = []string{"in", "true", "false", "null"}
)

// value is what is at the path; ok is false where there is nothing.
func (p Path) value(document map[string]any) (value any, ok bool) {
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

// scalarOf is a decoded value as a scalar; ok is false for a list or an object.
func scalarOf(value any) (scalar Scalar, ok bool) {
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

// And matches what all of its parts match: everything, where there are none.
type And []Predicate

func (p And) match(document map[string]any) bool {
	return !slices.ContainsFunc(p, func(part Predicate) bool { return !part.match(document) })
}

// Or matches what one of its parts matches: nothing, where there are none.
type Or []Predicate

func (p Or) match(document map[string]any) bool {
	return slices.ContainsFunc(p, func(part Predicate) bool { return part.match(document) })
}

// Place is where in its expression a leaf stands, for messages: "line 1, column 12". Empty where it is not known.
type Place string

// Where is the place in a request, as an Error has it: "filter, line 1, column 12".
func (p Place) Where() string {
	if p == "" {
		return "filter"
	}
	return "filter, " + string(p)
}

// Has matches where the object around the path's last name is there and has that member, be it null. Its opposite
// matches where the object is there and lacks the member, or where null is in the object's stead.
type Has struct {
	Path  Path
	Not   bool // the opposite
	Place Place
}

func (p Has) match(document map[string]any) bool {
	last := len(p.Path) - 1
	around, ok := p.Path[:last].value(document)
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

// Compare compares the value at a path with a constant. Equal and NotEqual match or do not wherever there is a value:
// values of different kinds are not equal, and a list or an object equals no constant. The others match only a value that
// the constant can be compared with: numbers with numbers, texts with texts, bools with bools; never null.
type Compare struct {
	Path       Path
	Comparison Comparison
	Value      Scalar
	Place      Place
}

func (p Compare) match(document map[string]any) bool {
	value, ok := p.Path.value(document)
	if !ok {
		return false
	}
	scalar, isScalar := scalarOf(value)
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

// OneOf matches where the value at a path equals one of the constants; its opposite where there is a value, and it equals
// none of them.
type OneOf struct {
	Path   Path
	Values []Scalar
	Not    bool // the opposite
	Place  Place
}

func (p OneOf) match(document map[string]any) bool {
	value, ok := p.Path.value(document)
	if !ok {
		return false
	}
	scalar, isScalar := scalarOf(value)
	return (isScalar && slices.Contains(p.Values, scalar)) != p.Not
}

// Contains matches where a list is at the path and one of its elements equals the constant, or where an object is there
// and the constant is the name of one of its members. Its opposite matches where a list or an object is there without.
type Contains struct {
	Path  Path
	Value Scalar
	Not   bool // the opposite
	Place Place
}

func (p Contains) match(document map[string]any) bool {
	value, ok := p.Path.value(document)
	if !ok {
		return false
	}
	switch value := value.(type) {
	case []any:
		return slices.ContainsFunc(value, func(element any) bool {
			scalar, isScalar := scalarOf(element)
			return isScalar && scalar == p.Value
		}) != p.Not
	case map[string]any:
		_, has := value[p.Value.Text]
		return (has && p.Value.Kind == ScalarText) != p.Not
	}
	return false
}

// TextTest is what a Text looks for.
type TextTest string

// The tests of texts.
const (
	StartsWith TextTest = "startsWith"
	EndsWith   TextTest = "endsWith"
	Includes   TextTest = "contains"
)

// Text matches where a text is at the path and starts with, ends with or contains the given one, byte for byte; its
// opposite where a text is there and does not.
type Text struct {
	Path  Path
	Test  TextTest
	Text  string
	Not   bool // the opposite
	Place Place
}

func (p Text) match(document map[string]any) bool {
	value, _ := p.Path.value(document)
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

// Matches matches where a text is at the path, a part of which fits the pattern; its opposite where a text is there and
// no part fits. A driver whose database cannot keep that meaning refuses the query with CodeUnsupported and the place.
type Matches struct {
	Path    Path
	Pattern Pattern
	Not     bool // the opposite
	Place   Place
}

func (p Matches) match(document map[string]any) bool {
	value, _ := p.Path.value(document)
	text, ok := value.(string)
	return ok && p.Pattern.MatchString(text) != p.Not
}
