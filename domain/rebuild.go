package domain

import (
	"encoding/json"
	"time"
)

// RebuildID identifies a rebuild.
type RebuildID UUID

// NewRebuildID returns a new, time-ordered id.
func NewRebuildID() RebuildID { return RebuildID(NewUUID()) }

// ParseRebuildID parses the canonical form of a UUID.
func ParseRebuildID(text string) (RebuildID, error) {
	id, err := ParseUUID(text)
	return RebuildID(id), err
}

// String returns the canonical form of 36 characters.
func (id RebuildID) String() string { return UUID(id).String() }

// RebuildState is the state of a rebuild.
type RebuildState string

// The states, in their order. A swapped rebuild can still be rolled back. A dry run ends as RebuildReported.
const (
	RebuildQueued           RebuildState = "queued"
	RebuildBuilding         RebuildState = "building"
	RebuildCatchingUp       RebuildState = "catching-up"
	RebuildValidating       RebuildState = "validating"
	RebuildAwaitingApproval RebuildState = "awaiting-approval"
	RebuildSwapped          RebuildState = "swapped"
	RebuildReported         RebuildState = "reported"
	RebuildRolledBack       RebuildState = "rolled-back"
	RebuildCancelled        RebuildState = "cancelled"
	RebuildFailed           RebuildState = "failed"
)

// Ended reports whether no more work is done on the rebuild.
func (s RebuildState) Ended() bool {
	switch s {
	case RebuildSwapped, RebuildReported, RebuildRolledBack, RebuildCancelled, RebuildFailed:
		return true
	}
	return false
}

// Rebuild creates a new build and swaps it in.
type Rebuild struct {
	ProjectionID
	ID         RebuildID
	Build      int64      // the new build's number
	Definition Definition // of the new build; the swap makes it the projection's
	RebuildOptions
	RollbackOf RebuildID // the rebuild that this one undoes, continuing where the old build stopped; zero: none
	By         string    // who started it, as ProjectionVersion.By

	State       RebuildState
	Cancel      bool   // cancellation was requested
	Paused      bool   // it waits until it is resumed
	Approved    bool   // the swap was approved
	Worker      string // the process that works on it; empty: none
	EventsDone  int64
	EventsTotal int64
	// EventsPerSecond is the recent rate of folded events, as its worker measured it; 0 if it folds none.
	EventsPerSecond float64
	Documents       int64       // counted during validation
	LiveBefore      int64       // documents of the live build at that time
	Difference      *Difference // found during validation; nil before, and if there was nothing to compare with
	Loss            []Loss      // with AcceptLoss: the missing events, over all tenants; at most GapCategories
	// MaxFaulted is how many tenants of a shared projection the rebuild may leave on their old build, because their
	// events cannot be folded or their documents fail validation. The rebuild fails if there are more, or if no
	// tenant is left to swap.
	MaxFaulted int
	Faulted    *FaultedTenants   // those found so far; nil: none
	Fills      map[TenantID]Fill // by tenant, while its documents are made stream by stream
	Seeded     int64             // documents that began from snapshots
	Error      string
	Previous   *Previous // what was live before the swap; nil before the swap
	CreatedAt  time.Time
	StartedAt  time.Time // zero while queued
	UpdatedAt  time.Time
	EndedAt    time.Time // zero until State.Ended
}

// Fill is how far a new build's documents of one tenant are made stream by stream, in the order of the streams' names.
// The documents of all streams up to and including that of Document are saved. Each is the result of all its events up
// to position To.
type Fill struct {
	To        int64  `json:"to"`
	Abandoned bool   `json:"abandoned,omitempty"` // the rest is made in the order of the log
	Document  string `json:"document,omitempty"`  // the id, which is the stream's name; empty: none is saved yet
	Version   int64  `json:"version,omitempty"`   // the saved document's
	Events    int64  `json:"events,omitempty"`    // folded into the saved documents
	Seeded    int64  `json:"seeded,omitempty"`    // saved documents that began from snapshots
}

