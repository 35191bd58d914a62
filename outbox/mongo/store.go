package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/manifold-es/manifold/outbox"
)

// byAge is the order in which rows were added; within a stream it is the order of their numbers.
var byAge = bson.D{{Key: "addedAt", Value: 1}, {Key: "number", Value: 1}}

// maxHeld is the maximum number of leased or resting streams that one read skips.
const maxHeld = 10_000

// Claim implements outbox.Store. It leases streams, and with them their first rows. Each lease is a separate
// find-and-modify, and one command carries them all. If the clocks of two drainers' machines differ by more than the
// lease, both send the same rows, which is harmless.
func (b *Box) Claim(ctx context.Context, limit int, lease time.Duration) (outbox.Claim, error) {
	held, err := b.held(ctx)
	if err != nil {
		return outbox.Claim{}, fmt.Errorf("find leases: %w", err)
	}
	candidates, err := b.waiting(ctx, "$nin", held, limit)
	if err != nil || len(candidates) == 0 {
		return outbox.Claim{}, err
	}
	claim := outbox.Claim{ID: outbox.NewID()}
	leased, err := b.lease(ctx, claim.ID, streamsOf(candidates), lease)
	if err != nil {
		return outbox.Claim{}, fmt.Errorf("lease streams: %w", err)
	}
	if len(leased) == 0 {
		return outbox.Claim{}, nil
	}
	// Now nobody else changes these rows. Those read before may have been published meanwhile.
	rows, err := b.waiting(ctx, "$in", leased, limit)
	if err != nil {
		return outbox.Claim{}, errors.Join(err, b.release(ctx, claim.ID))
	}
	for _, r := range rows {
		claim.Rows = append(claim.Rows, outbox.Row{ID: r.ID, Stream: r.Stream, Message: []byte(r.Message), Attempts: r.Attempts, AddedAt: r.AddedAt})
	}
	if len(rows) == 0 {
		return outbox.Claim{}, b.release(ctx, claim.ID)
	}
	return claim, nil
}

// held returns the streams that nobody can lease now.
func (b *Box) held(ctx context.Context) ([]string, error) {
	cursor, err := b.leases.Find(ctx, bson.D{{Key: "until", Value: bson.D{{Key: "$gt", Value: time.Now()}}}},
		options.Find().SetLimit(maxHeld).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	return namesOf(ctx, cursor, err)
}

// waiting reads unpublished rows of some streams, or of all others.
func (b *Box) waiting(ctx context.Context, operator string, streams []string, limit int) ([]row, error) {
	filter := bson.D{{Key: "waiting", Value: true}}
	if operator == "$in" || len(streams) > 0 {
		filter = append(filter, bson.E{Key: "stream", Value: bson.D{{Key: operator, Value: streams}}})
	}
	cursor, err := b.events.Find(ctx, filter, options.Find().SetSort(byAge).SetLimit(int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	var rows []row
	if err := cursor.All(ctx, &rows); err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	return rows, nil
}

func streamsOf(rows []row) []string {
	var streams []string
	seen := map[string]bool{}
	for _, r := range rows {
		if !seen[r.Stream] {
			seen[r.Stream] = true
			streams = append(streams, r.Stream)
		}
	}
	return streams
}

// lease takes the streams whose lease is free or has expired, and returns those that it got.
func (b *Box) lease(ctx context.Context, claim string, streams []string, lease time.Duration) ([]string, error) {
	now := time.Now()
	models := make([]mongo.WriteModel, len(streams))
	for i, stream := range streams {
		models[i] = mongo.NewUpdateOneModel().SetUpsert(true).
			SetFilter(bson.D{{Key: "_id", Value: stream}, {Key: "until", Value: bson.D{{Key: "$lte", Value: now}}}}).
			SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "claim", Value: claim}, {Key: "until", Value: now.Add(lease)}}}})
	}
	// If another claim has the lease, the filter matches nothing, and the upsert fails on the existing document.
	if _, err := b.leases.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false)); err != nil && !mongo.IsDuplicateKeyError(err) {
		return nil, err
	}
	cursor, err := b.leases.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: streams}}}, {Key: "claim", Value: claim}},
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	return namesOf(ctx, cursor, err)
}

