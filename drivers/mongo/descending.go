package mongo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
)

// The index of a declared path has values and, where they are alike, keys. Read backwards it gives descending values with
// descending keys; but ids ascend in descending orders, too. Sorted by the server, each page would read all of the tenant's
// documents. So a page that descends by one declared path is put together from what the index gives as it is:
//
//   - what has the last page's value, by id;
//   - of the next documents going back in the index, all but those of the value that they end with, whose ids may not be the
//     least of it;
//   - what has that last value, by id.

// backward reports whether a part is read in this way.
func (q prepared) backward(chosen int) bool {
	if chosen != 0 || len(q.ordering.terms) != 1 || !q.ordering.terms[0].descending {
		return false
	}
	path := q.Order[q.ordering.terms[0].at].Path
	return slices.ContainsFunc(q.indexes, func(declared string) bool { return slices.Equal(strings.Split(declared, "."), path) })
}

// goBack is the command for the next documents going back in the index, of those that meet a condition.
func (q prepared) goBack(condition bson.D, limit int) bson.D {
	sort := bson.D{{Key: q.ordering.terms[0].field, Value: -1}, {Key: "_id", Value: -1}}
	return q.find(q.place.documents(q.matching, q.ordering.part(0), condition), sort, limit)
}

// alike is the command for those of one value, behind an id.
func (q prepared) alike(value domain.Scalar, id string, limit int) bson.D {
	place := q.place
	place.prefix += id
	condition := on(q.ordering.terms[0].field, "$eq", native(value)) // null is alike to what is missing
	return q.find(place.documents(q.matching, q.ordering.part(0), condition), bson.D{{Key: "_id", Value: 1}}, limit)
}

// backwards collects a page.
type backwards struct {
	prepared
	driver *Driver
	page   []domain.Document
	bytes  int
	seen   map[string]bool // ids: a document that is changed meanwhile is kept once
}

func (b *backwards) full() bool {
	return len(b.page) >= b.Limit || b.MaxBytes > 0 && b.bytes >= b.MaxBytes
}

// read runs a command with as many bytes as the page has room for; all says that it gave all that there is.
func (b *backwards) read(ctx context.Context, command func(limit int) bson.D) (found []domain.Document, all bool, err error) {
	limit, most := b.Limit-len(b.page), max(b.MaxBytes-b.bytes, 0)
	if found, err = b.driver.documents(ctx, command(limit), most); err != nil {
		return nil, false, err
	}
	size := 0
	for _, document := range found {
		size += len(document.Data)
	}
	return found, len(found) < limit && (most == 0 || size < most), nil
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

// addAlike adds those of one value, behind an id.
func (b *backwards) addAlike(ctx context.Context, value domain.Scalar, id string) error {
	found, _, err := b.read(ctx, func(limit int) bson.D { return b.alike(value, id, limit) })
	if err == nil {
		b.add(found)
	}
	return err
}

// descending is the page of those that can be ordered and have no list on the way.
func (d *Driver) descending(ctx context.Context, q prepared) ([]domain.Document, error) {
	b := &backwards{prepared: q, driver: d, seen: make(map[string]bool)}
	term := q.ordering.terms[0]
	stretches := []bson.D{{}}
	if q.After != nil {
		value := q.After.Values[term.at]
		behind := q.After.ID
		_, side := q.ordering.settled(*q.After)
		if side > 0 {
			behind = ""
		}
		if side >= 0 {
			if err := b.addAlike(ctx, value, behind); err != nil {
				return nil, err
			}
		}
		stretches = term.below(value)
	}
	for len(stretches) > 0 && !b.full() {
		found, all, err := b.read(ctx, func(limit int) bson.D { return q.goBack(stretches[0], limit) })
		if err != nil {
			return nil, err
		}
		runs, err := runsAlike(found, q.Order, term.at)
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
			} else if err := b.addAlike(ctx, run.value, ""); err != nil {
				return nil, err
			} else {
				stretches = term.below(run.value)
			}
		}
	}
	return b.page, nil
}

// firstBelow is the condition for where going back begins.
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

// run is what comes one after the other with one value.
type run struct {
	value     domain.Scalar
	documents []domain.Document
}

func runsAlike(documents []domain.Document, order []domain.Order, at int) (runs []run, err error) {
	for i := range documents {
		key, err := domain.SortKeyOf(documents[i], order)
		if err != nil {
			return nil, err
		}
		if key.Unordered {
			return nil, fmt.Errorf("the database has ordered the document %q, which cannot be ordered", key.ID)
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

// below are the conditions for all values below another one, from the highest down, each a range of the index.
func (t term) below(value domain.Scalar) (ranges []bson.D) {
	further := on(t.field, "$lt", native(value)) // of the same kind
	text, number, null := isText(t.field), on(t.field, "$type", "number"), on(t.field, "$eq", nil)
	switch value.Kind {
	case domain.ScalarNull:
		return nil
	case domain.ScalarText:
		return []bson.D{further, number, null}
	case domain.ScalarBool:
		return []bson.D{further, text, number, null}
	default:
		return []bson.D{further, null}
	}
}
