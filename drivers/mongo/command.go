package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	mongodb "go.mongodb.org/mongo-driver/v2/mongo"
	wire "go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// The client library adds the remaining time of the context to every command as maxTimeMS, so the server itself gives
// up a command that takes longer. All commands may be sent again.

// Total time limits of methods. Tests raise them.
var (
	saveTime  = 30 * time.Second // also for dropping a slice, and for smaller writes
	queryTime = 10 * time.Second // for reads
)

// maxConnectionAttempts is how often a command is sent if connections fail, including the first time. The second
// attempt waits for a reachable server; a third would not help.
const maxConnectionAttempts = 2

// MongoDB error codes that are handled separately here (error_codes.yml in its sources).
const (
	codeInternal            = 1
	codeAlreadyInitialized  = 23
	codeIndexNotFound       = 27
	codeNamespaceNotFound   = 26
	codeNamespaceExists     = 48
	codeMaxTimeMSExpired    = 50
	codeCommandNotFound     = 59
	codeCannotCreateIndex   = 67
	codeInvalidIndexOption  = 197
	codeNotImplemented      = 238 // FerretDB's
	codeDuplicateKey        = 11000
	codeInvalidPattern      = 51091
	codePatternGaveUp       = 51156
	codePatternStopped      = 5073403 // the same, from the server's newer query engine
	codeNotSupportedOnIndex = 303     // an API version or a service that lacks the feature
)

// transient lists the errors by which a server reports that it cannot serve now, or that another operation conflicted.
var transient = []int{
	6, 7, 89, 9001, // the network between servers
	91, 11600, 11601, 11602, // going down, interrupted
	189, 10058, 10107, 13435, 13436, // no primary, or no longer the primary
	133, 134, // no server to read from
	63, 150, 13388, // a chunk has moved
	24, 46, 112, 117, // a lock, a conflict
	262, 365, 461, 462, // too busy
	64,       // majority was not reached in time
	239, 246, // a snapshot is no longer available, or not yet
}

// run sends a command and returns the reply. It retries transient failures a few times.
func (d *Driver) run(ctx context.Context, command any) (raw bson.Raw, err error) {
	err = drivers.Retry(ctx, retryable, func() (err error) {
		raw, err = d.db.RunCommand(ctx, command).Raw()
		return err
	})
	return raw, d.contractError(ctx, err)
}

// find runs a find command and calls row for each document of the reply, which is valid during the call. If row returns
// errEnough, reading ends. reset is called before each attempt, because the rows of an earlier attempt do not count.
func (d *Driver) find(ctx context.Context, command bson.D, reset func(), row func(bson.Raw) error) error {
	if !slices.ContainsFunc(command, func(e bson.E) bool { return e.Key == "readConcern" }) {
		command = append(command[:len(command):len(command)], d.readConcern()...)
	}
	return d.contractError(ctx, drivers.Retry(ctx, retryable, func() error {
		reset()
		return d.cursor(ctx, command, row)
	}))
}

// cursor runs one attempt of find.
func (d *Driver) cursor(ctx context.Context, command bson.D, row func(bson.Raw) error) (err error) {
	cursor, err := d.db.RunCommandCursor(ctx, command)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cursor.Close(context.WithoutCancel(ctx))) }()
	for cursor.Next(ctx) {
		if err := row(cursor.Current); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return cursor.Err()
}

// retryable reports whether the same command may well succeed when it is sent again after so many attempts: the
// connection failed, or the server reports a transient error.
func retryable(err error, attempt int) bool {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case connectionLost(err):
		return attempt < maxConnectionAttempts
	}
	return attempt < drivers.Attempts && (hasCode(err, transient...) || hasLabel(err, "RetryableWriteError") || hasLabel(err, "RetryableError"))
}

// connectionLost reports whether the connection failed, or was closed because another one to the same server had
// failed.
func connectionLost(err error) bool {
	if mongodb.IsNetworkError(err) {
		return true
	}
	var pool wire.RetryablePoolError // an interface that does not embed error
	return errors.As(err, &pool) && pool.Retryable()
}

func hasCode(err error, codes ...int) bool {
	server, ok := errors.AsType[mongodb.ServerError](err)
	return ok && slices.ContainsFunc(codes, server.HasErrorCode)
}

func hasLabel(err error, label string) bool {
	labeled, ok := errors.AsType[mongodb.LabeledError](err)
	return ok && labeled.HasErrorLabel(label)
}

// contractError converts native errors, by code and label, to the errors of the contract, and wraps the native error.
// If the caller's context has ended, it returns the context's error.
func (d *Driver) contractError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		if errors.Is(cause, context.Canceled) {
			return fmt.Errorf("%w: %w", cause, err)
		}
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	_, answered := errors.AsType[mongodb.ServerError](err)
	deadline, bounded := ctx.Deadline()
	// A connection's deadline is the context's, and may expire slightly before the context reports that it has ended.
	timeUp := bounded && mongodb.IsTimeout(err) && time.Until(deadline) <= 0
	switch {
	case hasCode(err, codeMaxTimeMSExpired), errors.Is(err, wire.ErrDeadlineWouldBeExceeded), timeUp:
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	case hasCode(err, transient...), connectionLost(err), !answered && mongodb.IsTimeout(err):
		return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeUnavailable, "", "the documents' database cannot serve now; try again later"), err)
	}
	return err
}

// writeConcern returns the write concern as a command element. A majority of a replica set must have the write, so that
// no other server that becomes primary lacks it; a standalone server is its own majority. The wait ends with the
// context.
func writeConcern(ctx context.Context, onDisk bool) bson.E {
	concern := bson.D{{Key: "w", Value: "majority"}}
	if onDisk {
		concern = append(concern, bson.E{Key: "j", Value: true})
	}
	if deadline, ok := ctx.Deadline(); ok {
		concern = append(concern, bson.E{Key: "wtimeout", Value: max(1, time.Until(deadline).Milliseconds())})
	}
	return bson.E{Key: "writeConcern", Value: concern}
}

// readConcern returns the read concern as a command element. In a replica set it reads what a majority has. Data that
// only one server has may be rolled back, and a worker that had continued from such a checkpoint would skip events.
func (d *Driver) readConcern() bson.D {
	if !d.majority {
		return nil
	}
	return bson.D{{Key: "readConcern", Value: bson.D{{Key: "level", Value: "majority"}}}}
}

// snapshot returns the read concern of reads that must see all of a save or nothing, as a command element. It selects
// the snapshot at a time, or one that the server chooses if the time is zero. Without snapshots it is readConcern's.
func (d *Driver) snapshot(at bson.Timestamp) bson.D {
	if !d.transactions {
		return d.readConcern()
	}
	concern := bson.D{{Key: "level", Value: "snapshot"}}
	if !at.IsZero() {
		concern = append(concern, bson.E{Key: "atClusterTime", Value: at})
	}
	return bson.D{{Key: "readConcern", Value: concern}}
}

func isUnavailable(err error) bool {
	return domain.IsCode(err, domain.CodeUnavailable)
}
