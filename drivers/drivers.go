// Package drivers defines the contract of projection drivers: Driver, Batch and the errors that they share.
//
// A driver stores documents in one kind of database. It knows nothing of events, folds or rebuilds. Rows are keyed by
// (tenant, build, document id). Each build of a shared projection has its own table. All builds of tenants' own
// projections share one common table per database and are distinguished by build number, so a tenant's projection costs
// rows and no DDL.
//
// The checkpoint of a (build, tenant) is stored beside its documents, so that both are saved together. Its row has the
// empty document id, and its version is the position. Reads of documents never return it.
package drivers

import (
	"context"
	"errors"
	"iter"

	"github.com/manifold-es/manifold/domain"
)

// ErrStale is returned by Save when the stored checkpoint is not the one that the batch starts from. Nothing of the
// batch was kept that a newer save could lack. Usually another worker was faster. After a lost connection, this very
// batch may be the one that is stored. The caller cannot distinguish the two and need not: it loads the checkpoint
// again and continues from there.
var ErrStale = errors.New("the checkpoint is not where the batch starts: another worker has saved")

// ErrNoTable is returned, wrapped, for a build of a shared projection whose table was never created or was dropped.
// Every method returns it except CreateTemporaryTable, DropTable and DropTenant.
var ErrNoTable = errors.New("there is no such table")

// ErrTimedOut is wrapped by Save's error when the database responds but did not finish the batch in time. The same
// batch may well time out again, so the caller saves a smaller one.
var ErrTimedOut = errors.New("the database did not finish in time")

// ErrLoadTooLarge is returned, wrapped, by Load if several documents have more than MaxLoadBytes of data together. The
// caller asks for fewer.
var ErrLoadTooLarge = errors.New("the documents are too large to be loaded together")

// MaxLoadBytes limits the data of the documents of one Load, so that documents of unexpected sizes cannot exhaust the
// memory of a process.
const MaxLoadBytes = 4 * domain.MaxDocumentBytes

// Batch is one save: the changes between two checkpoints of one tenant. The caller limits it to some tens of megabytes;
// the number of documents does not matter. New is a hint that may make a save cheaper: if a document exists after all,
// it is upserted.
//
// A batch with From == To is a repair. It writes documents that were skipped while the checkpoint advanced, such as one
// whose event could not be folded for a time. With From == To == 0 it writes documents into a build that has no
// checkpoint yet, in any order. The stored checkpoint must be From (for 0: there must be none), and does not change.
// Versions may be anywhere in (0, To], for 0 anywhere above 0, and may be older than what is stored. The usual rule
// still holds: a document is written only over an older version of itself, and removed only if it is older. A missing
// document is written. However, a driver that keeps the version of a removed document may use it to reject an older
// version.
type Batch struct {
	From    int64             // the checkpoint that must be stored; 0: none is stored
	To      int64             // the checkpoint to store; From < To, or From == To for a repair
	Upserts []domain.Document // whole; Version in (From, To], or as a repair allows; ids distinct, also from Deletes
	New     int               // so many of the first Upserts did not exist at From, as Load reported; see above
	Deletes []Deletion        // documents to remove; they need not exist
}

// Deletion removes one document.
type Deletion struct {
	ID      string
	Version int64 // the position of the event that removed it, in (From, To], or as a repair allows
}

// IsRepair reports whether the batch is a repair, which leaves the checkpoint where it is.
func (b Batch) IsRepair() bool { return b.From == b.To }

