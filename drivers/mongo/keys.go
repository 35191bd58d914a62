package mongo

import (
	"context"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Builds of tenants' own projections share a collection, so a path that they declare cannot have an index there. Each
// row has the sort key of its document at each declared path instead, in the fields "key1", "key2" ... in the order in
// which the paths are declared. The collection has one index for each of these fields:
//
//	{tenant: 1, build: 1, key1: 1, _id: 1}
//
// Keys are written with their document, so they always agree. Earlier releases write rows without keys, and so does
// this one if a row would be too large. All these rows have null in the index of key1. A page by keys looks for such a
// row in the build. If there is one, the page is read from the documents, as in an order by a path that is not
// declared.

// maxKeys is the maximum number of paths that a definition declares.
const maxKeys = 16

// maxKeysBytes is more than the keys of a row take: each has at most 1,001 bytes, a name, and a length.
const maxKeysBytes = maxKeys * 1024

// keyRemoved is the first key of a removed document. It precedes all sort keys.
const keyRemoved = ""

// keyField returns the field for the key at a declared path, counted from 0.
func keyField(path int) string { return "key" + strconv.Itoa(path+1) }

// keyIndexes returns the indexes of the keys. Only the first contains rows without keys.
func keyIndexes() []index {
	indexes := make([]index, maxKeys)
	for i := range indexes {
		name := keyField(i)
		indexes[i] = index{name, bson.D{{Key: "tenant", Value: 1}, {Key: "build", Value: 1}, {Key: name, Value: 1}, {Key: "_id", Value: 1}}, nil}
		if i > 0 {
			indexes[i].options = bson.D{{Key: "partialFilterExpression", Value: exists(name, true)}}
		}
	}
	return indexes
}

// indexKeys creates the indexes of keys in the common collection. Keys are used when theirs is ready: without it, a
// page by keys would read all rows of the build several times.
func (d *Driver) indexKeys(ctx context.Context) {
	indexes := keyIndexes()
	err := d.createIndexes(ctx, commonCollection, indexes[:1]...)
	if err == nil {
		d.firstKeyIndexed.Store(true)
		err = d.createIndexes(ctx, commonCollection, indexes[1:]...)
	}
	switch {
	case err == nil:
		d.allKeysIndexed.Store(true)
	case !isUnsupported(err) && ctx.Err() == nil:
		d.log.WarnContext(ctx, "the keys of tenants' own projections have no index: ordered queries read all of a tenant's documents", "error", err)
	}
}

// hasKeyIndex reports whether the index of the keys at a declared path is ready, and that of key1, which has the rows
// without keys.
func (d *Driver) hasKeyIndex(path int) bool {
	return d.allKeysIndexed.Load() || path == 0 && d.firstKeyIndexed.Load()
}

// appendKeys appends the keys of a document.
func appendKeys(to []byte, document bson.Raw, paths []domain.Path) []byte {
	if len(document) > MaxDataBytes-maxKeysBytes {
		return to
	}
	for i, path := range paths {
		key := drivers.KeyUnordered
		if scalar, ok := scalarOf(valueAt(document, path)); ok {
			key = drivers.SortKey(scalar)
		}
		to = appendText(to, keyField(i), key)
	}
	return to
}

// prepareKeys returns the query as one that reads keys. ok is false if they cannot serve it.
func (d *Driver) prepareKeys(ctx context.Context, q prepared) (keyed prepared, ok bool, err error) {
	if len(q.Order) != 1 {
		return prepared{}, false, nil
	}
	path := placeAmong(q.place.keyed, q.Order[0].Path)
	if path < 0 || !d.hasKeyIndex(path) {
		return prepared{}, false, nil
	}
	keyed = q
	keyed.place.byBuild = true
	keyed.byKeys = true
	keyed.ordering = ordering{terms: []term{{field: keyField(path), path: q.Order[0].Path, descending: q.Order[0].Descending, declared: -1, key: true}}}
	missing := q.find(keyed.place.documents(on(keyField(0), "$eq", nil)), bson.D{{Key: "_id", Value: 1}}, 1)
	err = d.find(ctx, append(missing, bson.E{Key: "projection", Value: bson.D{{Key: "_id", Value: 1}}}), func() { ok = true }, func(bson.Raw) error {
		ok = false
		return nil
	})
	return keyed, ok && err == nil, err
}

// keyedPage returns a page, by keys if they can serve it.
func (d *Driver) keyedPage(ctx context.Context, q prepared) ([]domain.Document, error) {
	keyed, ok, err := d.prepareKeys(ctx, q)
	if err != nil {
		return nil, err
	}
	if ok {
		page, err := d.page(ctx, keyed)
		if err != nil {
			return nil, err
		}
		// A process of an earlier release may have replaced a row meanwhile.
		if _, ok, err := d.prepareKeys(ctx, q); ok || err != nil {
			return page, err
		}
	}
	return d.page(ctx, q)
}
