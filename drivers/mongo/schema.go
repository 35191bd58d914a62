package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// tombstoneLife is how long the server keeps tombstones, in seconds: a day. Tombstones stop writes that arrive after
// other workers moved on, and the server gives up every write after saveTime.
const tombstoneLife = 24 * 60 * 60

const commonCollection = drivers.CommonTable

// collectionName returns the name of the build's collection.
func collectionName(build domain.Build) string { return avoidReserved(drivers.TableName(build)) }

// viewName returns the public name of a shared projection.
func viewName(projection string) string { return avoidReserved(drivers.PublicName(projection)) }

// avoidReserved puts a "~", which no projection's name contains, before a name that MongoDB reserves: one that begins
// with "system.".
func avoidReserved(name string) string {
	if strings.HasPrefix(name, "system.") {
		return "~" + name
	}
	return name
}

// prepareDatabase does what Open promises. running ends when the driver is closed.
func (d *Driver) prepareDatabase(ctx, running context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	hello, err := d.run(ctx, bson.D{{Key: "hello", Value: 1}})
	if err != nil {
		return err
	}
	message, _ := hello.Lookup("msg").StringValueOK()
	d.majority = hello.Lookup("setName").Type == bson.TypeString || message == "isdbgrid"
	if err := d.makeCollection(ctx, commonCollection); err != nil {
		return err
	}
	// Grouping by an expression makes FerretDB 1 report a missing $regexMatch even if there is no document.
	_, err = d.run(ctx, bson.D{
		{Key: "aggregate", Value: commonCollection},
		{Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$match", Value: on("_id", "$eq", markerKey)}},
			bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: patternExpression("id", "", false)}}}},
		}},
		{Key: "cursor", Value: bson.D{}},
	})
	if err != nil && !isUnsupported(err) {
		return err
	}
	d.expressions = err == nil
	switch {
	case d.wantsTransactions && d.majority:
		if d.transactions, err = d.hasTransactions(ctx); err != nil {
			return err
		}
	case d.wantsTransactions:
		d.log.WarnContext(ctx, "the documents' database is a standalone server, which has no transactions: a reader may see a part of a batch")
	}
	if d.shardBuilds && message != "isdbgrid" {
		d.shardBuilds = false
		d.log.WarnContext(ctx, "the documents' database is no sharded cluster: shardBuilds has no effect")
	}
	// In a new collection the index exists at once. In a large collection without one, it takes a while.
	d.background.Go(func() { d.indexCommon(running) })
	return nil
}

// index is an index to create.
type index struct {
	name    string
	key     bson.D
	options bson.D
}

func (i index) specification() bson.D {
	return append(bson.D{{Key: "name", Value: i.name}, {Key: "key", Value: i.key}}, i.options...)
}

// createIndexes creates indexes; existing ones stay as they are.
func (d *Driver) createIndexes(ctx context.Context, collection string, indexes ...index) error {
	var all bson.A
	for _, index := range indexes {
		all = append(all, index.specification())
	}
	command := bson.D{{Key: "createIndexes", Value: collection}, {Key: "indexes", Value: all}, writeConcern(ctx, false)}
	if d.majority {
		// Otherwise the server would wait for the vote of a member of the replica set that is down.
		command = append(command, bson.E{Key: "commitQuorum", Value: "majority"})
	}
	_, err := d.run(ctx, command)
	return err
}

// isUnsupported reports whether the error says that the server lacks the requested feature.
func isUnsupported(err error) bool {
	return hasCode(err, codeNotImplemented, codeCommandNotFound, codeCannotCreateIndex, codeInvalidIndexOption, codeNotSupportedOnIndex)
}

// makeCollection ensures that a collection exists, with the indexes that the driver itself needs. One is for
// checkpoints, which are read for a whole shared build; the other lets the server delete tombstones. Neither contains
// documents.
func (d *Driver) makeCollection(ctx context.Context, name string) error {
	sparse := bson.E{Key: "sparse", Value: true}
	err := d.createIndexes(ctx, name,
		index{"checkpoints", bson.D{{Key: "checkpoint", Value: 1}}, bson.D{sparse}},
		index{"tombstones", bson.D{{Key: "deletedAt", Value: 1}}, bson.D{sparse, {Key: "expireAfterSeconds", Value: tombstoneLife}}})
	if err == nil || !isUnsupported(err) {
		return err
	}
	d.noIndexing.Do(func() {
		d.log.WarnContext(ctx, "the documents' database has no sparse indexes or none that expire: tombstones of removed documents stay, and reading all checkpoints scans whole collections", "error", err)
	})
	_, err = d.run(ctx, bson.D{{Key: "create", Value: name}, writeConcern(ctx, false)})
	if hasCode(err, codeNamespaceExists) {
		return nil
	}
	return err
}

