package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

// plainMongo inserts with InsertMany, unordered and acknowledged by the majority, like Manifold's saves.
type plainMongo struct {
	client     *mongo.Client
	collection *mongo.Collection
}

// insertedAtOnce is the number of documents per insert. Every compatible server accepts that many, and more are not
// faster.
const insertedAtOnce = 10_000

func openPlainMongo(_ context.Context, url string) (plain, error) {
	parsed, err := connstring.ParseAndValidate(url)
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(url).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return nil, err
	}
	name := parsed.Database
	if name == "" {
		name = plainTable
	}
	return plainMongo{client, client.Database(name).Collection(plainTable)}, nil
}

func (p plainMongo) insert(ctx context.Context, documents []plainDocument) (time.Duration, error) {
	all := make([]any, len(documents))
	for i, document := range documents {
		var members bson.D
		if err := bson.UnmarshalExtJSON(document.Document, false, &members); err != nil {
			return 0, fmt.Errorf("document %q: %w", document.ID, err)
		}
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: document.ID}, {Key: "document", Value: members}})
		if err != nil {
			return 0, fmt.Errorf("document %q: %w", document.ID, err)
		}
		all[i] = bson.Raw(raw)
	}
	if err := p.collection.Drop(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	for some := range slices.Chunk(all, insertedAtOnce) {
		if _, err := p.collection.InsertMany(ctx, some, options.InsertMany().SetOrdered(false)); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

func (p plainMongo) get(ctx context.Context, id string) error {
	if _, err := p.collection.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Raw(); err != nil {
		return fmt.Errorf("read %q: %w", id, err)
	}
	return nil
}

func (p plainMongo) close(ctx context.Context) error {
	return errors.Join(p.collection.Drop(ctx), p.client.Disconnect(ctx))
}
