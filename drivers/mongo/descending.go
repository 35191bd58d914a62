package mongo

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// The index of a declared path holds values and, for equal values, keys. Read backwards it gives descending values with
// descending keys, but ids must ascend also in descending orders. If the server sorted, each page would read all of the
// tenant's documents. So a page that descends by one declared path is assembled from index reads:
//
//   - the documents with the last page's value, by id;
//   - the next documents backwards in the index, except those with the value that they end with, because the smallest
//     ids of that value may be missing;
//   - the documents with that last value, by id.

// backward reports whether a part is assembled from index reads.
func (q prepared) backward(chosen int) bool {
	if chosen != 0 || len(q.ordering.terms) != 1 || !q.ordering.terms[0].descending {
		return false
	}
	return q.byKeys || drivers.Declares(q.indexes, q.ordering.terms[0].path)
}

// backwardCommand returns the command for the next documents backwards in the index that meet a condition.
func (q prepared) backwardCommand(condition bson.D, limit int) bson.D {
	sort := bson.D{{Key: q.ordering.terms[0].field, Value: -1}, {Key: "_id", Value: -1}}
	return q.find(q.place.documents(q.matching, q.ordering.part(0), condition), sort, limit)
}

// sameValueCommand returns the command for the documents of one value whose ids are after an id.
func (q prepared) sameValueCommand(value domain.Scalar, id string, limit int) bson.D {
	place := q.place
	place.prefix += id
	term := q.ordering.terms[0]
	condition := on(term.field, "$eq", term.value(value)) // null equals a missing value
	return q.find(place.documents(q.matching, q.ordering.part(0), condition), bson.D{{Key: "_id", Value: 1}}, limit)
}

// backwards collects a page.
type backwards struct {
	prepared
	driver *Driver
	page   []domain.Document
	bytes  int
	seen   map[string]bool // ids; a document that changes meanwhile is kept once
}

func (b *backwards) full() bool {
	return len(b.page) >= b.Limit || b.MaxBytes > 0 && b.bytes >= b.MaxBytes
}

// read runs a command with as many bytes as the page has room for. all reports that nothing was left out.
func (b *backwards) read(ctx context.Context, command func(limit int) bson.D) (found []domain.Document, all bool, err error) {
	limit, maxBytes := b.Limit-len(b.page), max(b.MaxBytes-b.bytes, 0)
	if found, err = b.driver.documents(ctx, command(limit), maxBytes); err != nil {
		return nil, false, err
	}
	size := 0
	for _, document := range found {
		size += len(document.Data)
	}
	return found, len(found) < limit && (maxBytes == 0 || size < maxBytes), nil
}

func (b *backwards) add(documents []domain.Document) {
	for _, document := range documents {
		if !b.seen[document.ID] {
			b.seen[document.ID] = true
			b.page = append(b.page, document)
			b.bytes += len(document.Data)
		}
	}
}

// addSameValue adds the documents of one value whose ids are after an id.
func (b *backwards) addSameValue(ctx context.Context, value domain.Scalar, id string) error {
	found, _, err := b.read(ctx, func(limit int) bson.D { return b.sameValueCommand(value, id, limit) })
	if err == nil {
		b.add(found)
	}
	return err
}

// descending returns the page of documents that can be ordered and have no list on the path.
func (d *Driver) descending(ctx context.Context, q prepared) ([]domain.Document, error) {
	b := &backwards{prepared: q, driver: d, seen: make(map[string]bool)}
	term := q.ordering.terms[0]
	stretches := []bson.D{{}}
	if q.After != nil {
		value := q.After.Values[term.at]
		afterID := q.After.ID
		_, side := q.ordering.settled(*q.After)
		if side > 0 {
			afterID = ""
		}
		if side >= 0 {
			if err := b.addSameValue(ctx, value, afterID); err != nil {
				return nil, err
			}
		}
		stretches = term.below(value)
	}
	for len(stretches) > 0 && !b.full() {
		found, all, err := b.read(ctx, func(limit int) bson.D { return q.backwardCommand(stretches[0], limit) })
		if err != nil {
			return nil, err
		}
		runs, err := runsOfValues(found, q.Order, term.at)
		if err != nil {
			return nil, err
		}
		if all {
			stretches = stretches[1:]
		}
		for i, run := range runs {
			if i < len(runs)-1 || all {
				slices.Reverse(run.documents)
				b.add(run.documents)
			} else if err := b.addSameValue(ctx, run.value, ""); err != nil {
				return nil, err
			} else {
				stretches = term.below(run.value)
			}
		}
	}
	return b.page, nil
}

// firstBelow returns the condition for the start of the backward read.
func (q prepared) firstBelow() bson.D {
	if q.After == nil {
		return bson.D{}
	}
	term := q.ordering.terms[0]
	if below := term.below(q.After.Values[term.at]); len(below) > 0 {
		return below[0]
	}
	return nothing()
}

// run is a sequence of consecutive documents with one value.
type run struct {
	value     domain.Scalar
	documents []domain.Document
}

func runsOfValues(documents []domain.Document, order []domain.Order, at int) (runs []run, err error) {
	for i := range documents {
		key, err := domain.SortKeyOf(documents[i], order)
		if err != nil {
			return nil, err
		}
		if key.Unordered {
			return nil, fmt.Errorf("document %q: the database returned it in order, but its sort key has no order", key.ID)
		}
		value := key.Values[at]
		if len(runs) == 0 || runs[len(runs)-1].value.Compare(value) != 0 {
			runs = append(runs, run{value: value})
		}
		last := &runs[len(runs)-1]
		last.documents = append(last.documents, documents[i])
	}
	return runs, nil
}

// below returns the conditions for all values below another, from the highest down. Each is a range of the index.
func (t term) below(value domain.Scalar) (ranges []bson.D) {
	less := on(t.field, "$lt", t.value(value)) // of the same kind
	if t.key {
		return []bson.D{less}
	}
	text, number, null := isText(t.field), on(t.field, "$type", "number"), on(t.field, "$eq", nil)
	switch value.Kind {
	case domain.ScalarNull:
		return nil
	case domain.ScalarText:
		return []bson.D{less, number, null}
	case domain.ScalarBool:
		return []bson.D{less, text, number, null}
	default:
		return []bson.D{less, null}
	}
}
