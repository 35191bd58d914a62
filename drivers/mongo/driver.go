// Package mongo is the driver that stores documents in MongoDB, version 5 or later: a standalone server, a replica set,
// or a sharded cluster. Start with Config, Open and Driver. The driver needs no transactions, and uses them on request:
// see transaction.go.
//
// # What a team must know
//
// The URL's path is the database, by default "manifold_documents". The login needs the role readWrite on it, and
// dbAdmin for the views (collMod); it needs nothing outside of it. The driver reads everything from the primary with
// the read concern "majority". It writes with the write concern {w: "majority"} and a wtimeout, whatever the URL says.
// A standalone server is its own majority. Every command carries maxTimeMS: a save may take 30 seconds in total, a
// query 10.
//
// Each build of a shared projection has its own collection, such as "order-summary.12". The builds of tenants' own
// projections share the collection "documents". A document in them looks like this:
//
//	{
//		_id:      "7f0c.../12/order-1",  // tenant, build and id: MongoDB compares texts by their bytes
//		tenant:   "7f0c...",             // a UUID as text; in layout 2, in binary
//		build:    Long("12"),
//		id:       "order-1",
//		version:  Long("4711"),          // the position of the last event applied to it
//		document: {...},                 // the data
//		partition: "\"c-17\""            // with partitionBy: the value there as JSON, or "#" and a hash of a long one
//		notOrderable: [Long("0")]        // in layout 2, see layout.go: declared paths at which it cannot be ordered
//		key1: "3placed"                  // in "documents", see keys.go: the sort key at the first declared path
//	}
//
// The collections also hold rows without the field "document". A tenant's checkpoint has an empty id, and the position
// as its version. A tombstone marks a removed document and has the time in deletedAt. In a build's own collection, the
// marker document "table" (in layout 2: "layout") records that the driver created the collection. The view
// "order-summary" shows only the documents of the live build. Filter it by tenant first, as in {tenant: "7f0c...",
// "document.status": "open"}, or in layout 2 {tenantId: UUID("7f0c..."), ...}.
//
// A cluster is sharded by the key: sh.shardCollection("manifold_documents.documents", {_id: 1}), and a build's
// collection likewise. A tenant's documents are then adjacent, and every statement of this package goes only to the
// shards that hold them.
//
// JSON numbers are stored as 64-bit integers if they are whole and fit, otherwise as doubles. MongoDB cannot query a
// name that contains a dot, begins with a dollar sign, or is empty. Such characters, and % itself, are written as % and
// two hexadecimal digits, and the empty name as "%": {"a.b": {"$c": {"": 1}}} becomes {"a%2Eb": {"%24c": {"%": 1}}}.
// White space at either end of a name is written in the same way. Any other name is unchanged. If two members have the
// same name, the last is kept. The order of members has no meaning.
//
// MongoDB sets three limits. A document's data may take at most 16 MiB in BSON, less 2 KiB for the rest of the row (a
// list of small numbers takes several times as many bytes as in JSON). The data may nest objects and lists at most 99
// levels deep. A batch that exceeds either limit is refused before anything is written. Finally, a pattern may take at
// most 200,000 steps on a text: a query whose pattern needs more on some text is too costly (domain.CodeTooCostly).
//
// Each declared index of a projection becomes {tenant: 1, "document.path": 1, _id: 1}, or with partitionBy {tenant: 1,
// partition: 1, "document.path": 1, _id: 1}. It serves filters, and pages in the order of that one path, ascending and
// descending. The server sorts the tenant's documents for orders by other paths or by several. It also does so for
// orders by a path at which any document of the collection has a list, because MongoDB cannot sort by an index of
// lists. The common collection has a wildcard index on everything in documents, from MongoDB 7 on by tenant, unless
// Config.NoWildcardIndex is set. Its indexes of keys serve pages in the order of one path that a tenant's own
// projection declares.
//
// # Why no transaction is needed
//
// Save has three steps. It reads the checkpoint and gives up if the batch does not start there. It writes the
// documents, each only over an older version of itself: the filter asks for the key and an older version, and inserts
// if it finds none. A duplicate key means that a document exists, which is compared before it counts as newer. Finally
// Save moves the checkpoint by a compare-and-set on its old value. So:
//
//   - An interrupted batch leaves some documents ahead of the checkpoint. A reader may see them. The next worker that
//     saves from that checkpoint has loaded them with their versions, and applies to each only the events after its
//     version. All workers fold the same log in the same way, so the result is what the batch would have given. A
//     removed document is loaded as its tombstone, for the same reason.
//   - Two workers at one checkpoint may both write documents, in any order of their commands: the higher version of
//     each document stays. One moves the checkpoint. What the other wrote beyond it is the first case. If both insert,
//     the slower upsert fails on the key, whichever version is higher; it is sent again unless the stored version is at
//     least as new.
//   - A late command may arrive after other workers have moved on. For each of its documents it finds a version that is
//     as new or newer, or a tombstone, and changes nothing: those workers folded the same events, so every document of
//     the late batch has been written or removed at its version or above. That is why a removal leaves a tombstone even
//     if there was no document.
//   - The server deletes tombstones when they are a day old by its own clock. The server itself gives up a save's
//     commands after 30 seconds, so by then no command is left that a tombstone would have to stop.
//   - The writes of one batch need not go to one server. A majority has the documents before the checkpoint moves, so
//     no change of primaries can roll documents back and keep the checkpoint.
//
// DropTenant removes the checkpoint first: a Save that continues from it is stale. A command already in flight can
// still restore documents, so the code that erases a tenant first stops its log and waits for longer than a save may
// take. DropTable drops the collection, and a late command could create it again, because MongoDB creates collections
// implicitly. Such a collection lacks the marker, which only CreateTemporaryTable writes. A method that finds nothing
// in a collection looks for the marker and returns ErrNoTable if it is missing. A build's number is never reused, so
// the collection's content is never mistaken for documents of a build. It may be dropped manually.
package mongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	mongodb "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Config says how to reach the database.
type Config struct {
	URL      string // mongodb:// or mongodb+srv://; its path is the database, else "manifold_documents"
	MaxConns int    // per server; 0: 8
	Log      *slog.Logger

	Transactions    bool // a save is a transaction if the deployment supports it; see transaction.go for the cost
	NoWildcardIndex bool // the common collection has no index of everything in documents; an existing one is dropped
	ShardBuilds     bool // a build's collection is sharded when it is created; the deployment must be a sharded cluster
	Layout          int  // of the collections that CreateTemporaryTable creates, 1 or 2; see layout.go. 0: 1
}