// Driver stores the documents of many builds in one database. All methods may be called concurrently, also for the same
// table and tenant, and by several processes on one database. Every method returns when ctx ends. Its work is then done
// completely or not at all; a Save may also leave a state that saving again completes.
//
// The build of a tenant's own projection may be used for that tenant only, because build numbers are unique only per
// owner. Any other tenant in such a build, and the nil UUID as tenant in any build, is an error and changes nothing.
//
// A document is returned as the JSON value that was saved: the same strings, members in any order, 64-bit integers
// exact, other numbers at least as precise as IEEE doubles. If two members have the same name, the last is kept. Ids
// are compared and ordered as bytes. Predicates and orders interpret a number as the int64 or double that
// domain.ParseNumber reads from it; callers of Save write each number in the shortest form of that value (as
// domain.Scalar.JSON does). A caller does not modify what it received, and may reuse the memory of its arguments once
// the method has returned.
//
// Errors are wrapped native errors, except:
//   - ErrStale, ErrNoTable and ErrLoadTooLarge
//   - ErrTimedOut, within domain.CodeUnavailable, if the driver limits the time of a save
//   - *domain.Error with domain.CodeTooLarge: a document exceeds domain.MaxDocumentBytes or the database's own limit
//   - domain.CodeInvalidJSON: domain.CheckJSON refuses a document's data, or the data nests deeper than the database
//     can store; data that nests deeper than domain.MaxJSONDepth may be accepted
//   - domain.CodeInvalidRequest: domain.CheckDocumentID refuses an id to be saved, or a batch, query or overrides break
//     their rules (Batch.Check, domain.DocumentQuery.Check, GroupOverrides)
//   - domain.CodeUnsupported and domain.CodeTooCostly, as described at Query
//   - domain.CodeUnavailable, with the native error within: the database cannot be reached or is shutting down
//
// A refused batch is not saved at all.
type Driver interface {
	// CreateTemporaryTable creates an empty table for a new build beside the live one. It may be repeated: an existing
	// table stays as it is. For the build of a tenant's own projection it ensures that the common table exists, even if
	// the database came back empty while this process ran. The build's Indexes and PartitionBy apply to the table from
	// then on.
	CreateTemporaryTable(ctx context.Context, build domain.Build) error

	// IndexTable creates the build's secondary indexes after the table was filled. For each of build.Indexes it creates
	// one by tenant and the value at the path. With build.PartitionBy, that index is by tenant, the value at the
	// partition's path, and the value, and a further index is by tenant and partition alone. Indexes only make queries
	// faster (with a partition, only those whose predicate fixes it, see domain.Fixed); no document is refused because
	// of them. Saves may wait for IndexTable. It may be repeated. For the common table it does nothing: a driver may
	// serve the Indexes of tenants' own builds in another way, from the first save on.
	IndexTable(ctx context.Context, build domain.Build) error

	// SwapTable points the public name of a shared projection at the build. The name is a view for people who read the
	// database directly; it shows the tenant as a column, and neither checkpoint rows nor anything of removed
	// documents. For the tenants of the overrides, the view shows their documents from the overrides' builds instead.
	// The overrides replace those of an earlier swap. There may be a thousand; GroupOverrides groups them by build and
	// refuses invalid ones. SwapTable waits only briefly for locks and returns an error rather than make others wait.
	// It may be repeated. For a tenant's own projection it does nothing. Readers that use this contract do not depend
	// on it.
	SwapTable(ctx context.Context, build domain.Build, overrides []Override) error

	// DropTable removes the build's documents and checkpoints for all tenants. In the common table it does so in
	// slices, so that nobody has to wait. It also removes a public name that still points at the build, even if only
	// for one tenant: call SwapTable first. Dropping a table that does not exist is no error.
	DropTable(ctx context.Context, build domain.Build) error

	// DropTenant removes one tenant's documents and checkpoint from the build, in slices. It removes the checkpoint
	// first, so that a Save that continues from it is stale. It may be repeated, and removing what does not exist is no
	// error. Once it has returned, the removal survives a crash of the database's machine.
	DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error

	// Load returns the existing documents among ids, each once, in any order. An id that no document can have counts as
	// missing. Load is for callers that continue from the checkpoint. In a database without transactions, an
	// interrupted batch may have removed a document after the checkpoint. Load may return such a document with the
	// removal's version and no Data, and must do so if that version is above the checkpoint, so that no event is
	// applied to it twice. Get, Query and Count never return it.
	//
	// If there are several, and they have more than MaxLoadBytes of data together, Load stops reading, and the error is
	// ErrLoadTooLarge. Use LoadEach where the documents are not needed at the same time.
	Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error)

	// Save stores a batch: all its documents and the checkpoint, or ErrStale and nothing. A document is written only
	// over an older version of itself, and removed only if it is older than its Deletion. In a database without
	// transactions the checkpoint is stored last, and part of an interrupted batch may be visible; saving it again
	// completes it. Documents can be rebuilt from the log, so a driver need not wait until a save is on disk: a crash
	// of the database's machine may undo the last saves, each together with its checkpoint. Repair batches and
	// DropTenant must be durable, because no checkpoint would reveal that their effect was lost.
	Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch Batch) error

	// Checkpoint returns the stored checkpoint, or 0 if there is none.
	Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error)

	// Checkpoints yields every tenant's stored checkpoint in the build, in any order. An error ends the sequence. The
	// loop may break early, and may call the driver.
	Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[Checkpoint, error]

	// OwnCheckpoints yields every stored checkpoint of the builds of tenants' own projections, for all tenants, in any
	// order. It yields nothing if none was ever saved. It reads checkpoints and no documents, so that twenty thousand
	// of them take well below a second. An error ends the sequence. The loop may break early, and may call the driver.
	OwnCheckpoints(ctx context.Context) iter.Seq2[OwnCheckpoint, error]

	// Get returns one document; ok is false if it does not exist, also for an id that no document can have.
	Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error)

	// Query returns the documents for which domain.Match holds, sorted as domain.SortKey defines. The database does all
	// of the filtering and sorting. A document is on exactly one of the pages if it exists from before the first page
	// until after the last and its place in the order does not change, whatever else is saved meanwhile. A query that
	// the database cannot express is refused with domain.CodeUnsupported, naming the place. A query that exceeds the
	// driver's time limit ends with domain.CodeTooCostly.
	Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error)

	// Count returns how many of the tenant's documents in the build match; a nil predicate counts all. Errors are as in
	// Query.
	Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error)

	// Explain reports how the database would execute the query, at least its statement, without changing anything.
	// Errors are as in Query.
	Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error)

	// Ping reports whether the database answers.
	Ping(ctx context.Context) error

	// Close releases the driver's resources. No other method may be called afterwards.
	Close()
}

// Checkpoint is the position up to which one tenant's log is folded into a build.
type Checkpoint struct {
	Tenant   domain.TenantID
	Position int64
}

// OwnCheckpoint is the position up to which a tenant's log is folded into a build of that tenant's own projection.
type OwnCheckpoint struct {
	Tenant   domain.TenantID
	Build    int64
	Position int64
}
