package mongo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	mongodb "go.mongodb.org/mongo-driver/v2/mongo"
	wire "go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/manifold-es/manifold/domain"
)

// Every command goes out with what is left of its context's time as maxTimeMS: the client library adds it. So a server
// that has a command for longer gives it up by itself. All are such that they may be sent again.

// Times that a method may take in all.
const (
	saveTime  = 30 * time.Second // also for dropping a slice, and the smaller ways to write
	queryTime = 10 * time.Second // reading
)

// How often a command is sent in all.
const (
	attempts     = 4 // where the server says that it cannot serve it now
	attemptsLost = 2 // where connections fail: the second waits for a server that can be reached, and knows no more than a third
)

// The errors of MongoDB that are told apart here (error_codes.yml in its sources).
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
	codePatternStopped      = 5073403 // the same by the server's newer engine
	codeIndexOptionsClash   = 85
	codeIndexKeyClash       = 86
	codeNotSupportedOnIndex = 303 // an API version or a service that has not the feature
)

// transient are the errors by which a server says that it cannot serve now, or that another operation was in the way.
var transient = []int{
	6, 7, 89, 9001, // the network between servers
	91, 11600, 11601, 11602, // going down, interrupted
	189, 10058, 10107, 13435, 13436, // no primary, or not any more
	133, 134, // nobody to read from
	63, 150, 13388, // a chunk has moved
	24, 46, 112, 117, // a lock, a conflict
	262, 365, 461, 462, // too busy
	64,       // majority was not reached in time
	239, 246, // a snapshot is not there any more, or not yet
}

// run sends a command and returns its answer, with transient failures tried again a few times.
func (d *Driver) run(ctx context.Context, command any) (bson.Raw, error) {
	for attempt := 1; ; attempt++ {
		result := d.db.RunCommand(ctx, command)
		raw, err := result.Raw()
		if err == nil {
			return raw, nil
		}
		if ctx.Err() != nil || !again(err, attempt) {
			return raw, d.mend(ctx, err)
		}
		pause := 10 * time.Millisecond << (2 * attempt) // 40, 160, 640 ms at most
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return raw, d.mend(ctx, err)
		}
	}
}

// find runs a find command and calls row for each document of the answer, which is valid during the call; errEnough from it
// ends the reading. reset is called before each attempt, as what an earlier one gave does not count.
func (d *Driver) find(ctx context.Context, command bson.D, reset func(), row func(bson.Raw) error) error {
	if !slices.ContainsFunc(command, func(e bson.E) bool { return e.Key == readConcern }) {
		command = append(command[:len(command):len(command)], d.reading()...)
	}
	for attempt := 1; ; attempt++ {
		reset()
		err := d.cursor(ctx, command, row)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !again(err, attempt) {
			return d.mend(ctx, err)
		}
		pause := 10 * time.Millisecond << (2 * attempt)
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return d.mend(ctx, err)
		}
	}
}

// cursor is one attempt of find.
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

// within gives a method its time.
func within(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, most)
}

// again reports whether the same command may well succeed when it is sent again, after so many attempts: the connection
// failed, or the server says so.
func again(err error, attempt int) bool {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case lost(err):
		return attempt < attemptsLost
	}
	return attempt < attempts && (hasCode(err, transient...) || hasLabel(err, "RetryableWriteError") || hasLabel(err, "RetryableError"))
}

// lost reports whether the connection failed, or was given up as another one to the same server had.
func lost(err error) bool {
	if mongodb.IsNetworkError(err) {
		return true
	}
	var pool wire.RetryablePoolError // an interface that does not say that it is an error
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

// mend sorts native errors by code and label into those of the contract, which keep the native one within. Where the
// caller's context has ended, that is what it is told.
func (d *Driver) mend(ctx context.Context, err error) error {
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
	// A connection's own deadline is the context's, and may be noticed before the context is found to have ended.
	timeUp := bounded && mongodb.IsTimeout(err) && time.Until(deadline) <= 0
	switch {
	case hasCode(err, codeMaxTimeMSExpired), errors.Is(err, wire.ErrDeadlineWouldBeExceeded), timeUp:
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	case hasCode(err, transient...), lost(err), !answered && mongodb.IsTimeout(err):
		return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeUnavailable, "", "the documents' database cannot serve now; try again later"), err)
	}
	return err
}

// writing is the write concern, as a part of a command: a majority of a replica set has it, so that no other server that
// becomes primary lacks it; of a standalone server that is the server itself. The wait ends with the context.
func writing(ctx context.Context, onDisk bool) bson.E {
	concern := bson.D{{Key: "w", Value: "majority"}}
	if onDisk {
		concern = append(concern, bson.E{Key: "j", Value: true})
	}
	if deadline, ok := ctx.Deadline(); ok {
		concern = append(concern, bson.E{Key: "wtimeout", Value: max(1, time.Until(deadline).Milliseconds())})
	}
	return bson.E{Key: "writeConcern", Value: concern}
}

// reading is the read concern, as a part of a command: of a replica set, what a majority has. What one server alone has may
// be undone, and who goes on from it would leave out what it held.
func (d *Driver) reading() bson.D {
	if !d.majority {
		return nil
	}
	return bson.D{{Key: readConcern, Value: bson.D{{Key: "level", Value: "majority"}}}}
}

const readConcern = "readConcern"

// snapshot is the read concern of what must see all of a save or nothing, as a part of a command: a snapshot of a time, or
// where that is zero, of one that the server chooses. Where there are none, it is that of reading.
func (d *Driver) snapshot(at bson.Timestamp) bson.D {
	if !d.transactions {
		return d.reading()
	}
	concern := bson.D{{Key: "level", Value: "snapshot"}}
	if !at.IsZero() {
		concern = append(concern, bson.E{Key: "atClusterTime", Value: at})
	}
	return bson.D{{Key: readConcern, Value: concern}}
}

func isUnavailable(err error) bool {
	sorted, ok := errors.AsType[*domain.Error](err)
	return ok && sorted.Code == domain.CodeUnavailable
}