// Driver stores documents in one MongoDB database. It is a drivers.Driver.
type Driver struct {
	client   *mongodb.Client
	db       *mongodb.Database
	log      *slog.Logger
	majority bool // the server belongs to a replica set or a sharded cluster

	expressions  bool // the server has $regexMatch, which FerretDB 1 lacks
	transactions bool // the deployment supports transactions, and snapshots outside of them

	wantsTransactions, noWildcardIndex, shardBuilds bool

	firstKeyIndexed, allKeysIndexed atomic.Bool // the index of key1 is ready; all indexes of keys are, see indexKeys

	queryTime time.Duration // time limit of a read; tests shorten it

	layout int      // of the collections that are created
	tables sync.Map // collection -> table; see at

	stop       context.CancelFunc // ends what Open has started in the background
	background sync.WaitGroup

	noViews    sync.Once // guards a warning
	noIndexing sync.Once // guards a warning
}

var _ drivers.Driver = (*Driver)(nil)

const (
	defaultDatabase = "manifold_documents"
	openTime        = 10 * time.Second
	selectionTime   = 5 * time.Second // to find a writable server
)

// Open connects and ensures that the common collection has its indexes. The caller must close the driver.
func Open(ctx context.Context, config Config) (*Driver, error) {
	address, err := connstring.ParseAndValidate(config.URL)
	if err != nil {
		return nil, fmt.Errorf("the documents' database URL: %w", err)
	}
	name := cmp.Or(address.Database, defaultDatabase)
	settings := options.Client().SetServerSelectionTimeout(selectionTime).SetMaxPoolSize(8).SetAppName("manifold-documents")
	settings.ApplyURI(config.URL)
	if config.MaxConns > 0 {
		settings.SetMaxPoolSize(uint64(config.MaxConns))
	}
	settings.SetReadPreference(readpref.Primary())
	client, err := mongodb.Connect(settings)
	if err != nil {
		return nil, fmt.Errorf("the documents' database: %w", err)
	}
	d := &Driver{client: client, db: client.Database(name), log: config.Log, queryTime: queryTime,
		wantsTransactions: config.Transactions, noWildcardIndex: config.NoWildcardIndex, shardBuilds: config.ShardBuilds, layout: config.Layout}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	if err := d.prepareDatabase(ctx, running); err != nil {
		d.Close()
		return nil, fmt.Errorf("prepare the documents' database: %w", err)
	}
	return d, nil
}

