package domain

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxOrderedCharacters is how long a text may be, in code points, to take part in an order: an index of every database
// can hold it whole.
const MaxOrderedCharacters = 250

// MaxOrderTerms is how many paths an order may have.
const MaxOrderTerms = 3

// Order is a part of an order of documents: by the value at a path.
type Order struct {
	Path       Path
	Descending bool
}

// SortKey is a document's place in an order. Documents are ordered by the values at the order's paths, one after the
// other, each as Scalar.Compare has it; a path with nothing there counts as null. Documents with a value that cannot be
// ordered at one of the paths (a list, an object, a text of more than MaxOrderedCharacters) stand behind all others,
// whether the order ascends or descends. What is alike so far is ordered by id as bytes, ascending.
type SortKey struct {
	Unordered bool     // behind all documents that are not
	Values    []Scalar // for each part of the order; nil with Unordered
	ID        string
}

// SortKeyOf returns the document's place. It is an error if the document's data is no JSON object.
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
		value, _ := part.Path.value(members)
		scalar, ok := scalarOf(value)
		if !ok || scalar.Kind == ScalarText && utf8.RuneCountInString(scalar.Text) > MaxOrderedCharacters {
			return SortKey{Unordered: true, ID: document.ID}, nil
		}
		key.Values = append(key.Values, scalar)
	}
	return key, nil
}

// Compare orders two places in the same order.
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
