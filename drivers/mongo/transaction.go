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

// If Config.Transactions is set and the deployment supports them, a save is a transaction, and a reader sees all of it
// or nothing. Each command reads a snapshot, and the commands of one page read the same one. A batch of many parts, as
// in a rebuild whose build nobody reads yet, is still saved in pieces, because a transaction keeps its writes in the
// server's cache. The two ways can be mixed, also by processes of releases that know only one: in both, a document is
// written only over an older version of itself, and the checkpoint is a compare-and-set.

// partsTogether is the maximum number of parts in a transaction: some 16 MiB, or 8,000 documents.
const partsTogether = 4

// saveTogether saves a batch in a transaction. The error has the code of a duplicate key if a stored document is as new
// as the batch's; then nothing was saved.
func (d *Driver) saveTogether(ctx context.Context, place place, batch drivers.Batch, parts []part) error {
	checkStale := func(ctx context.Context) error {
		at, err := d.checkpoint(ctx, place)
		if err == nil && at != batch.From {
			return drivers.ErrStale
		}
		return err
	}
	return d.transact(ctx, batch.IsRepair(), checkStale, func(ctx context.Context) error {
		// This comes first: of two savers, the second then conflicts before it has written anything.
		if err := d.moveCheckpointWithin(ctx, place, batch.From, batch.To); err != nil {
			return err
		}
		for _, part := range parts {
			rest := part.writes
			if batch.From == 0 {
				var inserts []write
				if inserts, rest = part.inserts(); len(inserts) > 0 {
					if err := d.runOnce(ctx, encodeInserts(place, part, inserts, bson.E{})); err != nil {
						return err
					}
				}
			}
			if len(rest) == 0 {
				continue
			}
			if err := d.runOnce(ctx, encodeUpdates(place, part, rest, bson.E{})); err != nil {
				return err
			}
		}
		return nil
	})
}

// moveCheckpointWithin is moveCheckpoint within a transaction.
func (d *Driver) moveCheckpointWithin(ctx context.Context, place place, from, to int64) error {
	if from == 0 {
		err := d.runOnce(ctx, encodeCheckpoint(place, to, bson.E{}))
		if hasCode(err, codeDuplicateKey) {
			return drivers.ErrStale
		}
		return err
	}
	answer, err := d.db.RunCommand(ctx, checkpointMove(place, from, to)).Raw()
	if err != nil {
		return err
	}
	return checkMoved(answer)
}

// runOnce sends a command of a transaction once: the transaction is retried as a whole.
func (d *Driver) runOnce(ctx context.Context, command any) error {
	return d.db.RunCommand(ctx, command).Err()
}

// transact runs do in a transaction. It retries while another transaction conflicts, as long as check returns no error.
// onDisk: the commit must survive a crash.
func (d *Driver) transact(ctx context.Context, onDisk bool, check, do func(ctx context.Context) error) error {
	concern := writeconcern.Majority()
	if onDisk {
		concern.Journal = new(true)
	}
	for attempt := 1; ; attempt++ {
		err := d.attempt(ctx, concern, do)
		if err == nil || errors.Is(err, drivers.ErrStale) || hasCode(err, codeDuplicateKey) {
			return err
		}
		// If the outcome of a commit is unknown, the next attempt finds out: it is stale if the commit succeeded.
		transient := hasLabel(err, "TransientTransactionError") || hasLabel(err, "UnknownTransactionCommitResult")
		if !transient || ctx.Err() != nil || connectionLost(err) && attempt >= maxConnectionAttempts {
			return d.contractError(ctx, err)
		}
		pause := 10 * time.Millisecond << (2 * min(attempt, 3)) // 40, 160, 640 ms at most
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return d.contractError(ctx, err)
		}
		if err := check(ctx); err != nil {
			return err
		}
	}
}

// abortTime is how long the server may take to confirm that a transaction is aborted. If the server misses the abort,
// the transaction locks its documents for the server's transactionLifetimeLimitSeconds.
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
	inSession := mongodb.NewSessionContext(ctx, session)
	if err = do(inSession); err == nil {
		err = session.CommitTransaction(inSession)
		session.EndSession(context.WithoutCancel(ctx)) // aborts nothing: a commit was sent
		return err
	}
	abort := func() {
		aborting, cancel := context.WithTimeout(context.WithoutCancel(inSession), abortTime)
		defer cancel()
		_ = session.AbortTransaction(aborting) // otherwise the server aborts later by itself
		session.EndSession(aborting)
	}
	if ctx.Err() != nil {
		d.background.Go(abort) // the caller no longer waits
	} else {
		abort()
	}
	return err
}

// checkpointMove returns the compare-and-set of a checkpoint.
func checkpointMove(place place, from, to int64) bson.D {
	return bson.D{
		{Key: "update", Value: place.collection},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: place.prefix}, {Key: "version", Value: from}}},
			{Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: to}}}}},
		}}},
	}
}

// snapshotTime returns the time of a snapshot that several commands will read.
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

// hasTransactions tries a transaction that changes nothing, and a snapshot. A service that speaks MongoDB's protocol
// may call itself a replica set without supporting either.
func (d *Driver) hasTransactions(ctx context.Context) (bool, error) {
	_, err := d.snapshotTime(ctx)
	if err == nil {
		err = d.transact(ctx, false, func(ctx context.Context) error { return ctx.Err() }, func(ctx context.Context) error {
			return d.runOnce(ctx, checkpointMove(place{collection: commonCollection, prefix: markerKey}, 0, 0))
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
