package mongo

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// MongoDB sorts null and missing values first, then numbers, strings, false and true, and strings by their bytes, as
// domain.SortKey does. It differs for documents with a list or an object at one of the order's paths, for long strings
// (which domain sorts last), and for documents with a list on the way to a path: MongoDB sorts by the list's content,
// domain as if the value were missing.
//
// So an ordered query runs in parts, each of which MongoDB can sort. First come the documents that can be ordered and
// have no list on the way. Then come those with a list on the way to some of the paths, one part for each set of paths;
// these parts are usually empty. Last come the documents that cannot be ordered, by id.

// ordering is an order prepared for queries.
type ordering struct {
	terms   []term
	repeats []repeat
}

// repeat is a path that an order names a second time. It does not affect the order, but a place may have another value
// for it.
type repeat struct {
	first, at  int // its positions in the order
	descending bool
}

type term struct {
	at         int // its position in the order
	field      string
	path       domain.Path
	descending bool
	way        bson.D // no list is on the way; empty if the path has one step
	declared   int    // the path's index in the table's list of declared paths; -1: not declared
	key        bool   // the field holds sort keys
}

func newOrdering(order []domain.Order, declared []domain.Path) ordering {
	var o ordering
	for i, part := range order {
		name := field(part.Path)
		first := slices.IndexFunc(o.terms, func(t term) bool { return t.field == name })
		if first >= 0 {
			o.repeats = append(o.repeats, repeat{o.terms[first].at, i, part.Descending})
			continue
		}
		o.terms = append(o.terms, term{at: i, field: name, path: part.Path, descending: part.Descending, way: noListOnTheWay(part.Path), declared: placeAmong(declared, part.Path)})
	}
	return o
}

// choices returns the sets of terms, as bits, on whose paths a list may be; the first is empty.
func (o ordering) choices() []int {
	sets := []int{0}
	for i, t := range o.terms {
		if len(t.way) == 0 {
			continue
		}
		for _, set := range sets[:len(sets):len(sets)] {
			sets = append(sets, set|1<<i)
		}
	}
	return sets
}

// longText matches strings that are too long to be ordered.
var longText = fmt.Sprintf(`\A[\s\S]{%d}`, domain.MaxOrderedCharacters+1)

// orderable is true if the value at the path can be ordered, provided that no list is on the way.
func (t term) orderable() bson.D {
	if t.key {
		return and(on(t.field, "$gte", drivers.KeyNull), on(t.field, "$lt", drivers.KeyUnordered))
	}
	return and(
		not(t.field, "$type", bson.A{"array", "object"}),
		or(not(t.field, "$type", "string"), not(t.field, "$regex", longText)),
	)
}

// value returns a scalar as the field holds it.
func (t term) value(scalar domain.Scalar) any {
	if t.key {
		return drivers.FullSortKey(scalar)
	}
	return native(scalar)
}

// markedNotOrderable is the condition for rows that list the term's path as not orderable, or that have a list on the
// way.
func (t term) markedNotOrderable() bson.D {
	if t.declared < 0 {
		return bson.D{}
	}
	return on(notOrderable, "$eq", t.declared)
}

// listOnTheWay is the opposite of way. It has exactly the form of the list index's condition, because the server
// compares the two term by term.
func (t term) listOnTheWay() bson.D { return listOnTheWay(t.path) }

// part is the condition for documents that can be ordered and have a list on the way to exactly the chosen terms'
// paths.
func (o ordering) part(chosen int) bson.D {
	var parts []bson.D
	for i, t := range o.terms {
		switch {
		case chosen&(1<<i) != 0:
			parts = append(parts, t.markedNotOrderable(), t.listOnTheWay())
		case t.declared >= 0:
			parts = append(parts, on(notOrderable, "$ne", t.declared))
		default:
			parts = append(parts, t.way, t.orderable())
		}
	}
	return and(parts...)
}

// unordered is the condition for documents that cannot be ordered.
func (o ordering) unordered() bson.D {
	var parts []bson.D
	for _, t := range o.terms {
		if t.key {
			parts = append(parts, on(t.field, "$eq", drivers.KeyUnordered))
			continue
		}
		parts = append(parts, and(t.markedNotOrderable(), t.way, bson.D{{Key: "$nor", Value: bson.A{t.orderable()}}}))
	}
	return or(parts...)
}

// sort is how MongoDB sorts a part: by the values that can differ in it, then by id, which the key ends with.
func (o ordering) sort(chosen int) bson.D {
	var sort bson.D
	for i, t := range o.terms {
		switch {
		case chosen&(1<<i) != 0: // the value counts as missing, so all are equal
		case t.descending:
			sort = append(sort, bson.E{Key: t.field, Value: -1})
		default:
			sort = append(sort, bson.E{Key: t.field, Value: 1})
		}
	}
	return append(sort, bson.E{Key: "_id", Value: 1})
}

// settled returns the position in the order that decides, for documents with a place's values, on which side of the
// place they are. at is after the order's end, or the position of a repeated path. side is positive if they are after
// the place.
func (o ordering) settled(place domain.SortKey) (at, side int) {
	for _, r := range o.repeats {
		side := place.Values[r.first].Compare(place.Values[r.at])
		if r.descending {
			side = -side
		}
		if side != 0 {
			return r.at, side
		}
	}
	return len(place.Values), 0
}

// after is the condition for the documents of a part that come after a place. prefix is what precedes ids in keys.
func (o ordering) after(chosen int, place domain.SortKey, prefix string) bson.D {
	var some, equal []bson.D
	settled, side := o.settled(place)
	for i, t := range o.terms {
		if t.at > settled {
			break
		}
		value := place.Values[t.at]
		null := value.Kind == domain.ScalarNull
		if chosen&(1<<i) != 0 {
			if !null && t.descending {
				some = append(some, and(equal...))
			}
			if !null {
				return or(some...)
			}
			continue
		}
		if after := t.after(value); after != nil {
			some = append(some, and(append(equal[:len(equal):len(equal)], after)...))
		}
		equal = append(equal, on(t.field, "$eq", t.value(value))) // null equals a missing value
	}
	switch {
	case side == 0:
		some = append(some, and(append(equal, on("_id", "$gt", prefix+place.ID))...))
	case side > 0:
		some = append(some, and(equal...))
	}
	if first := o.terms[0]; first.key {
		// Implied by the rest, it is where the index is read from.
		return and(on(first.field, "$gte", first.value(place.Values[first.at])), or(some...))
	}
	return or(some...)
}

// after is the condition for the values after another one, or nil if there are none. MongoDB's comparisons hold only
// between values of one type.
func (t term) after(value domain.Scalar) bson.D {
	if t.descending {
		if below := t.below(value); len(below) > 0 {
			return or(below...)
		}
		return nil
	}
	greater, text, truth := on(t.field, "$gt", t.value(value)), isText(t.field), on(t.field, "$type", "bool")
	if t.key {
		return greater
	}
	switch value.Kind {
	case domain.ScalarNull:
		return on(t.field, "$ne", nil)
	case domain.ScalarText:
		return or(greater, truth)
	case domain.ScalarBool:
		return greater
	default:
		return or(greater, text, truth)
	}
}