// SeedQuery asks for seeds: states of streams from which a fill may begin, instead of folding the events before them.
type SeedQuery struct {
	Category    string
	Initial     json.RawMessage   // with On, the rules by which the states were folded: see Definition
	On          map[string]string //
	Upcasters   UpcasterRevision  // no older than the upcasters of the fold; those of the seeds are no older than these
	AfterStream string            // only later streams; empty: all
	To          int64             // only states of events at or before this position
}

// Seed is the state of a stream after its first Version events, all of which are in the log and can be read.
type Seed struct {
	Stream   string
	Version  int64
	State    json.RawMessage // an object; nil: the state is null
	Position int64           // of the last event that the rules fold
	Events   int64           // that the rules fold, at least 1
}

// SeedPage is a page of seeds, in the order of their streams' names, compared as bytes. Streams up to and including
// UpTo that are not among Seeds have none.
type SeedPage struct {
	Seeds []Seed
	UpTo  string // empty: all later streams
}

// NewBuild returns the build that the rebuild creates.
func (r *Rebuild) NewBuild() Build {
	return Build{ProjectionID: r.ProjectionID, Number: r.Build, Database: r.Definition.Database, Indexes: r.Definition.Indexes, PartitionBy: r.Definition.PartitionBy}
}

// RebuildOptions control a rebuild.
type RebuildOptions struct {
	Tenants            []TenantID    `json:"tenants,omitempty"`            // only these, of a shared projection; none: all
	MaxEventsPerSecond int64         `json:"maxEventsPerSecond,omitempty"` // 0: no limit
	Manual             bool          `json:"manual,omitempty"`             // wait for approval before the swap
	DryRun             bool          `json:"dryRun,omitempty"`             // build, validate, report, drop the new build
	Keep               time.Duration `json:"keep,omitempty"`               // how long to keep the old build for a rollback; 0: as configured
	Assert             []string      `json:"assert,omitempty"`             // for this rebuild, besides the definition's
	AcceptLoss         bool          `json:"acceptLoss,omitempty"`         // continue even if events that it needs were removed
	FromLog            bool          `json:"fromLog,omitempty"`            // begin no document from a snapshot
	NoExamples         bool          `json:"noExamples,omitempty"`         // keep no documents as Difference.Examples
}

// Previous is what a swap replaced.
type Previous struct {
	Build      int64      `json:"build"` // 0: a rebuild for some tenants, which had different builds
	Definition Definition `json:"definition"`
}

// Difference counts how the documents of a new build differ from those of the live build, both folded up to about the
// same position. Documents that events changed during the comparison are left out.
type Difference struct {
	New      int64               `json:"new"`     // only in the new build
	Gone     int64               `json:"gone"`    // only in the live build
	Changed  int64               `json:"changed"` // in both, with different content
	Same     int64               `json:"same"`
	Examples []DifferenceExample `json:"examples,omitempty"` // some of each kind
}

// DifferenceExample is a document that differs.
type DifferenceExample struct {
	Tenant TenantID        `json:"tenant"`
	ID     string          `json:"id"`
	Kind   DifferenceKind  `json:"kind"`
	Fields []string        `json:"fields,omitempty"` // paths that differ, with DifferenceChanged
	Live   json.RawMessage `json:"live,omitempty"`   // reduced to those fields, with DifferenceChanged
	Built  json.RawMessage `json:"built,omitempty"`
}

// DifferenceKind says how a document differs.
type DifferenceKind string

// The kinds.
const (
	DifferenceNew     DifferenceKind = "new"
	DifferenceGone    DifferenceKind = "gone"
	DifferenceChanged DifferenceKind = "changed"
	// DifferenceUnsettled is a difference that may only mean that one of the builds has not seen the newest events yet.
	// Differences are counted without it.
	DifferenceUnsettled DifferenceKind = "unsettled"
)
