package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// A shared build's collection keeps one of two layouts for its whole life. In the first, the tenant is a text, and the
// marker's key is "table". The second differs as follows:
//
//   - The tenant is a UUID in binary.
//   - A row lists the declared paths at which MongoDB would not order it as domain.SortKey does, by their positions in
//     the marker's list. Nearly all rows list none. So a query that orders by a declared path examines one field of
//     each row, and finds the exceptions by an index.
//   - The marker's key is "layout". Earlier releases report ErrNoTable if they find no rows with the tenant as text,
//     and a validator refuses the rows and the marker that they would write. Their Get and Checkpoint return what is
//     stored.
//
// Every process reads and writes both. Config.Layout selects the layout of new collections; it must stay 1 as long as
// processes of earlier releases run: docs/decisions/0067-mongodbs-second-layout-is-made-on-request.md. The common
// collection has the first layout.

const (
	markerKey       = "table"  // key of the document that marks a build's collection; documents' keys contain a slash
	layoutMarkerKey = "layout" // the same, from layout 2 on
	notOrderable    = "notOrderable"
)

// table is a build's collection as the marker describes it, not as the caller's build does.
type table struct {
	layout    int
	partition domain.Path   // nil: none
	declared  []domain.Path // the paths that notOrderable refers to; nil in layout 1
	keyed     []domain.Path // in the common collection: the paths at which rows have keys, see keys.go
}

// locate returns where a tenant's documents are. The error is ErrNoTable if a shared build's collection has no marker.
func (d *Driver) locate(ctx context.Context, build domain.Build, tenant domain.TenantID) (place, error) {
	if !build.Shared() {
		common := table{layout: 1}
		for _, path := range build.Indexes[:min(len(build.Indexes), maxKeys)] {
			common.keyed = append(common.keyed, drivers.DeclaredPath(path))
		}
		return placeOf(build, tenant, common), nil
	}
	if known, ok := d.tables.Load(collectionName(build)); ok {
		return placeOf(build, tenant, known.(table)), nil
	}
	found, err := d.readMarker(ctx, collectionName(build))
	if err != nil {
		return place{}, err
	}
	d.tables.Store(collectionName(build), found)
	return placeOf(build, tenant, found), nil
}

// checkTable returns ErrNoTable for a shared build whose collection does not exist or was not created by
// CreateTemporaryTable. Methods call it if they found nothing.
func (d *Driver) checkTable(ctx context.Context, place place) error {
	if !place.shared {
		return nil
	}
	_, err := d.readMarker(ctx, place.collection)
	if errors.Is(err, drivers.ErrNoTable) {
		d.tables.Delete(place.collection)
	}
	return err
}

// readMarker reads a collection's marker.
func (d *Driver) readMarker(ctx context.Context, collection string) (found table, err error) {
	markers := 0
	err = d.find(ctx, bson.D{
		{Key: "find", Value: collection},
		{Key: "filter", Value: on("_id", "$in", bson.A{markerKey, layoutMarkerKey})},
	}, func() { markers = 0 }, func(row bson.Raw) error {
		var marker struct {
			Layout      int
			PartitionBy string `bson:"partitionBy"`
			Indexes     []string
		}
		if err := bson.Unmarshal(row, &marker); err != nil {
			return fmt.Errorf("the marker of the collection %s: %w", collection, err)
		}
		markers++
		found = table{layout: max(marker.Layout, 1)}
		if marker.PartitionBy != "" {
			found.partition = drivers.DeclaredPath(marker.PartitionBy)
		}
		for _, path := range marker.Indexes {
			found.declared = append(found.declared, drivers.DeclaredPath(path))
		}
		return nil
	})
	switch {
	case err != nil:
		return table{}, err
	case markers == 0:
		return table{}, drivers.ErrNoTable
	case markers > 1:
		return table{}, fmt.Errorf("the collection %s has the markers of two layouts; rebuild the projection", collection)
	case found.layout > 2:
		return table{}, fmt.Errorf("the collection %s has layout %d, which a newer release has made; this one knows 1 and 2", collection, found.layout)
	}
	return found, nil
}