// The names of the index of everything in documents, with and without the tenant.
const (
	valuesIndex    = "values"
	allValuesIndex = "all values"
)

// indexCommon gives the common collection the indexes of keys, and an index of everything in documents, by tenant if
// the server can (MongoDB 7). If the latter is not wanted, indexCommon drops it.
func (d *Driver) indexCommon(ctx context.Context) {
	d.indexKeys(ctx)
	if d.noWildcardIndex {
		for _, name := range []string{valuesIndex, allValuesIndex} {
			_, err := d.run(ctx, bson.D{{Key: "dropIndexes", Value: commonCollection}, {Key: "index", Value: name}, writeConcern(ctx, false)})
			if err != nil && !hasCode(err, codeIndexNotFound) && !isUnsupported(err) && ctx.Err() == nil {
				d.log.WarnContext(ctx, "the index of everything in the documents of tenants' own projections cannot be dropped", "index", name, "error", err)
			}
		}
		return
	}
	const everything = data + ".$**"
	err := d.createIndexes(ctx, commonCollection, index{valuesIndex, bson.D{{Key: "tenant", Value: 1}, {Key: everything, Value: 1}}, nil})
	if isUnsupported(err) {
		err = d.createIndexes(ctx, commonCollection, index{allValuesIndex, bson.D{{Key: everything, Value: 1}}, nil})
	}
	if err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "the documents of tenants' own projections have no general index: queries read all of a tenant's documents", "error", err)
	}
}

// CreateTemporaryTable creates the collection of a shared projection's build: first its indexes, then the marker, which
// makes it valid.
func (d *Driver) CreateTemporaryTable(ctx context.Context, build domain.Build) error {
	if !build.Shared() {
		return nil
	}
	return drivers.BuildError("make the table of", build, d.makeTable(ctx, build))
}

func (d *Driver) makeTable(ctx context.Context, build domain.Build) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	name := collectionName(build)
	table, err := d.readMarker(ctx, name)
	switch {
	case errors.Is(err, drivers.ErrNoTable):
		table.layout = max(d.layout, 1)
	case err != nil:
		return err
	}
	if table.layout > 1 {
		if err := d.refuseEarlierReleases(ctx, name); err != nil {
			return err
		}
	}
	if err := d.makeCollection(ctx, name); err != nil {
		return err
	}
	if d.shardBuilds {
		if err := d.shard(ctx, name); err != nil {
			return err
		}
	}
	_, err = d.bulk(ctx, table.encodeMarker(ctx, build))
	return err
}

// shard distributes a collection over the cluster by its keys, so that a tenant's documents stay together. An already
// sharded collection stays as it is.
func (d *Driver) shard(ctx context.Context, collection string) error {
	err := d.client.Database("admin").RunCommand(ctx, bson.D{
		{Key: "shardCollection", Value: d.db.Name() + "." + collection},
		{Key: "key", Value: bson.D{{Key: "_id", Value: 1}}},
	}).Err()
	if err == nil || hasCode(err, codeAlreadyInitialized) {
		return nil
	}
	return fmt.Errorf("shard the collection (the login needs the role clusterManager, or enableSharding on the database): %w", d.contractError(ctx, err))
}

func mustMarshal(command bson.D) bson.Raw {
	raw, err := bson.Marshal(command)
	if err != nil {
		panic(err) // commands consist of strings, numbers and lists of them, which can always be marshalled
	}
	return raw
}

// maxIndexedSteps is the maximum length of an indexed path.
const maxIndexedSteps = 50