func namesOf(ctx context.Context, cursor *mongo.Cursor, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	var found []struct {
		ID string `bson:"_id"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, err
	}
	names := make([]string, len(found))
	for i := range found {
		names[i] = found[i].ID
	}
	return names, nil
}

func (b *Box) release(ctx context.Context, claim string) error {
	_, err := b.leases.DeleteMany(ctx, bson.D{{Key: "claim", Value: claim}})
	return err
}

// Settle implements outbox.Store. It is not a transaction. A drainer that dies in the middle leaves rows marked or not,
// and leases that expire.
func (b *Box) Settle(ctx context.Context, claim outbox.Claim, outcome outbox.Outcome, keep bool) error {
	if err := b.published(ctx, outcome.Published, keep); err != nil {
		return fmt.Errorf("mark published rows: %w", err)
	}
	for _, refusal := range outcome.Refused {
		postponed, err := b.leases.UpdateOne(ctx, bson.D{{Key: "_id", Value: refusal.Row.Stream}, {Key: "claim", Value: claim.ID}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "claim", Value: ""}, {Key: "until", Value: time.Now().Add(refusal.Pause)}}}})
		if err != nil {
			return fmt.Errorf("postpone a refused row: %w", err)
		}
		if postponed.MatchedCount == 0 {
			continue // its lease has expired, and another claim handles it
		}
		_, err = b.events.UpdateOne(ctx, bson.D{{Key: "_id", Value: refusal.Row.ID}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "reason", Value: clean(refusal.Reason)}}}, {Key: "$inc", Value: bson.D{{Key: "attempts", Value: 1}}}})
		if err != nil {
			return fmt.Errorf("count a refusal: %w", err)
		}
	}
	if err := b.release(ctx, claim.ID); err != nil {
		return fmt.Errorf("release streams: %w", err)
	}
	return nil
}

func (b *Box) published(ctx context.Context, rows []outbox.Row, keep bool) error {
	if len(rows) == 0 {
		return nil
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	if !keep {
		_, err := b.events.DeleteMany(ctx, filter)
		return err
	}
	_, err := b.events.UpdateMany(ctx, filter, bson.D{{Key: "$set", Value: bson.D{{Key: "waiting", Value: false}, {Key: "publishedAt", Value: time.Now()}}}})
	return err
}

// Lag implements outbox.Store.
func (b *Box) Lag(ctx context.Context) (outbox.Lag, error) {
	waiting := bson.D{{Key: "waiting", Value: true}}
	count, err := b.events.CountDocuments(ctx, waiting, options.Count().SetLimit(outbox.MaxLag))
	if err != nil || count == 0 {
		return outbox.Lag{}, err
	}
	var first row
	err = b.events.FindOne(ctx, waiting, options.FindOne().SetSort(byAge)).Decode(&first)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return outbox.Lag{}, nil
	}
	return outbox.Lag{Waiting: int(count), Oldest: max(0, time.Since(first.AddedAt))}, err
}

// idleLeaseLife is how long an expired lease is kept that nobody renews, because its stream no longer has rows.
const idleLeaseLife = time.Hour

// Sweep implements outbox.Store.
func (b *Box) Sweep(ctx context.Context, keep time.Duration, limit int) (int, error) {
	before := bson.D{{Key: "$lt", Value: time.Now().Add(-keep)}}
	cursor, err := b.events.Find(ctx, bson.D{{Key: "waiting", Value: false}, {Key: "publishedAt", Value: before}},
		options.Find().SetLimit(int64(limit)).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	ids, err := namesOf(ctx, cursor, err)
	if err != nil {
		return 0, err
	}
	if len(ids) < limit { // otherwise it is called again
		if _, err := b.leases.DeleteMany(ctx, bson.D{{Key: "until", Value: bson.D{{Key: "$lt", Value: time.Now().Add(-idleLeaseLife)}}}}); err != nil {
			return 0, err
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	removed, err := b.events.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err != nil {
		return 0, err
	}
	return int(removed.DeletedCount), nil
}
