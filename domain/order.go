package domain

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxOrderedCharacters is the longest string, in code points, that takes part in an order. An index of every database
// can hold such a string whole.
const MaxOrderedCharacters = 250

// MaxOrderTerms limits the paths of an order.
const MaxOrderTerms = 3

// Order is one term of an order of documents: the value at a path.
type Order struct {
	Path       Path
	Descending bool
}

// SortKey is a document's place in an order. Documents are ordered by the values at the order's paths, one after the
// other, as by Scalar.Compare. A missing value counts as null. Some values cannot be ordered: a list, an object, or a
// string of more than MaxOrderedCharacters. Documents with such a value at one of the paths come last, in ascending and
// descending orders alike. Ties are ordered by id as bytes, ascending.
type SortKey struct {
	Unordered bool     // comes after all documents that can be ordered
	Values    []Scalar // for each part of the order; nil with Unordered
	ID        string
}

// SortKeyOf returns the document's place. It returns an error if the document's data is not a JSON object.
func SortKeyOf(document Document, order []Order) (SortKey, error) {
	key := SortKey{ID: document.ID}
	if len(order) == 0 {
		return key, nil
	}
	members, err := decodeObject(document.Data)
	if err != nil {
		return SortKey{}, fmt.Errorf("document %q: %w", document.ID, err)
	}
	for _, part := range order {
		value, _ := part.Path.Value(members)
		scalar, ok := ScalarOf(value)
		if !ok || scalar.Kind == ScalarText && utf8.RuneCountInString(scalar.Text) > MaxOrderedCharacters {
			return SortKey{Unordered: true, ID: document.ID}, nil
		}
		key.Values = append(key.Values, scalar)
	}
	return key, nil
}

// Compare compares two places in the same order.
func (k SortKey) Compare(other SortKey, order []Order) int {
	if k.Unordered != other.Unordered {
		return cmp.Compare(bit(k.Unordered), bit(other.Unordered))
	}
	for i := range k.Values {
		result := k.Values[i].Compare(other.Values[i])
		if order[i].Descending {
			result = -result
		}
		if result != 0 {
			return result
		}
	}
	return strings.Compare(k.ID, other.ID)
}
