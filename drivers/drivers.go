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

// ErrStale is what Save returns when the checkpoint is not where the batch starts. Nothing of the batch was kept that a
// newer save could be missing. Usually another worker was faster; after a lost connection it may also be this very
// batch that is stored. The caller cannot tell and need not: it loads the checkpoint again and goes on from there.
var ErrStale = errors.New("the checkpoint is not where the batch starts: another worker has saved")

// ErrNoTable is what every method but CreateTemporaryTable, DropTable and DropTenant returns, wrapped, for a shared
// projection's build whose table is not there: never made, or dropped.
var ErrNoTable = errors.New("there is no such table")

// ErrTimedOut is wrapped by Save's error where the database answers, and did not finish the batch in time. The same batch
// may well time out again: the caller saves a smaller one.
var ErrTimedOut = errors.New("the database did not finish in time")

// Batch is one save: what changed between two checkpoints of one tenant. It is bounded by the caller to some tens of
// megabytes; how many documents that is does not matter.
//
// A batch whose From is its To, above 0, mends: it writes documents that were left behind while the checkpoint went on,
// such as one whose event could not be folded for a time. The checkpoint must be From, and stays. Versions are then
// anywhere in (0, To], and may be older than what is stored: the rule that a document is written only over an older version
// of itself, and removed only if it is older, holds here as everywhere. Where there is no document, it is written; but a
// driver that keeps the version of what was removed may hold that against an older one.
type Batch struct {
	From    int64             // the checkpoint that must be stored; 0: none is
	To      int64             // the checkpoint to store; From < To, or From == To > 0 to mend
	Upserts []domain.Document // whole documents; each Version in (From, To], or (0, To] to mend; ids are distinct, also from Deletes
	New     int               // the first so many of Upserts were not there at From, as Load told. It may make a save cheaper, never wrong: a document that is there after all is upserted
	Deletes []Deletion        // of what need not be there
}

// Deletion removes one document.
type Deletion struct {
	ID      string
	Version int64 // the position of the event that removed it, in (From, To], or (0, To] to mend
}

// Mends reports whether the batch leaves the checkpoint where it is.
func (b Batch) Mends() bool { return b.From == b.To }