// Close closes all connections.
func (d *Driver) Close() {
	d.stop()
	d.background.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	if err := d.client.Disconnect(ctx); err != nil {
		d.log.Warn("the connections to the documents' database were not closed in order", "error", err)
	}
}

// Ping reports whether the database answers.
func (d *Driver) Ping(ctx context.Context) error {
	if err := d.client.Ping(ctx, readpref.Primary()); err != nil {
		return fmt.Errorf("ping the documents' database: %w", d.contractError(ctx, err))
	}
	return nil
}

// saversAtOnce is how many parts of one batch are sent at the same time.
const saversAtOnce = 2

// Save stores a batch. If saves are transactions, a batch of a usual size is one. Otherwise Save first compares the
// checkpoint, so that a batch that is stale from the beginning leaves nothing. It then writes the documents and moves
// the checkpoint if it is still the same. The package comment explains why that is enough.
func (d *Driver) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if err := errors.Join(drivers.CheckTenant(build, tenant), batch.Check()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	place, err := d.locate(limited, build, tenant)
	if err != nil {
		return drivers.BuildError("save to", build, timeoutError(ctx, limited, err))
	}
	parts, err := encodeBatch(place, batch) // everything, before anything is written
	if err != nil {
		return err
	}
	err = d.save(limited, place, batch, parts)
	if errors.Is(err, drivers.ErrStale) {
		return drivers.ErrStale
	}
	return drivers.BuildError("save to", build, timeoutError(ctx, limited, err))
}

func (d *Driver) save(ctx context.Context, place place, batch drivers.Batch, parts []part) error {
	at, err := d.checkpoint(ctx, place)
	if err != nil {
		return err
	}
	if at != batch.From {
		return drivers.ErrStale
	}
	if d.transactions && len(parts) <= partsTogether && batch.To > 0 {
		if err := d.saveTogether(ctx, place, batch, parts); !hasCode(err, codeDuplicateKey) {
			return err
		}
		// A document that is as new exists, left by a save in pieces: a transaction cannot write past it.
	}
	group, grouped := errgroup.WithContext(ctx)
	group.SetLimit(saversAtOnce)
	for _, part := range parts {
		group.Go(func() error { return d.write(grouped, place, part, batch.From == 0, batch.IsRepair()) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if batch.To == 0 {
		if at, err = d.checkpoint(ctx, place); err == nil && at != 0 {
			err = drivers.ErrStale
		}
		return err
	}
	return d.moveCheckpoint(ctx, place, batch.From, batch.To)
}

// maxResends limits how often the refused updates of a part are sent again. A refused update meets an existing
// document, so that the second attempt overwrites it or is late. More attempts are needed only if the document is
// removed in between.
const maxResends = 5

// write writes one part of a batch: each document over an older version of itself, or as a new one. That is an update
// that asks for an older version, and inserts if it finds none. fresh says that the documents probably do not exist.
// Then write inserts first, which costs half as much, and updates only those that exist. onDisk: the write must survive
// a crash.
//
// A duplicate key does not prove that the stored document is as new. Between the two steps of an upsert, another saver
// may have inserted an older version, and the server does not look again. So refused updates are compared with the
// stored versions, and sent again until each is stored or late.
func (d *Driver) write(ctx context.Context, place place, part part, fresh, onDisk bool) error {
	rest := part.writes
	if fresh {
		var inserts []write
		inserts, rest = part.inserts()
		if len(inserts) > 0 {
			refused, err := d.bulk(ctx, encodeInserts(place, part, inserts, writeConcern(ctx, onDisk)))
			if err != nil {
				return err
			}
			for _, index := range refused {
				rest = append(rest, inserts[index])
			}
		}
	}
	for attempt := 0; len(rest) > 0; attempt++ {
		if attempt > maxResends {
			return domain.Errorf(domain.CodeUnavailable, "document "+strings.TrimPrefix(rest[0].key, place.prefix),
				"the documents' database refused it %d times as a duplicate of an older version; try again later", attempt)
		}
		refused, err := d.bulk(ctx, encodeUpdates(place, part, rest, writeConcern(ctx, onDisk)))
		if err != nil {
			return err
		}
		retries := make([]write, len(refused))
		for i, index := range refused {
			retries[i] = rest[index]
		}
		if rest, err = d.stillNeeded(ctx, place, retries); err != nil {
			return err
		}
	}
	return nil
}

// stillNeeded returns the writes for which no document of their version or a newer one is stored. It reads what a
// majority has, because the caller reports the stored versions as durable.
func (d *Driver) stillNeeded(ctx context.Context, place place, refused []write) ([]write, error) {
	if len(refused) == 0 {
		return nil, nil
	}
	keys := make([]string, len(refused))
	for i, write := range refused {
		keys[i] = write.key
	}
	stored := make(map[string]int64, len(keys))
	err := d.find(ctx, bson.D{
		{Key: "find", Value: place.collection},
		{Key: "filter", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: keys}}}}},
		{Key: "projection", Value: bson.D{{Key: "version", Value: 1}}},
	}, func() { clear(stored) }, func(row bson.Raw) error {
		key, isKey := row.Lookup("_id").StringValueOK()
		version, isVersion := row.Lookup("version").AsInt64OK()
		if !isKey || !isVersion {
			return fmt.Errorf("the document %s has no version", row.Lookup("_id"))
		}
		stored[strings.Clone(key)] = version
		return nil
	})
	return slices.DeleteFunc(refused, func(write write) bool {
		version, isStored := stored[write.key]
		return isStored && version >= write.version
	}), err
}

