package mongo

import (
	"regexp"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// A MongoDB filter looks into lists: {"a.b": 1} finds {"a": [{"b": 1}]}, and {"a": 1} finds {"a": [1]}. Paths of a
// predicate lead only through objects. So each condition on a path also requires that no list is on the way, and no
// list at its end if one of its elements could match.

// data is the field that holds a document's data.
const data = "document"

// Limits of a filter, so that the server accepts it whatever the predicate is.
const (
	maxFilterDepth  = 30     // nesting of And and Or; the server accepts 100 levels of conditions
	maxPatternBytes = 32_000 // the server accepts 32,764
)

// nothing is the condition that no document meets. All documents meet bson.D{}.
func nothing() bson.D { return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{}}}}} }

func and(parts ...bson.D) bson.D {
	parts = slices.DeleteFunc(parts, func(part bson.D) bool { return len(part) == 0 })
	switch len(parts) {
	case 0:
		return bson.D{}
	case 1:
		return parts[0]
	}
	return bson.D{{Key: "$and", Value: parts}}
}

func or(parts ...bson.D) bson.D {
	switch len(parts) {
	case 0:
		return nothing()
	case 1:
		return parts[0]
	}
	return bson.D{{Key: "$or", Value: parts}}
}

// on is a condition on a field, made of an operator and an operand.
func on(field, operator string, operand any) bson.D {
	return bson.D{{Key: field, Value: bson.D{{Key: operator, Value: operand}}}}
}

func not(field, operator string, operand any) bson.D {
	return on(field, "$not", bson.D{{Key: operator, Value: operand}})
}

// field returns a path's name in MongoDB.
func field(path domain.Path) string {
	var name strings.Builder
	name.WriteString(data)
	for _, step := range path {
		name.WriteByte('.')
		name.WriteString(escapeName(step))
	}
	return name.String()
}

// noListOnTheWay is true if no step before the path's last leads to a list.
func noListOnTheWay(path domain.Path) bson.D {
	var parts []bson.D
	for i := 1; i < len(path); i++ {
		parts = append(parts, notList(field(path[:i])))
	}
	return and(parts...)
}

// listOnTheWay is the opposite of noListOnTheWay.
func listOnTheWay(path domain.Path) bson.D {
	var parts []bson.D
	for i := 1; i < len(path); i++ {
		parts = append(parts, isList(field(path[:i])))
	}
	return or(parts...)
}

func notList(field string) bson.D { return not(field, "$type", "array") }

func isList(field string) bson.D { return on(field, "$type", "array") }

// isObject is true for an object, and also for a list that contains objects. If a list is possible, combine it with
// notList.
func isObject(field string) bson.D { return on(field, "$type", "object") }

func isNull(field string) bson.D { return on(field, "$type", "null") }

func isText(field string) bson.D { return on(field, "$type", "string") }

func exists(field string, yes bool) bson.D { return on(field, "$exists", yes) }

// native returns a scalar as MongoDB compares it. MongoDB compares integers and doubles by their exact values, as
// domain does.
func native(scalar domain.Scalar) any {
	switch scalar.Kind {
	case domain.ScalarInt:
		return scalar.Int
	case domain.ScalarDouble:
		return scalar.Double
	case domain.ScalarText:
		return scalar.Text
	case domain.ScalarBool:
		return scalar.Bool
	}
	return nil
}

// filter translates a predicate to a condition on a row. Errors are those of Query.
func (d *Driver) filter(where domain.Predicate) (bson.D, error) {
	return translator{expressions: d.expressions}.translate(where, 0)
}

// translator translates predicates to conditions.
type translator struct {
	expressions bool // the server has $regexMatch
}

func (t translator) translate(where domain.Predicate, depth int) (bson.D, error) {
	if depth > maxFilterDepth {
		return nil, domain.Errorf(domain.CodeUnsupported, "filter", "its conditions are nested more than %d deep, which MongoDB does not support", maxFilterDepth)
	}
	if path := domain.LeafPath(where); len(path) > MaxDepth+1 {
		return nothing(), nil // no document is nested that deeply
	}
	switch where := where.(type) {
	case nil:
		return bson.D{}, nil
	case domain.And:
		parts, err := t.translateAll(where, depth)
		return and(parts...), err
	case domain.Or:
		parts, err := t.translateAll(where, depth)
		return or(parts...), err
	case domain.Has:
		return filterHas(where), nil
	case domain.Compare:
		return filterCompare(where), nil
	case domain.OneOf:
		return filterOneOf(where), nil
	case domain.Contains:
		return filterContains(where), nil
	case domain.Text:
		return filterText(where)
	case domain.Matches:
		return t.filterMatches(where)
	}
	return nil, domain.Errorf(domain.CodeUnsupported, "filter", "MongoDB does not support a %T", where)
}