// Driver keeps the documents of many builds in one database. All methods may be called concurrently, also for the same
// table and tenant, and by several processes on one database. Every method returns when ctx ends; what it had begun is
// then done whole, not at all, or (Save) in a way that a repeat mends.
//
// The build of a tenant's own projection is used for that tenant only: build numbers are unique for their owner, not
// beyond. Another tenant there, and the nil UUID as tenant anywhere, is an error, and touches nothing.
//
// A document comes back as the JSON value that was saved: the same strings, members in any order, integers of 64 bits
// exact, other numbers at least as precise as IEEE doubles. The last of two members of one name is kept. Ids are
// compared and ordered as bytes. Predicates and orders take a number for the int64 or double that domain.ParseNumber
// reads from it; those that save write each number in the shortest form of that (as domain.Scalar.JSON does). A caller
// does not change what it was given, and may use the memory of what it gave again when the method has returned.
//
// Errors are wrapped native ones, with these exceptions:
//   - ErrStale and ErrNoTable
//   - ErrTimedOut, within domain.CodeUnavailable, where a driver limits the time of a save
//   - *domain.Error with domain.CodeTooLarge: a document beyond domain.MaxDocumentBytes or what the database can keep
//   - domain.CodeInvalidJSON: a document whose data domain.CheckJSON refuses, or that nests deeper than the database can
//     keep; what nests deeper than domain.MaxJSONDepth may pass
//   - domain.CodeInvalidRequest: an id to be saved that domain.CheckDocumentID refuses, a batch, a query or overrides that
//     break their rules (Batch.Check, domain.DocumentQuery.Check, GroupOverrides)
//   - domain.CodeUnsupported and domain.CodeTooCostly, as Query says
//   - domain.CodeUnavailable, with the native error within: a database that cannot be reached or is going down
//
// A batch that is refused is not saved at all.
type Driver interface {
	// CreateTemporaryTable makes the place for a new build beside the live one, empty. It may be repeated: a table that
	// is there already stays as it is. For the build of a tenant's own projection it sees to it that the common table is
	// there, in a database that came back empty while this process ran. What the build says of Indexes and PartitionBy holds
	// for the table from then on.
	CreateTemporaryTable(ctx context.Context, build domain.Build) error

	// IndexTable makes the build's secondary indexes, after it was filled: for each of build.Indexes one by tenant and the
	// value at the path; with build.PartitionBy by tenant, the value at that path, and the value, and one by tenant and
	// partition alone. They make queries fast, those whose predicate fixes the partition (domain.Fixed) where there is one,
	// and change nothing else: no document is refused for them. Saves may wait for it. It may be repeated. For the common
	// table it does nothing: both are for shared projections.
	IndexTable(ctx context.Context, build domain.Build) error

	// SwapTable points the public name of a shared projection (a view, for people who read the database directly, with
	// the tenant as a column, no checkpoint rows and nothing of what was removed) at the build, and for the tenants of the
	// overrides at theirs: the name shows the build's documents except those of these tenants, and these tenants' from
	// their own builds' tables. Overrides of an earlier swap end with it. There may be a thousand; GroupOverrides gives them
	// by build, and refuses what makes no sense. It waits only shortly for locks, gives up with an error rather than make
	// others wait, and may be repeated; for a tenant's own projection it does nothing. Readers through this contract do not
	// depend on it.
	SwapTable(ctx context.Context, build domain.Build, overrides []Override) error

	// DropTable removes the build's documents and checkpoints for all tenants; in the common table in slices, so that
	// nobody waits. A public name that still points at the build, if only for one tenant, goes as well: swap before. Dropping
	// what is not there is no error.
	DropTable(ctx context.Context, build domain.Build) error

	// DropTenant removes one tenant's documents and checkpoint from the build, in slices, the checkpoint first: so a Save
	// that goes on from it is stale. It may be repeated, and removing what is not there is no error. When it has returned,
	// what it removed stays removed, also when the database's machine crashes.
	DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error

	// Load returns the documents among ids that are there, each once, in any order. An id that no document can have is
	// one that is not there. Load is for those who go on from the checkpoint, and in a database without transactions a
	// batch that was cut off may have removed a document beyond it: that one may, and must where the removal's version is
	// above the checkpoint, come back with that version and no Data, so that no event takes effect on it twice. Get,
	// Query and Count never know of it.
	Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error)

	// Save stores a batch: all its documents and the checkpoint, or ErrStale and nothing. A document is written only
	// over an older version of itself, and removed only if it is older than its Deletion. In a database without
	// transactions the checkpoint is stored last, and a batch that was cut off in the middle may be visible in part;
	// saving it again completes it. Documents can be made again from the log, so a driver need not wait until a save is
	// on disk: a crash of the database's machine may take the last saves back, each with its checkpoint. A batch that mends
	// stays, like what DropTenant removes: by the checkpoint nobody would notice that it is gone.
	Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch Batch) error

	// Checkpoint returns the stored checkpoint; 0 where there is none.
	Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error)

	// Checkpoints yields every tenant's stored checkpoint in the build, in any order. An error ends it. The loop may end
	// before, and may call the driver.
	Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[Checkpoint, error]

	// OwnCheckpoints yields every stored checkpoint of the builds of tenants' own projections, of all tenants, in any order:
	// nothing where none of them was ever saved. It reads the checkpoints and no documents, so that twenty thousand of
	// them take well below a second. An error ends it. The loop may end before, and may call the driver.
	OwnCheckpoints(ctx context.Context) iter.Seq2[OwnCheckpoint, error]

	// Get returns one document; ok is false where it is not there, also for an id that no document can have.
	Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error)

	// Query returns the documents that the query asks for, in its order: those for which domain.Match holds, sorted as
	// domain.SortKey says, and nothing of that is done outside the database. A document that is there from before the first
	// page until after the last, and whose place in the order does not change, is on exactly one of the pages, whatever
	// else is saved meanwhile. What the database cannot ask is refused with domain.CodeUnsupported, naming the place. A
	// query that takes longer than a time that the driver sets is ended with domain.CodeTooCostly.
	Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error)

	// Count returns how many of the tenant's documents in the build match; nil: all. Errors are as in Query.
	Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error)

	// Explain says how the database answers the query, without changing anything: its statement at least. Errors are as in
	// Query.
	Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error)

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

// OwnCheckpoint is how far a tenant's log is folded into a build of a projection of its own.
type OwnCheckpoint struct {
	Tenant   domain.TenantID
	Build    int64
	Position int64
}
