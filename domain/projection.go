package domain

import (
	"encoding/json"
	"time"
)

// Mode says when a projection's documents are computed.
type Mode string

// The modes.
const (
	ModeAsync  Mode = "async"  // folded after the append, as fast as possible
	ModeInline Mode = "inline" // folded in the append's own transaction, in the log's own database
	ModeLive   Mode = "live"   // nothing is stored: folded on request
)

// OnError says what a projection does at an event that it cannot fold.
type OnError string

// The reactions.
const (
	OnErrorStop OnError = "stop" // stop before the event, for the one tenant that it belongs to
	OnErrorPark OnError = "park" // park the event's document: set its events aside and continue with all others
)

// Source says which events a projection sees.
type Source struct {
	Categories []string  `json:"categories,omitempty" yaml:"categories"` // none: all
	Query      QueryForm `json:"query,omitzero" yaml:"query"`            // no items: all
}

// Definition is a projection as data, as a team writes it in YAML or JSON.
type Definition struct {
	Name     string `json:"name" yaml:"name"`
	Database string `json:"database,omitempty" yaml:"database"` // name of a configured database; "default" if empty
	// Aggregate is the category of the aggregate whose streams' states are the documents; empty: none. Source, Key,
	// Initial and On are then copies of its rules, from when the definition was put. On's expressions are (state,
	// event) -> state or null, and an empty Initial means {}.
	Aggregate   string            `json:"aggregate,omitempty" yaml:"aggregate"`
	Source      Source            `json:"source,omitzero" yaml:"source"`
	Key         string            `json:"key,omitempty" yaml:"key"`                 // expression: event -> document id, or null; if empty event.stream, or event.id with Map
	Initial     json.RawMessage   `json:"initial,omitempty" yaml:"initial"`         // the document before its first event; {} if empty
	On          map[string]string `json:"on,omitempty" yaml:"on"`                   // event type, or "*" -> expression (doc, event) -> doc or null
	Map         map[string]string `json:"map,omitempty" yaml:"map"`                 // event type, or "*" -> expression event -> record or null; replaces Initial and On
	Handler     string            `json:"handler,omitempty" yaml:"handler"`         // a handler in Go that the program registers by this name; replaces Key, Initial, On and Map
	Indexes     []string          `json:"indexes,omitempty" yaml:"indexes"`         // paths in the document
	PartitionBy string            `json:"partitionBy,omitempty" yaml:"partitionBy"` // the path in the document by which every list of documents is restricted; empty: none
	Mode        Mode              `json:"mode,omitempty" yaml:"mode"`
	OnError     OnError           `json:"onError,omitempty" yaml:"onError"`
	// PublishChanges makes each change of a document an event of the category that ChangesCategory returns.
	PublishChanges bool     `json:"publishChanges,omitempty" yaml:"publishChanges"`
	Totals         *Totals  `json:"totals,omitempty" yaml:"totals"` // of a shared projection, what is summed for the operator; nil: nothing is
	Assert         []string `json:"assert,omitempty" yaml:"assert"` // expressions (doc) -> bool that every document of a rebuild must satisfy
}

// Totals says what of each tenant's documents is summed for the operator. Nothing else of the documents is read for it.
type Totals struct {
	Sum []string `json:"sum,omitempty" yaml:"sum"` // paths of numbers in the document; none: documents are only counted
	By  string   `json:"by,omitempty" yaml:"by"`   // the path of a value, such as a day; there are sums for each. Empty: one sum for all
}

// Types returns the event types that the definition folds; nil if "*" selects all of them.
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

// ChangesCategory returns both the category and the type of the events that a projection publishes when its documents
// change.
func ChangesCategory(projection string) string { return projection + ".changed" }

// ChangesStream returns the stream of the changes of a projection's document. A hash replaces an id that cannot be part
// of a stream's name.
func ChangesStream(projection, document string) string {
	category := ChangesCategory(projection)
	if stream := category + "-" + document; CheckStream("", stream) == nil {
		return stream
	}
	return category + "-" + DeriveEventID(category, document).String()
}

// ProjectionID identifies a projection by its name and its owner: a tenant, or Everyone for a shared projection.
type ProjectionID struct {
	Owner TenantID
	Name  string
}

// Shared reports whether the projection runs for every tenant.
func (id ProjectionID) Shared() bool { return id.Owner == Everyone }

