// Package mongo is an outbox in a MongoDB of the producer's: collections beside those that its transactions change.
//
//	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
//		_, err := orders.UpdateOne(ctx, ...)
//		...
//		return nil, box.Add(ctx, outbox.Event{Topic: "order", Key: id, Type: "OrderPaid", Payload: payload})
//	})
//
// The context of the callback is the transaction: an event is there when it is committed, and not when it is not. That needs a
// replica set, as all of MongoDB's transactions do. With a context of another kind the event is added by itself.
//
// Events of one topic and key get numbers from a document of that key. Two transactions that add to the same key at the same time
// are in conflict: one of them is aborted as a transient error, and repeated by WithTransaction. So the order of a key is the order in
// which its transactions are committed.
package mongo

import (
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

// DefaultName is the outbox's collection where New is given no name.
const DefaultName = "manifold_outbox"

// Box is an outbox: for producers, who add to it, and as an outbox.Store for drainers. It may be used by many goroutines.
type Box struct {
	events  *mongo.Collection // the rows
	streams *mongo.Collection // of each stream, the number of the last row
	leases  *mongo.Collection // of each stream that is claimed or rests, until when
}

var _ outbox.Store = (*Box)(nil)

// New returns the outbox of that name in a database: the collection, and two beside it whose names end with _streams and _leases.
// An empty name is DefaultName. Nothing is asked of the server yet.
func New(database *mongo.Database, name string) *Box {
	if name == "" {
		name = DefaultName
	}
	// Leases are where they were just taken, and rows are published only when they cannot be undone any more, however the client reads
	// else.
	primary := options.Collection().SetReadPreference(readpref.Primary())
	stays := options.Collection().SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Majority())
	return &Box{events: database.Collection(name, stays), streams: database.Collection(name+"_streams", primary), leases: database.Collection(name+"_leases", primary)}
}

// row is a row as it is kept.
type row struct {
	ID          string    `bson:"_id"`
	Stream      string    `bson:"stream"`
	Number      int64     `bson:"number"` // in its stream
	Message     string    `bson:"message"`
	AddedAt     time.Time `bson:"addedAt"` // never runs backwards within a stream
	Waiting     bool      `bson:"waiting"` // not published yet
	PublishedAt time.Time `bson:"publishedAt,omitempty"`
	Attempts    int       `bson:"attempts"`
	Reason      string    `bson:"reason,omitempty"`
}

// Prepare makes the collections and indexes where they are not there. A producer does so once, before its first transaction:
// within one they cannot be made everywhere.
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
		if err := collection.Database().CreateCollection(ctx, collection.Name()); err != nil && !alreadyThere(err) {
			return fmt.Errorf("make the outbox's collections: %w", err)
		}
	}
	return nil
}

// alreadyThere is MongoDB's NamespaceExists.
func alreadyThere(err error) bool {
	command, ok := errors.AsType[mongo.CommandError](err)
	return ok && command.Code == 48
}

// Add adds events, in their order, in the transaction that ctx belongs to. One that would never be taken is a *domain.Error. Errors
// of the server come as they are within the error, so that WithTransaction sees which are transient.
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
	new := row{ID: added.ID, Stream: added.Stream, Number: 1, Message: string(added.Message), AddedAt: time.Now(), Waiting: true}
	if ordered {
		// Rows are read by when they were added, and then by their number: so that time must never be before the one of the
		// row that is before it in its stream, whichever machine's clock that was.
		var last struct {
			Number  int64     `bson:"number"`
			AddedAt time.Time `bson:"addedAt"`
		}
		err := b.streams.FindOneAndUpdate(ctx,
			bson.D{{Key: "_id", Value: added.Stream}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "number", Value: int64(1)}}}, {Key: "$max", Value: bson.D{{Key: "addedAt", Value: new.AddedAt}}}},
			options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&last)
		if err != nil {
			return err
		}
		new.Number, new.AddedAt = last.Number, last.AddedAt
	}
	_, err := b.events.InsertOne(ctx, new)
	return err
}

// clean is a text that every server of the protocol keeps.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}