// bulk sends inserts or updates, and returns which of them met an existing key.
func (d *Driver) bulk(ctx context.Context, command bson.Raw) (duplicates []int, err error) {
	_, err = d.run(ctx, command)
	failed, ok := errors.AsType[mongodb.WriteException](err)
	if !ok || failed.WriteConcernError != nil {
		return nil, err
	}
	for _, one := range failed.WriteErrors {
		if one.Code != codeDuplicateKey {
			return nil, err
		}
		duplicates = append(duplicates, one.Index)
	}
	return duplicates, nil
}

// moveCheckpoint is the compare-and-set that decides between savers that start from one checkpoint.
func (d *Driver) moveCheckpoint(ctx context.Context, place place, from, to int64) error {
	if from == 0 {
		duplicates, err := d.bulk(ctx, encodeCheckpoint(place, to, writeConcern(ctx, false)))
		if err == nil && len(duplicates) > 0 {
			return drivers.ErrStale
		}
		return err
	}
	answer, err := d.run(ctx, append(checkpointMove(place, from, to), writeConcern(ctx, false)))
	if err != nil {
		return err
	}
	return checkMoved(answer)
}

// checkMoved returns ErrStale if a checkpointMove found another checkpoint.
func checkMoved(answer bson.Raw) error {
	// n counts the matched rows: a repair batch modifies none.
	if n, ok := answer.Lookup("n").AsInt64OK(); !ok || n == 0 {
		return drivers.ErrStale
	}
	return nil
}

// Checkpoint returns the stored checkpoint, or 0 if there is none.
func (d *Driver) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error) {
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return 0, err
	}
	limited, cancel := context.WithTimeout(ctx, d.queryTime)
	defer cancel()
	position := int64(0)
	place, err := d.locate(limited, build, tenant)
	if err == nil {
		position, err = d.checkpoint(limited, place)
	}
	return position, drivers.BuildError("read the checkpoint of", build, timeoutError(ctx, limited, err))
}

func (d *Driver) checkpoint(ctx context.Context, place place) (position int64, err error) {
	found := false
	err = d.find(ctx, bson.D{
		{Key: "find", Value: place.collection},
		{Key: "filter", Value: bson.D{{Key: "_id", Value: place.prefix}}},
		{Key: "projection", Value: bson.D{{Key: "version", Value: 1}}},
		{Key: "limit", Value: 1}, {Key: "singleBatch", Value: true},
	}, func() { found = false }, func(row bson.Raw) error {
		found = true
		var ok bool
		if position, ok = row.Lookup("version").AsInt64OK(); !ok {
			return fmt.Errorf("the checkpoint %s has no number", place.prefix)
		}
		return nil
	})
	if err != nil || found {
		return position, err
	}
	return 0, d.checkTable(ctx, place)
}

// Checkpoints yields every tenant's stored checkpoint.
func (d *Driver) Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[drivers.Checkpoint, error] {
	return drivers.AllCheckpoints(ctx, d, build, func() ([]drivers.Checkpoint, error) { return d.checkpoints(ctx, build) })
}

func (d *Driver) checkpoints(ctx context.Context, build domain.Build) (all []drivers.Checkpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	place, err := d.locate(ctx, build, domain.Everyone)
	if err != nil {
		return nil, err
	}
	err = d.everyCheckpoint(ctx, place.collection, func() { all = nil }, func(checkpoint drivers.OwnCheckpoint) {
		all = append(all, drivers.Checkpoint{Tenant: checkpoint.Tenant, Position: checkpoint.Position})
	})
	if err != nil || len(all) > 0 {
		return all, err
	}
	return nil, d.checkTable(ctx, place)
}