func (t translator) translateAll(parts []domain.Predicate, depth int) ([]bson.D, error) {
	all := make([]bson.D, 0, len(parts))
	for _, part := range parts {
		one, err := t.translate(part, depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func filterHas(p domain.Has) bson.D {
	last, way := field(p.Path), noListOnTheWay(p.Path)
	if !p.Not {
		return and(way, exists(last, true))
	}
	if len(p.Path) == 1 {
		return exists(last, false)
	}
	around := field(p.Path[:len(p.Path)-1])
	return and(way, or(and(isObject(around), exists(last, false)), isNull(around)))
}

func filterCompare(p domain.Compare) bson.D {
	name, way := field(p.Path), noListOnTheWay(p.Path)
	if p.Value.Kind == domain.ScalarNull {
		switch p.Comparison {
		case domain.Equal:
			return and(way, notList(name), isNull(name))
		case domain.NotEqual:
			return and(way, exists(name, true), or(isList(name), not(name, "$type", "null")))
		}
		return nothing()
	}
	value := native(p.Value)
	switch p.Comparison {
	case domain.Equal:
		return and(on(name, "$eq", value), way, notList(name))
	case domain.NotEqual:
		return and(way, exists(name, true), or(isList(name), on(name, "$ne", value)))
	case domain.Less, domain.LessOrEqual, domain.Greater, domain.GreaterOrEqual:
		return and(on(name, orderOperators[p.Comparison], value), way, notList(name))
	}
	return nothing()
}

var orderOperators = map[domain.Comparison]string{
	domain.Less: "$lt", domain.LessOrEqual: "$lte", domain.Greater: "$gt", domain.GreaterOrEqual: "$gte",
}

func filterOneOf(p domain.OneOf) bson.D {
	name, way := field(p.Path), noListOnTheWay(p.Path)
	values, null := bson.A{}, false
	for _, value := range p.Values {
		if value.Kind == domain.ScalarNull {
			null = true
		} else {
			values = append(values, native(value))
		}
	}
	if p.Not {
		none := []bson.D{}
		if len(values) > 0 {
			none = append(none, on(name, "$nin", values))
		}
		if null {
			none = append(none, not(name, "$type", "null"))
		}
		if len(none) == 0 {
			return and(way, exists(name, true))
		}
		return and(way, exists(name, true), or(isList(name), and(none...)))
	}
	var some []bson.D
	if len(values) > 0 {
		some = append(some, on(name, "$in", values))
	}
	if null {
		some = append(some, isNull(name))
	}
	if len(some) == 0 {
		return nothing()
	}
	return and(or(some...), way, notList(name))
}

func filterContains(p domain.Contains) bson.D {
	name, way := field(p.Path), noListOnTheWay(p.Path)
	element := bson.D{{Key: "$eq", Value: native(p.Value)}}
	if p.Value.Kind == domain.ScalarNull {
		element = bson.D{{Key: "$type", Value: "null"}}
	}
	list := on(name, "$elemMatch", element)
	if p.Not {
		list = and(isList(name), not(name, "$elemMatch", element))
	}
	object := and(isObject(name), notList(name))
	switch {
	case p.Value.Kind == domain.ScalarText:
		object = and(object, exists(field(append(slices.Clone(p.Path), p.Value.Text)), !p.Not))
	case !p.Not:
		object = nil // an object has no member of that name, because names are strings
	}
	if object == nil {
		return and(way, list)
	}
	return and(way, or(list, object))
}

func filterText(p domain.Text) (bson.D, error) {
	name, way := field(p.Path), noListOnTheWay(p.Path)
	condition := bson.D{{Key: "$type", Value: "string"}}
	pattern := regexp.QuoteMeta(p.Text)
	switch {
	case p.Text == "":
	case p.Test == domain.StartsWith:
		// As a range, it can use an index, and the text may have any length.
		condition = bson.D{{Key: "$gte", Value: p.Text}}
		if end, ok := drivers.PrefixEnd(p.Text); ok {
			condition = append(condition, bson.E{Key: "$lt", Value: end})
		}
	case p.Test == domain.EndsWith:
		condition = bson.D{{Key: "$regex", Value: pattern + `\z`}}
	default:
		condition = bson.D{{Key: "$regex", Value: pattern}}
	}
	if len(pattern) > maxPatternBytes && p.Test != domain.StartsWith {
		return nil, unsupported(p.Place, "MongoDB cannot look for a text of %d bytes within others", len(p.Text))
	}
	return textCondition(name, way, condition, p.Not), nil
}

// filterMatches uses $regexMatch. The server gives up on a text after 200,000 steps, or 4,000 nested ones. With
// $regexMatch that is an error; $regex would treat the text as one that does not match. A server without $regexMatch
// has to use $regex.
func (t translator) filterMatches(p domain.Matches) (bson.D, error) {
	pattern := p.Pattern.Portable(`\A`, `\z`)
	if len(pattern) > maxPatternBytes {
		return nil, unsupported(p.Place, "the pattern becomes too long for MongoDB: %d bytes", len(pattern))
	}
	name, way := field(p.Path), noListOnTheWay(p.Path)
	if !t.expressions {
		return textCondition(name, way, bson.D{{Key: "$regex", Value: pattern}}, p.Not), nil
	}
	return and(on(name, "$type", "string"), way, notList(name), bson.D{{Key: "$expr", Value: patternExpression(name, pattern, p.Not)}}), nil
}

// patternExpression is an expression that is true if the value is a text that matches the pattern, or with opposite,
// one that does not.
func patternExpression(name, pattern string, opposite bool) bson.D {
	value := "$" + name
	condition := bson.D{{Key: "$regexMatch", Value: bson.D{{Key: "input", Value: value}, {Key: "regex", Value: bson.D{{Key: "$literal", Value: pattern}}}}}}
	if opposite {
		condition = bson.D{{Key: "$not", Value: bson.A{condition}}}
	}
	// The server may evaluate any condition first, and $regexMatch accepts only strings.
	isText := bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: value}}, "string"}}}
	return bson.D{{Key: "$cond", Value: bson.A{isText, condition, false}}}
}

func textCondition(name string, way, condition bson.D, opposite bool) bson.D {
	if opposite {
		return and(isText(name), way, notList(name), on(name, "$not", condition))
	}
	return and(bson.D{{Key: name, Value: condition}}, way, notList(name))
}

// unsupported returns an error that names a leaf's place if it is known.
func unsupported(place domain.Place, format string, args ...any) error {
	return domain.Errorf(domain.CodeUnsupported, place.Where(), format, args...)
}