// IndexTable creates an index for each of build.Indexes, paths such as "customer.name": by tenant, value, and key.
// Pages in the order of the values are read from it. If there is a partition, it precedes the value and also has a
// separate index. If a path leads through objects, documents with lists in their place are indexed as well, because
// ordered queries must treat them separately. Those indexes are usually empty.
func (d *Driver) IndexTable(ctx context.Context, build domain.Build) error {
	if !build.Shared() {
		return nil
	}
	place, err := d.locate(ctx, build, domain.Everyone)
	if err == nil {
		err = d.checkTable(ctx, place)
	}
	if err == nil && place.partition != nil {
		err = d.createIndexes(ctx, place.collection, index{partition, bson.D{{Key: "tenant", Value: 1}, {Key: partition, Value: 1}, {Key: "_id", Value: 1}}, nil})
	}
	if err == nil && len(place.declared) > 0 {
		err = d.createIndexes(ctx, place.collection, index{notOrderable, bson.D{{Key: "tenant", Value: 1}, {Key: notOrderable, Value: 1}, {Key: "_id", Value: 1}},
			bson.D{{Key: "partialFilterExpression", Value: exists(notOrderable, true)}}})
		if isUnsupported(err) {
			err = nil
		}
	}
	for _, path := range build.Indexes {
		if err != nil {
			break
		}
		err = d.indexPath(ctx, place, drivers.DeclaredPath(path))
	}
	return drivers.BuildError("index the table of", build, err)
}

func (d *Driver) indexPath(ctx context.Context, place place, path domain.Path) error {
	collection := place.collection
	// MongoDB refuses documents in which a numeric step may mean a list position as well as a member.
	numbered := slices.ContainsFunc(path[1:], func(step string) bool { return strings.Trim(step, "0123456789") == "" })
	if numbered || len(path) > maxIndexedSteps {
		d.log.WarnContext(ctx, "MongoDB cannot have an index of this path; queries on it read all of a tenant's documents", "collection", collection, "path", path.String())
		return nil
	}
	name, keys := field(path), bson.D{{Key: "tenant", Value: 1}}
	if place.partition != nil {
		keys = append(keys, bson.E{Key: partition, Value: 1})
	}
	err := d.createIndexes(ctx, collection, index{name, append(keys, bson.E{Key: name, Value: 1}, bson.E{Key: "_id", Value: 1}), nil})
	if hasCode(err, codeInternal) {
		// FerretDB's error for a value that does not fit into an index. MongoDB has no such limit.
		d.log.WarnContext(ctx, "the documents' database cannot make an index; queries on its path read all of a tenant's documents", "index", name, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	if len(path) == 1 || placeAmong(place.declared, path) >= 0 {
		return nil
	}
	around := path[:len(path)-1]
	err = d.indexLists(ctx, collection, around, listOnTheWay(path))
	if len(around) > 1 && isUnsupported(err) {
		// Before MongoDB 6, an index's condition cannot contain $or. So each step gets a separate index, and the server
		// combines them.
		for i := range around {
			if err = d.indexLists(ctx, collection, around[:i+1], isList(field(around[:i+1]))); err != nil {
				break
			}
		}
	}
	if isUnsupported(err) {
		return nil
	}
	return err
}

// indexLists creates an index of the documents with a list on the way. It differs from other indexes only in its
// condition, which requires MongoDB 5.
func (d *Driver) indexLists(ctx context.Context, collection string, around domain.Path, condition bson.D) error {
	return d.createIndexes(ctx, collection, index{"lists in " + field(around), bson.D{{Key: "tenant", Value: 1}, {Key: "_id", Value: 1}},
		bson.D{{Key: "partialFilterExpression", Value: condition}}})
}

// DropTable drops a shared build's collection with the view that may still show it. For a tenant's own build it removes
// the rows.
func (d *Driver) DropTable(ctx context.Context, build domain.Build) error {
	var err error
	if build.Shared() {
		err = errors.Join(d.dropView(ctx, build), d.drop(ctx, collectionName(build)))
		d.tables.Delete(collectionName(build))
	} else {
		err = d.dropRows(ctx, placeOf(build, build.Owner, table{layout: 1}))
	}
	return drivers.BuildError("drop", build, err)
}

func (d *Driver) drop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	_, err := d.run(ctx, bson.D{{Key: "drop", Value: name}, writeConcern(ctx, true)})
	if hasCode(err, codeNamespaceNotFound) {
		return nil
	}
	return err
}