// OwnCheckpoints yields the stored checkpoint of every build of tenants' own projections.
func (d *Driver) OwnCheckpoints(ctx context.Context) iter.Seq2[drivers.OwnCheckpoint, error] {
	return drivers.AllOwnCheckpoints(func() (all []drivers.OwnCheckpoint, err error) {
		limited, cancel := context.WithTimeout(ctx, saveTime)
		defer cancel()
		err = d.everyCheckpoint(limited, commonCollection, func() { all = nil }, func(checkpoint drivers.OwnCheckpoint) { all = append(all, checkpoint) })
		return all, err
	})
}

// everyCheckpoint reads a collection's checkpoints by their index. reset is called before each attempt.
func (d *Driver) everyCheckpoint(ctx context.Context, collection string, reset func(), found func(drivers.OwnCheckpoint)) error {
	return d.find(ctx, bson.D{
		{Key: "find", Value: collection},
		{Key: "filter", Value: bson.D{{Key: "checkpoint", Value: true}}},
		{Key: "projection", Value: bson.D{{Key: "tenant", Value: 1}, {Key: "build", Value: 1}, {Key: "version", Value: 1}}},
	}, reset, func(row bson.Raw) error {
		tenant, err := tenantOf(row.Lookup("tenant"))
		if err != nil {
			return fmt.Errorf("a checkpoint in %s has no tenant: %w", collection, err)
		}
		build, isBuild := row.Lookup("build").AsInt64OK()
		position, isPosition := row.Lookup("version").AsInt64OK()
		if !isBuild || !isPosition {
			return fmt.Errorf("the checkpoint of tenant %s in %s has no number", tenant, collection)
		}
		found(drivers.OwnCheckpoint{Tenant: tenant, Build: build, Position: position})
		return nil
	})
}

// dropSlice is how many documents one command of a drop removes, which takes some tens of milliseconds.
const dropSlice = 5000

// DropTenant removes one tenant's documents and checkpoint from the build.
func (d *Driver) DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	return drivers.DropTenant(build, tenant, func() error {
		place, err := d.locate(ctx, build, tenant)
		if err != nil {
			return err
		}
		return d.dropRows(ctx, place)
	})
}

// dropRows also removes tombstones.
func (d *Driver) dropRows(ctx context.Context, place place) error {
	checkpoint := func() error { return d.remove(ctx, place, bson.D{{Key: "_id", Value: place.prefix}}, 1) }
	return drivers.DropRows(checkpoint, func(after []byte) ([]byte, error) {
		first := max(place.prefix, string(after))
		last, err := d.sliceEnd(ctx, place, first)
		if err != nil || last == "" {
			return nil, err
		}
		return []byte(last), d.remove(ctx, place, bson.D{
			{Key: "tenant", Value: place.tenant},
			{Key: "_id", Value: bson.D{{Key: "$gt", Value: first}, {Key: "$lte", Value: last}}},
		}, 0)
	})
}

// sliceEnd returns the last key of the slice that begins after a key, or an empty one if there is none.
func (d *Driver) sliceEnd(ctx context.Context, place place, after string) (last string, err error) {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	err = d.find(ctx, bson.D{
		{Key: "find", Value: place.collection},
		{Key: "filter", Value: bson.D{
			{Key: "tenant", Value: place.tenant},
			{Key: "_id", Value: bson.D{{Key: "$gt", Value: after}, {Key: "$lt", Value: place.end}}},
		}},
		{Key: "projection", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "limit", Value: dropSlice},
	}, func() { last = "" }, func(row bson.Raw) error {
		key, ok := row.Lookup("_id").StringValueOK()
		if !ok {
			return fmt.Errorf("a document in %s has a key that is no text", place.collection)
		}
		last = strings.Clone(key)
		return nil
	})
	return last, err
}

// remove deletes the rows that meet the filter: all of them if limit is 0, one if it is 1. The deletion is on disk when
// remove returns.
func (d *Driver) remove(ctx context.Context, place place, filter bson.D, limit int) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	_, err := d.run(ctx, bson.D{
		{Key: "delete", Value: place.collection},
		{Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: filter}, {Key: "limit", Value: limit}}}},
		writeConcern(ctx, true),
	})
	return err
}
