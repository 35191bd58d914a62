package drivers

import (
	"context"
	"errors"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// ErrNoReplica is returned, wrapped, by the reader of a Replicated driver if no replica has given the answer. The
// caller asks the driver itself, which asks the primary.
var ErrNoReplica = errors.New("no replica can answer")

// Replicated is a Driver that can also read documents from replicas of its database.
type Replicated interface {
	Driver

	// AtPosition returns a reader for one request. It reads from one replica whose checkpoint of the build and tenant
	// is at the position or later, and whose state is no older than configured. Each of its answers is of one moment,
	// and has everything that was saved with that checkpoint; a repair may be missing for as long as a replica may lag.
	// Where no replica has that, the error is ErrNoReplica, also if the replica lacks the build's table, refuses the
	// query or takes too long. Invalid calls have the driver's errors. ok is false if there is nothing to read from.
	AtPosition(position int64) (reader Reader, ok bool)

	// ReplicaStates returns the states of the replicas.
	ReplicaStates() []ReplicaState
}

// Reader is the part of a Driver that answers queries for documents.
type Reader interface {
	Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error)
	Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error)
	Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error)
	Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error)
}

// ReplicaState is the state of a replica, as of the last half second.
type ReplicaState struct {
	Name    string        // host:port
	Lag     time.Duration // how old the state of the database is that it shows, at most
	Problem error         // why it is not read; nil: it is. The message has no addresses
}