// Projection is a projection's row. It alone decides which build is live and by which definition.
type Projection struct {
	ProjectionID
	Definition Definition
	Build      int64        // the live build's number
	Version    int64        // the definition's, from 1; see ProjectionVersion
	Revision   int64        // increases with each change of the row
	HeldBy     string       // the rebuild that holds the live build still for its swap; empty: none
	Inline     bool         // for one tenant: its appends fold into Build
	Fault      *TenantFault // for one tenant: why a rebuild left it on Build with Definition; nil: none did
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// RequireRevision returns CodePreconditionFailed unless the projection has this revision. No projection has revision 0.
func (p Projection) RequireRevision(revision int64) error {
	switch {
	case p.Revision == revision:
		return nil
	case revision == 0:
		return Errorf(CodePreconditionFailed, "", "there is a projection %q already", p.Name)
	}
	return Errorf(CodePreconditionFailed, "", "projection %q is at revision %d, not at %d: read it, and make your change to it", p.Name, p.Revision, revision)
}

// Build is one computation of a projection's documents. Its number is unique among all projections of the owner and is
// never reused.
type Build struct {
	ProjectionID
	Number      int64
	Database    string
	Indexes     []string
	PartitionBy string // the path that comes before each of Indexes; empty: none
}

// LiveBuild returns the build that readers see.
func (p *Projection) LiveBuild() Build {
	return Build{ProjectionID: p.ProjectionID, Number: p.Build, Database: p.Definition.Database, Indexes: p.Definition.Indexes, PartitionBy: p.Definition.PartitionBy}
}

// RetiredBuild is a build that is no longer read. It is kept until DropAt.
type RetiredBuild struct {
	Build
	DropAt time.Time
}

// ProjectionVersion is one of the definitions that a projection has had. The first is version 1. Each swap to another
// definition, and each rollback to an earlier one, adds a version. Versions are kept when the projection is deleted,
// and continue if it is created again under the same name.
type ProjectionVersion struct {
	ProjectionID
	Version    int64
	Definition Definition
	Cause      VersionCause
	By         string // a key's id and name, "operator", or "configuration"
	Rebuild    RebuildID
	At         time.Time
}

// VersionCause says why a version was created.
type VersionCause string

// The causes.
const (
	VersionCreated    VersionCause = "created"
	VersionChanged    VersionCause = "changed"
	VersionRolledBack VersionCause = "rolled-back"
	VersionRemoved    VersionCause = "removed" // Definition is its last one
)

// TenantBuild is the build that is live for one tenant, if it differs from the projection's own. That is the case after
// a rebuild for that tenant alone, and always for an inline projection, whose appends fold into exactly this build.
type TenantBuild struct {
	ProjectionID
	Tenant     TenantID
	Build      int64
	Base       int64       // applies while this is the projection's own live build; 0: always (inline)
	Definition *Definition // nil: the projection's
	HeldBy     string      // the rebuild that holds it still for its swap; empty: none
	// PinnedTo is a live build of the projection itself. While that build is live, the tenant keeps this build and
	// definition on purpose. 0: the tenant keeps them only until they are aligned with the projection's.
	PinnedTo  int64
	Fault     *TenantFault // why a rebuild left the tenant on this build; nil: none did
	UpdatedAt time.Time
}

// TenantFault says why a rebuild cannot give a tenant the new build: its events cannot be folded, or its documents fail
// validation.
type TenantFault struct {
	Tenant   TenantID `json:"tenant"`
	Reason   string   `json:"reason"`
	Position int64    `json:"position,omitempty"` // of the event that caused it; 0: no single event did
}

// MaxFaultedTenants limits how many tenants a rebuild may leave on their old build.
const MaxFaultedTenants = 1000

// FaultedTenants are the tenants that a rebuild leaves, or would leave, on their old build.
type FaultedTenants struct {
	Count int           `json:"count"`
	First []TenantFault `json:"first,omitempty"` // some of them
}

// Reading is what a projection's worker reads of a tenant's log in one round trip: first the head, then the events,
// then the projection's row. Each query has a separate snapshot. So if fewer events were returned than requested, the
// worker has seen every event of the source at or before Head. And if Held is false, nothing saved from this reading
// can miss a hold that is placed after it.
type Reading struct {
	Events []Event
	Head   int64
	Found  bool  // the projection's row exists
	Build  int64 // the build that is live for the tenant
	Held   bool  // a rebuild holds the live build still
	Inline bool  // the tenant's appends fold into that build (TenantBuild without a Base), so no worker follows it
	// RemovedTo is the highest position of the source that retention had removed shortly after the reading, if it is at
	// or above the first requested position. Events may then be missing there. 0: none.
	RemovedTo int64

	Upcasters UpcasterRevision // the upcasters in force for the tenant, no older than the events
}
