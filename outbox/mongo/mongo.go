// Package mongo is an outbox in the producer's MongoDB: collections beside those that its transactions change. Start
// with New and Box.Add.
//
//	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
//		_, err := orders.UpdateOne(ctx, ...)
//		...
//		return nil, box.Add(ctx, outbox.Event{Topic: "order", Key: id, Type: "OrderPaid", Payload: payload})
//	})
//
// The callback's context carries the transaction: the event exists if and only if the transaction is committed. That
// needs a replica set, like all of MongoDB's transactions. With any other context, the event is added without a
// transaction.
//
// Events of one topic and key get numbers from a document for that key. Two transactions that add to the same key at
// the same time conflict: one of them is aborted with a transient error, and WithTransaction retries it. So the order
// of a key is the order in which its transactions are committed.
package mongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/manifold-es/manifold/outbox"
)

// DefaultName is the outbox's collection if New is given no name.
const DefaultName = "manifold_outbox"

// Box is an outbox. Producers add to it, and drainers use it as an outbox.Store. It may be used by many goroutines.
type Box struct {
	events  *mongo.Collection // the rows
	streams *mongo.Collection // for each stream, the number of the last row
	leases  *mongo.Collection // for each claimed or resting stream, the end of its lease
}

var _ outbox.Store = (*Box)(nil)

// New returns the outbox of that name in a database. It consists of the collection with this name, and two more whose
// names end with _streams and _leases. An empty name is DefaultName. New sends nothing to the server.
func New(database *mongo.Database, name string) *Box {
	name = cmp.Or(name, DefaultName)
	// Leases are read where they were just taken, and rows are published only when they can no longer be rolled back,
	// whatever else the client is set to read.
	primary := options.Collection().SetReadPreference(readpref.Primary())
	durable := options.Collection().SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Majority())
	return &Box{events: database.Collection(name, durable), streams: database.Collection(name+"_streams", primary), leases: database.Collection(name+"_leases", primary)}
}

// row is a row as it is stored.
type row struct {
	ID          string    `bson:"_id"`
	Stream      string    `bson:"stream"`
	Number      int64     `bson:"number"` // in its stream
	Message     string    `bson:"message"`
	AddedAt     time.Time `bson:"addedAt"` // never decreases within a stream
	Waiting     bool      `bson:"waiting"` // not published yet
	PublishedAt time.Time `bson:"publishedAt,omitempty"`
	Attempts    int       `bson:"attempts"`
	Reason      string    `bson:"reason,omitempty"`
}

// Prepare creates missing collections and indexes. A producer calls it once, before its first transaction, because some
// servers cannot create them within one.
func (b *Box) Prepare(ctx context.Context) error {
	for _, keys := range []bson.D{
		{{Key: "waiting", Value: 1}, {Key: "addedAt", Value: 1}, {Key: "number", Value: 1}},
		{{Key: "waiting", Value: 1}, {Key: "stream", Value: 1}, {Key: "addedAt", Value: 1}, {Key: "number", Value: 1}},
		{{Key: "waiting", Value: 1}, {Key: "publishedAt", Value: 1}},
	} {
		if _, err := b.events.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys}); err != nil {
			return fmt.Errorf("make the outbox's indexes: %w", err)
		}
	}
	for _, collection := range []*mongo.Collection{b.streams, b.leases} {
		if err := collection.Database().CreateCollection(ctx, collection.Name()); err != nil && !isNamespaceExists(err) {
			return fmt.Errorf("make the outbox's collections: %w", err)
		}
	}
	return nil
}

// isNamespaceExists reports whether a collection already exists.
func isNamespaceExists(err error) bool {
	command, ok := errors.AsType[mongo.CommandError](err)
	return ok && command.Code == 48
}

// Add adds events, in their order, in the transaction that ctx belongs to. For an event that would never be accepted,
// the error is a *domain.Error. The server's errors are wrapped, so that WithTransaction recognizes transient ones.
func (b *Box) Add(ctx context.Context, events ...outbox.Event) error {
	for i, event := range events {
		added, err := outbox.RowOf(event)
		if err != nil {
			return err
		}
		if err := b.add(ctx, added, event.Key != ""); err != nil {
			return fmt.Errorf("add event %d of %d to the outbox: %w", i+1, len(events), err)
		}
	}
	return nil
}

func (b *Box) add(ctx context.Context, added outbox.Row, ordered bool) error {
	stored := row{ID: added.ID, Stream: added.Stream, Number: 1, Message: string(added.Message), AddedAt: time.Now(), Waiting: true}
	if ordered {
		// Rows are sorted by the time when they were added, then by number. So that time must not be before that of the
		// previous row of the stream, whichever machine's clock gave it.
		var last struct {
			Number  int64     `bson:"number"`
			AddedAt time.Time `bson:"addedAt"`
		}
		err := b.streams.FindOneAndUpdate(ctx,
			bson.D{{Key: "_id", Value: added.Stream}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "number", Value: int64(1)}}}, {Key: "$max", Value: bson.D{{Key: "addedAt", Value: stored.AddedAt}}}},
			options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&last)
		if err != nil {
			return err
		}
		stored.Number, stored.AddedAt = last.Number, last.AddedAt
	}
	_, err := b.events.InsertOne(ctx, stored)
	return err
}

// clean returns the text without what some servers of the protocol cannot store.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}
