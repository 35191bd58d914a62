package mongo

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	mongodb "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/manifold-es/manifold/drivers"
)

// Where Config.Transactions asks for it and the deployment has them, a save is a transaction, and a reader sees all of it or
// nothing: each command reads a snapshot, and the commands of one page read the same. A batch of many parts, as in a rebuild, whose build nobody reads
// yet, is saved in pieces all the same: a transaction holds what it has written in the server's cache. The two ways work side
// by side, as do processes of releases that know only one: in both, a document is written only over an older version of
// itself, and the checkpoint is a compare-and-set.

// partsTogether is of how many parts a transaction is at most: some 16 MiB, or 8,000 documents.
const partsTogether = 4

// saveTogether saves a batch in a transaction. The error has the code of a duplicate key where a document is there that is
// as new as the batch's; the transaction has left nothing then.
func (d *Driver) saveTogether(ctx context.Context, place place, batch drivers.Batch, parts []part) error {
	stale := func(ctx context.Context) error {
		at, err := d.checkpoint(ctx, place)
		if err == nil && at != batch.From {
			return drivers.ErrStale
		}
		return err
	}
	return d.transact(ctx, batch.Mends(), stale, func(ctx context.Context) error {
		// First: of two savers, the second conflicts before it has written anything.
		if err := d.moveCheckpointWithin(ctx, place, batch.From, batch.To); err != nil {
			return err
		}
		for _, part := range parts {
			rest := part.writes
			if batch.From == 0 {
				var inserts []write
				if inserts, rest = part.inserts(); len(inserts) > 0 {
					if err := d.within(ctx, encodeInserts(place, part, inserts, bson.E{})); err != nil {
						return err
					}
				}
			}
			if len(rest) == 0 {
				continue
			}
			if err := d.within(ctx, encodeUpdates(place, part, rest, bson.E{})); err != nil {
				return err
			}
		}
		return nil
	})
}

// moveCheckpointWithin is moveCheckpoint within a transaction.
func (d *Driver) moveCheckpointWithin(ctx context.Context, place place, from, to int64) error {
	if from == 0 {
		err := d.within(ctx, encodeCheckpoint(place, to, bson.E{}))
		if hasCode(err, codeDuplicateKey) {
			return drivers.ErrStale
		}
		return err
	}
	answer, err := d.db.RunCommand(ctx, checkpointMove(place, from, to)).Raw()
	if err != nil {
		return err
	}
	if n, ok := answer.Lookup("n").AsInt64OK(); !ok || n == 0 {
		return drivers.ErrStale
	}
	return nil
}

// within sends a command of a transaction, once: what failed is tried again as a whole.
func (d *Driver) within(ctx context.Context, command any) error {
	return d.db.RunCommand(ctx, command).Err()
}

// transact runs do in a transaction, again and again where another one is in the way, as long as worthwhile does not
// return an error. onDisk: it must survive a crash.
func (d *Driver) transact(ctx context.Context, onDisk bool, worthwhile, do func(ctx context.Context) error) error {
	concern := writeconcern.Majority()
	if onDisk {
		journal := true
		concern.Journal = &journal
	}
	for attempt := 1; ; attempt++ {
		err := d.attempt(ctx, concern, do)
		if err == nil || errors.Is(err, drivers.ErrStale) || hasCode(err, codeDuplicateKey) {
			return err
		}
		// Of a commit whose outcome is not known, the next attempt finds out: it is stale if that one was stored.
		transient := hasLabel(err, "TransientTransactionError") || hasLabel(err, "UnknownTransactionCommitResult")
		if !transient || ctx.Err() != nil || lost(err) && attempt >= attemptsLost {
			return d.mend(ctx, err)
		}
		pause := 10 * time.Millisecond << (2 * min(attempt, 3)) // 40, 160, 640 ms at most
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return d.mend(ctx, err)
		}
		if err := worthwhile(ctx); err != nil {
			return err
		}
	}
}

// abortTime is how long the server may take to confirm that a transaction is aborted. One that it is not told of holds its
// documents for the server's transactionLifetimeLimitSeconds.
const abortTime = 5 * time.Second

// attempt is one attempt of transact.
func (d *Driver) attempt(ctx context.Context, concern *writeconcern.WriteConcern, do func(ctx context.Context) error) error {
	session, err := d.client.StartSession()
	if err != nil {
		return err
	}
	if err := session.StartTransaction(options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(concern)); err != nil {
		session.EndSession(context.WithoutCancel(ctx))
		return err
	}
	within := mongodb.NewSessionContext(ctx, session)
	if err = do(within); err == nil {
		err = session.CommitTransaction(within)
		session.EndSession(context.WithoutCancel(ctx)) // aborts nothing: a commit was sent
		return err
	}
	abort := func() {
		aborting, cancel := context.WithTimeout(context.WithoutCancel(within), abortTime)
		defer cancel()
		_ = session.AbortTransaction(aborting) // the server aborts by itself, later, what it is not told to
		session.EndSession(aborting)
	}
	if ctx.Err() != nil {
		d.background.Go(abort) // nobody waits for it any more
	} else {
		abort()
	}
	return err
}

// checkpointMove is the compare-and-set of a checkpoint.
func checkpointMove(place place, from, to int64) bson.D {
	return bson.D{
		{Key: "update", Value: place.collection},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: place.prefix}, {Key: "version", Value: from}}},
			{Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: to}}}}},
		}}},
	}
}

// snapshotTime is the time of a snapshot that several commands are to read.
func (d *Driver) snapshotTime(ctx context.Context) (bson.Timestamp, error) {
	answer, err := d.run(ctx, bson.D{
		{Key: "find", Value: commonCollection},
		{Key: "filter", Value: on("_id", "$eq", markerKey)},
		{Key: "limit", Value: 1}, {Key: "singleBatch", Value: true},
		{Key: "readConcern", Value: bson.D{{Key: "level", Value: "snapshot"}}},
	})
	if err != nil {
		return bson.Timestamp{}, err
	}
	seconds, number, ok := answer.Lookup("cursor", "atClusterTime").TimestampOK()
	if !ok {
		return bson.Timestamp{}, errors.New("the server does not say of what time its snapshot is")
	}
	return bson.Timestamp{T: seconds, I: number}, nil
}

// hasTransactions tries a transaction that changes nothing, and a snapshot. A service that speaks MongoDB's protocol may call
// itself a replica set and have neither.
func (d *Driver) hasTransactions(ctx context.Context) (bool, error) {
	_, err := d.snapshotTime(ctx)
	if err == nil {
		err = d.transact(ctx, false, func(ctx context.Context) error { return ctx.Err() }, func(ctx context.Context) error {
			return d.within(ctx, checkpointMove(place{collection: commonCollection, prefix: markerKey}, 0, 0))
		})
	}
	switch _, answered := errors.AsType[mongodb.ServerError](err); {
	case err == nil:
		return true, nil
	case isUnavailable(err) || ctx.Err() != nil:
		return false, err
	case answered:
		d.log.WarnContext(ctx, "the documents' database has no transactions or no snapshots: a reader may see a part of a batch", "error", err)
		return false, nil
	default:
		return false, err
	}
}
