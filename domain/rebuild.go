package domain

import (
	"encoding/json"
	"time"
)

// RebuildID names a rebuild.
type RebuildID uuid

// NewRebuildID returns a fresh, time-ordered id.
func NewRebuildID() RebuildID { return RebuildID(newUUID()) }

// ParseRebuildID reads the canonical form of a UUID.
func ParseRebuildID(text string) (RebuildID, error) {
	id, err := parseUUID(text)
	return RebuildID(id), err
}

// String returns the canonical form of 36 characters.
func (id RebuildID) String() string { return uuid(id).String() }

// RebuildState is where a rebuild is.
type RebuildState string

// The states, in their order. One that is swapped can still be rolled back; one of a dry run ends as RebuildReported.
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

// Ended reports whether nobody works on it any more.
func (s RebuildState) Ended() bool {
	switch s {
	case RebuildSwapped, RebuildReported, RebuildRolledBack, RebuildCancelled, RebuildFailed:
		return true
	}
	return false
}

// Rebuild is the making of a new build and its swap.
type Rebuild struct {
	ProjectionID
	ID         RebuildID
	Build      int64      // the new build's number
	Definition Definition // that it is made by, and that the swap makes the projection's
	RebuildOptions
	RollbackOf RebuildID // the rebuild that this one undoes: it goes on from where the old build stopped; zero: none
	By         string    // who started it, as ProjectionVersion.By

	State       RebuildState
	Cancel      bool   // somebody asked for it to be cancelled
	Paused      bool   // it rests until somebody lets it go on
	Approved    bool   // somebody approved of the swap
	Worker      string // the process that is at it; empty: none
	EventsDone  int64
	EventsTotal int64
	// EventsPerSecond is how many events were folded in a second lately, as its worker saw it; 0 where it folds none.
	EventsPerSecond float64
	Documents       int64       // counted when it is validated
	LiveBefore      int64       // documents that the live build had then
	Difference      *Difference // found when it is validated; nil before, and where there was nothing to compare with
	Loss            []Loss      // with AcceptLoss: what was missing, over all tenants; at most GapCategories
	// MaxFaulted is how many tenants of a shared projection it may leave on their old build since their events cannot be
	// folded, or their documents do not pass. Where there are more, or none is left that it could be swapped in for, it fails.
	MaxFaulted int
	Faulted    *FaultedTenants // those that were found so far; nil: none
	Error      string
	Previous   *Previous // what was live before the swap; nil before
	CreatedAt  time.Time
	StartedAt  time.Time // zero while queued
	UpdatedAt  time.Time
	EndedAt    time.Time // zero until State.Ended
}

// NewBuild returns the build that the rebuild makes.
func (r *Rebuild) NewBuild() Build {
	return Build{ProjectionID: r.ProjectionID, Number: r.Build, Database: r.Definition.Database, Indexes: r.Definition.Indexes, PartitionBy: r.Definition.PartitionBy}
}

// RebuildOptions is how a rebuild is to be done.
type RebuildOptions struct {
	Tenants            []TenantID    `json:"tenants,omitempty"`            // those alone, of a shared projection; none: all
	MaxEventsPerSecond int64         `json:"maxEventsPerSecond,omitempty"` // 0: as fast as it goes
	Manual             bool          `json:"manual,omitempty"`             // it waits for approval before it swaps
	DryRun             bool          `json:"dryRun,omitempty"`             // it builds, validates, reports, and drops what it made
	Keep               time.Duration `json:"keep,omitempty"`               // how long the old build stays, so that the rebuild can be rolled back; 0: as configured
	Assert             []string      `json:"assert,omitempty"`             // assertions for this rebuild, besides the definition's own
	AcceptLoss         bool          `json:"acceptLoss,omitempty"`         // it goes on where events that it needs were removed
}

// Previous is what a swap took the place of.
type Previous struct {
	Build      int64      `json:"build"` // 0: of a rebuild for some tenants, which came from different builds
	Definition Definition `json:"definition"`
}

// Difference is how the documents of a new build differ from those of the live one, both folded up to about the same
// position: documents that events changed while they were compared are left out.
type Difference struct {
	New      int64               `json:"new"`     // in the new build alone
	Gone     int64               `json:"gone"`    // in the live build alone
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
	Live   json.RawMessage `json:"live,omitempty"`   // cut off to those fields, with DifferenceChanged
	Built  json.RawMessage `json:"built,omitempty"`
}

// DifferenceKind says how a document differs.
type DifferenceKind string

// The kinds.
const (
	DifferenceNew     DifferenceKind = "new"
	DifferenceGone    DifferenceKind = "gone"
	DifferenceChanged DifferenceKind = "changed"
)