// encodeMarker returns the command that inserts the marker if there is none.
func (t table) encodeMarker(ctx context.Context, build domain.Build) bson.Raw {
	key := markerKey
	fields := bson.D{{Key: "projection", Value: build.Name}, {Key: "build", Value: build.Number}, {Key: "partitionBy", Value: build.PartitionBy}}
	if t.layout > 1 {
		key = layoutMarkerKey
		fields = append(fields, bson.E{Key: "layout", Value: t.layout}, bson.E{Key: "tenant", Value: t.tenantValue(domain.Everyone)}, bson.E{Key: "indexes", Value: build.Indexes})
	}
	return mustMarshal(bson.D{
		{Key: "update", Value: collectionName(build)},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: key}}},
			{Key: "u", Value: bson.D{{Key: "$setOnInsert", Value: fields}}},
			{Key: "upsert", Value: true},
		}}},
		writeConcern(ctx, false),
	})
}

// refuseEarlierReleases creates a collection of layout 2 that refuses the writes of earlier releases.
func (d *Driver) refuseEarlierReleases(ctx context.Context, collection string) error {
	validator := bson.E{Key: "validator", Value: on("tenant", "$type", "binData")}
	_, err := d.run(ctx, bson.D{{Key: "create", Value: collection}, validator, writeConcern(ctx, false)})
	if hasCode(err, codeNamespaceExists) {
		_, err = d.run(ctx, bson.D{{Key: "collMod", Value: collection}, validator, writeConcern(ctx, false)})
	}
	if isUnsupported(err) {
		d.log.WarnContext(ctx, "the documents' database has no validators: it does not refuse what processes of earlier releases write", "collection", collection)
		return nil
	}
	return err
}

// tenantValue returns the tenant as rows hold it.
func (t table) tenantValue(tenant domain.TenantID) bson.RawValue {
	var value any = tenant.String()
	if t.layout > 1 {
		value = bson.Binary{Subtype: bson.TypeBinaryUUID, Data: tenant[:]}
	}
	kind, raw, err := bson.MarshalValue(value)
	if err != nil {
		panic(err) // strings and bytes can always be marshalled
	}
	return bson.RawValue{Type: kind, Value: raw}
}

// tenantOf reverses tenantValue.
func tenantOf(value bson.RawValue) (domain.TenantID, error) {
	if kind, raw, ok := value.BinaryOK(); ok && kind == bson.TypeBinaryUUID && len(raw) == len(domain.TenantID{}) {
		return domain.TenantID(raw), nil
	}
	text, _ := value.StringValueOK()
	return domain.ParseTenantID(text)
}

// appendNotOrderable appends the field if the document needs it.
func appendNotOrderable(to []byte, document bson.Raw, declared []domain.Path) []byte {
	start, elements := 0, 0
	for i, path := range declared {
		if orderableAt(document, path) {
			continue
		}
		if elements == 0 {
			to = appendName(to, kindList, notOrderable)
			start = len(to)
			to = openDocument(to)
		}
		to = appendInt(to, strconv.Itoa(elements), int64(i))
		elements++
	}
	if elements > 0 {
		to = closeDocument(to, start)
	}
	return to
}

// orderableAt reports whether MongoDB orders a document by the path as domain.SortKey does: there is no list on the
// way, and no list, object or long text at its end.
func orderableAt(document bson.Raw, path domain.Path) bool {
	for i, step := range path {
		value, err := document.LookupErr(escapeName(step))
		if err != nil {
			return true
		}
		inner, isObject := value.DocumentOK()
		switch last := i == len(path)-1; {
		case value.Type == bson.TypeArray, isObject && last:
			return false
		case last:
			text, _ := value.StringValueOK()
			return utf8.RuneCountInString(text) <= domain.MaxOrderedCharacters
		case !isObject:
			return true
		}
		document = inner
	}
	return true
}

// placeAmong returns a path's index among the declared ones, or -1.
func placeAmong(declared []domain.Path, path domain.Path) int {
	return slices.IndexFunc(declared, func(one domain.Path) bool { return slices.Equal(one, path) })
}
