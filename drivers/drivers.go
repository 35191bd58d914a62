// Package drivers is the contract that a projection driver keeps, and nothing behind it.
//
// A driver keeps documents in one kind of database. It knows nothing of events, folds or rebuilds. Rows are keyed
// (tenant, build, document id). A shared projection's build has a table of its own; the builds of tenants' own
// projections live together in one common table per database, told apart by their numbers, so that a tenant's
// projection costs rows and no DDL.
//
// The checkpoint of a (build, tenant) lives beside its documents, so that both are saved together: its row is the one
// with the empty document id, and its version is the position. Reads of documents never show it.
package drivers

import (
	"context"
	"errors"
	"iter"

	"github.com/manifold-es/manifold/domain"
)

// ErrStale is what Save returns when the checkpoint is not where the batch starts: another worker was faster. Nothing
// of the batch was kept that a newer save could be missing.
var ErrStale = errors.New("the checkpoint is not where the batch starts: another worker has saved")

// ErrNoTable is what every method but CreateTemporaryTable and DropTable returns, wrapped, for a shared projection's
// build whose table is not there: never made, or dropped.
var ErrNoTable = errors.New("there is no such table")

// Batch is one save: what changed between two checkpoints of one tenant.
type Batch struct {
	From    int64             // the checkpoint that must be stored; 0: none is
	To      int64             // the checkpoint to store; From < To
	Upserts []domain.Document // whole documents; each Version in (From, To]; ids are distinct, also from Deletes
	Deletes []Deletion
}

// Deletion removes one document.
type Deletion struct {
	ID      string
	Version int64 // the position of the event that removed it
}

// Driver keeps the documents of many builds in one database. All methods may be called concurrently, also for the same
// table and tenant. Every method returns when ctx ends; what it had begun is then done whole, not at all, or (Save) in
// a way that a repeat mends.
//
// Errors are wrapped native ones, with these exceptions: ErrStale, ErrNoTable, and *domain.Error with
// domain.CodeTooLarge for a document beyond what the database can keep.
type Driver interface {
	// CreateTemporaryTable makes the place for a new build beside the live one, empty. It may be repeated: a table that
	// is there already stays as it is. The common table needs nothing to be made.
	CreateTemporaryTable(ctx context.Context, build domain.Build) error

	// IndexTable makes the build's secondary indexes, after it was filled. It may be repeated.
	IndexTable(ctx context.Context, build domain.Build) error

	// SwapTable points the public name of a shared projection (a view, for people who read the database directly, with
	// the tenant as a column and no checkpoint rows) at the build. It waits only shortly for locks and may be repeated;
	// for a tenant's own projection it does nothing. Readers through this contract do not depend on it.
	SwapTable(ctx context.Context, build domain.Build) error

	// DropTable removes the build's documents and checkpoints for all tenants; in the common table in slices, so that
	// nobody waits. Dropping what is not there is no error.
	DropTable(ctx context.Context, build domain.Build) error

	// DropTenant removes one tenant's documents and checkpoints from the build, in slices. It may be repeated.
	DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error

	// Load returns the documents among ids that are there, in any order.
	Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error)

	// Save stores a batch: all its documents and the checkpoint, or ErrStale and nothing. A document is written only
	// over an older version of itself. In a database without transactions the checkpoint is stored last, and a batch
	// that was cut off in the middle may be visible in part; saving it again completes it.
	Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch Batch) error

	// Checkpoint returns the stored checkpoint; 0 where there is none.
	Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error)

	// Checkpoints yields every tenant's stored checkpoint in the build, in any order. An error ends it.
	Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[Checkpoint, error]

	// Get returns one document; ok is false where it is not there.
	Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error)

	// Query returns the documents that the query asks for, in its order.
	Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error)

	// Count returns how many documents the tenant has in the build.
	Count(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error)

	// Ping reports whether the database answers.
	Ping(ctx context.Context) error

	// Close gives back what the driver holds. No other method is called afterwards.
	Close()
}

// Checkpoint is how far one tenant's log is folded into a build.
type Checkpoint struct {
	Tenant   domain.TenantID
	Position int64
}
