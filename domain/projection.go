package domain

import (
	"encoding/json"
	"time"
)

// Mode says when a projection's documents are made.
type Mode string

// The modes.
const (
	ModeAsync  Mode = "async"  // folded behind the append, as fast as the log grows
	ModeInline Mode = "inline" // folded in the append's own transaction, in the log's own database
	ModeLive   Mode = "live"   // nothing is stored: folded when asked for
)

// OnError says what an event that cannot be folded does to its projection.
type OnError string

// What can become of it.
const (
	OnErrorStop OnError = "stop" // the projection stops before the event, for the one tenant whose event it is
	OnErrorPark OnError = "park" // the event's document is parked: its events are set aside, all others go on
)

// Source says which events a projection sees.
type Source struct {
	Categories []string `json:"categories,omitempty" yaml:"categories"` // none: all
}

// Definition is a projection as data: what a team writes in YAML or JSON.
type Definition struct {
	Name        string            `json:"name" yaml:"name"`
	Database    string            `json:"database,omitempty" yaml:"database"` // named in the configuration; "default" where empty
	Source      Source            `json:"source,omitzero" yaml:"source"`
	Key         string            `json:"key,omitempty" yaml:"key"`                 // expression: event -> document id, or null; event.stream where empty, with Map event.id
	Initial     json.RawMessage   `json:"initial,omitempty" yaml:"initial"`         // the document before its first event; {} where empty
	On          map[string]string `json:"on,omitempty" yaml:"on"`                   // event type, or "*" -> expression (doc, event) -> doc or null
	Map         map[string]string `json:"map,omitempty" yaml:"map"`                 // event type, or "*" -> expression event -> record or null; instead of Initial and On
	Handler     string            `json:"handler,omitempty" yaml:"handler"`         // a handler written in Go that the program registers by this name; instead of Key, Initial, On and Map
	Indexes     []string          `json:"indexes,omitempty" yaml:"indexes"`         // paths in the document
	PartitionBy string            `json:"partitionBy,omitempty" yaml:"partitionBy"` // the path in the document by which every list of documents is narrowed; empty: none
	Mode        Mode              `json:"mode,omitempty" yaml:"mode"`
	OnError     OnError           `json:"onError,omitempty" yaml:"onError"`
	// PublishChanges is that each change of a document becomes an event of the category ChangesCategory gives.
	PublishChanges bool     `json:"publishChanges,omitempty" yaml:"publishChanges"`
	Assert         []string `json:"assert,omitempty" yaml:"assert"` // expressions (doc) -> bool that every document of a rebuild must pass
}

// Types returns the event types that the definition folds; nil where "*" makes it all of them.
func (d *Definition) Types() []string {
	rules := d.On
	if len(d.Map) > 0 {
		rules = d.Map
	}
	types := make([]string, 0, len(rules))
	for eventType := range rules {
		if eventType == "*" {
			return nil
		}
		types = append(types, eventType)
	}
	return types
}

// ChangesCategory is the category, and the type, of the events that a projection publishes when its documents change.
func ChangesCategory(projection string) string { return projection + ".changed" }

// ProjectionID names a projection: the tenant whose own it is, or Everyone for a shared one, and its name.
type ProjectionID struct {
	Owner TenantID
	Name  string
}

// Shared reports whether the projection runs for every tenant.
func (id ProjectionID) Shared() bool { return id.Owner == Everyone }

// Projection is a projection's row: the one place that says which build is live and by which definition.
type Projection struct {
	ProjectionID
	Definition Definition
	Build      int64        // the live build's number
	Version    int64        // the definition's, from 1; see ProjectionVersion
	Revision   int64        // grows with each change of the row
	HeldBy     string       // the rebuild that holds the live build still while it swaps; empty: nobody
	Inline     bool         // as one tenant sees it: its appends fold into Build
	Fault      *TenantFault // as one tenant sees it: why a rebuild left it on Build, by Definition; nil: none did
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// Build is one making of a projection's documents. Its number is unique for its owner, over all the owner's
// projections, and is never used again.
type Build struct {
	ProjectionID
	Number      int64
	Database    string
	Indexes     []string
	PartitionBy string // the path that stands before each of Indexes; empty: none
}

// LiveBuild returns the build that readers see.
func (p *Projection) LiveBuild() Build {
	return Build{ProjectionID: p.ProjectionID, Number: p.Build, Database: p.Definition.Database, Indexes: p.Definition.Indexes, PartitionBy: p.Definition.PartitionBy}
}

// RetiredBuild is a build that nobody reads any more, kept until DropAt.
type RetiredBuild struct {
	Build
	DropAt time.Time
}

// ProjectionVersion is one of the definitions that a projection has had. Its first is version 1; each swap of another
// definition, and each rollback to an earlier one, makes the next. Versions are kept when the projection is deleted, and go
// on where it is made again under the same name.
type ProjectionVersion struct {
	ProjectionID
	Version    int64
	Definition Definition
	Cause      VersionCause
	By         string // who: a key's id and name, "operator", or "configuration"
	Rebuild    RebuildID
	At         time.Time
}

// VersionCause says how a version came about.
type VersionCause string

// The causes.
const (
	VersionCreated    VersionCause = "created"
	VersionChanged    VersionCause = "changed"
	VersionRolledBack VersionCause = "rolled-back"
	VersionRemoved    VersionCause = "removed" // Definition is the one that it had last
)

// TenantBuild is the build that is live for one tenant, where it is not simply the projection's own: after a rebuild for
// that tenant alone, and always for an inline projection, whose appends fold into exactly this build.
type TenantBuild struct {
	ProjectionID
	Tenant     TenantID
	Build      int64
	Base       int64       // it is in force while this is the projection's own live build; 0: in any case (inline)
	Definition *Definition // nil: the projection's
	HeldBy     string      // the rebuild that holds it still while it swaps; empty: nobody
	// PinnedTo is the projection's own live build for as long as which the tenant has this build and definition on purpose;
	// 0: it has them only until they are brought in line with the projection's.
	PinnedTo  int64
	Fault     *TenantFault // why a rebuild left the tenant on this build; nil: none did
	UpdatedAt time.Time
}

// TenantFault is why a rebuild cannot give a tenant the new build: its events cannot be folded, or its documents do not
// pass.
type TenantFault struct {
	Tenant   TenantID `json:"tenant"`
	Reason   string   `json:"reason"`
	Position int64    `json:"position,omitempty"` // of the event that it is about; 0: it is not about one
}

// MaxFaultedTenants is how many tenants a rebuild leaves on their old build at most.
const MaxFaultedTenants = 1000

// FaultedTenants are the tenants that a rebuild leaves on their old build, or would.
type FaultedTenants struct {
	Count int           `json:"count"`
	First []TenantFault `json:"first,omitempty"` // some of them
}

// Reading is what a projection's worker reads of a tenant's log in one round trip: first the head, then the events,
// then the projection's row, each with a snapshot of its own. So, where fewer events came than were asked for, every
// event of the source at or below Head was seen; and where Held is false, a hold placed later than this reading cannot
// be missed by anything saved from it.
type Reading struct {
	Events []Event
	Head   int64
	Found  bool  // the projection's row is there
	Build  int64 // the build that is live for the tenant
	Held   bool  // a rebuild holds the live build still
	Inline bool  // the tenant's appends fold into that build (TenantBuild without a Base): nobody follows it
	// RemovedTo is the highest position that retention had removed of the source, a moment behind the reading, where that is at the
	// first position that was asked for or above it: events may be missing there. 0: none is.
	RemovedTo int64

	Upcasters UpcasterRevision // which are in force for the tenant, no older than the events
}
