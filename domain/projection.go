package domain

import (
	"encoding/json"
	"time"
)

// Mode says when a projection's documents are made.
type Mode string

// ModeAsync folds behind the append, as fast as the log grows.
const ModeAsync Mode = "async"

// OnError says what an event that cannot be folded does to its projection.
type OnError string

// OnErrorStop stops the projection before the event, for the one tenant whose event it is.
const OnErrorStop OnError = "stop"

// Source says which events a projection sees.
type Source struct {
	Categories []string `json:"categories,omitempty" yaml:"categories"` // none: all
}

// Definition is a projection as data: what a team writes in YAML or JSON.
type Definition struct {
	Name     string            `json:"name" yaml:"name"`
	Database string            `json:"database,omitempty" yaml:"database"` // named in the configuration; "default" where empty
	Source   Source            `json:"source,omitzero" yaml:"source"`
	Key      string            `json:"key,omitempty" yaml:"key"`         // expression: event -> document id, or null; event.stream where empty
	Initial  json.RawMessage   `json:"initial,omitempty" yaml:"initial"` // the document before its first event; {} where empty
	On       map[string]string `json:"on" yaml:"on"`                     // event type, or "*" -> expression (doc, event) -> doc or null
	Handler  string            `json:"handler,omitempty" yaml:"handler"` // a handler written in Go that the program registers by this name; instead of Key, Initial and On
	Indexes  []string          `json:"indexes,omitempty" yaml:"indexes"` // paths in the document
	Mode     Mode              `json:"mode,omitempty" yaml:"mode"`
	OnError  OnError           `json:"onError,omitempty" yaml:"onError"`
	Assert   []string          `json:"assert,omitempty" yaml:"assert"` // expressions (doc) -> bool that every document of a rebuild must pass
}

// Types returns the event types that the definition folds; nil where "*" makes it all of them.
func (d *Definition) Types() []string {
	types := make([]string, 0, len(d.On))
	for eventType := range d.On {
		if eventType == "*" {
			return nil
		}
		types = append(types, eventType)
	}
	return types
}

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
	Build      int64  // the live build's number
	Revision   int64  // grows with each change of the row
	HeldBy     string // the rebuild that holds the live build still while it swaps; empty: nobody
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// Build is one making of a projection's documents. Its number is unique for its owner, over all the owner's
// projections, and is never used again.
type Build struct {
	ProjectionID
	Number   int64
	Database string
	Indexes  []string
}

// LiveBuild returns the build that readers see.
func (p *Projection) LiveBuild() Build {
	return Build{ProjectionID: p.ProjectionID, Number: p.Build, Database: p.Definition.Database, Indexes: p.Definition.Indexes}
}

// RetiredBuild is a build that nobody reads any more, kept until DropAt.
type RetiredBuild struct {
	Build
	DropAt time.Time
}

// Fault is an event that a build could not fold for one tenant.
type Fault struct {
	ProjectionID
	Tenant   TenantID
	Build    int64
	Position int64
	EventID  EventID
	Message  string
	At       time.Time
}

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

// The states, in their order; the last three are the end.
const (
	RebuildQueued     RebuildState = "queued"
	RebuildBuilding   RebuildState = "building"
	RebuildCatchingUp RebuildState = "catching-up"
	RebuildValidating RebuildState = "validating"
	RebuildSwapped    RebuildState = "swapped"
	RebuildCancelled  RebuildState = "cancelled"
	RebuildFailed     RebuildState = "failed"
)

// Ended reports whether the state is final.
func (s RebuildState) Ended() bool {
	return s == RebuildSwapped || s == RebuildCancelled || s == RebuildFailed
}

// Rebuild is the making of a new build and its swap.
type Rebuild struct {
	ProjectionID
	ID          RebuildID
	Build       int64      // the new build's number
	Definition  Definition // that it is made by, and that the swap makes the projection's
	State       RebuildState
	Cancel      bool   // somebody asked for it to be cancelled
	Worker      string // the process that is at it; empty: none
	EventsDone  int64
	EventsTotal int64
	Documents   int64 // counted when it is validated
	LiveBefore  int64 // documents that the live build had then
	Error       string
	CreatedAt   time.Time
	StartedAt   time.Time // zero while queued
	UpdatedAt   time.Time
	EndedAt     time.Time // zero until State.Ended
}

// NewBuild returns the build that the rebuild makes.
func (r *Rebuild) NewBuild() Build {
	return Build{ProjectionID: r.ProjectionID, Number: r.Build, Database: r.Definition.Database, Indexes: r.Definition.Indexes}
}

// Reading is what a projection's worker reads of a tenant's log in one round trip: first the head, then the events,
// then the projection's row, each with a snapshot of its own. So, where fewer events came than were asked for, every
// event of the source at or below Head was seen; and where Held is false, a hold placed later than this reading cannot
// be missed by anything saved from it.
type Reading struct {
	Events []Event
	Head   int64
	Found  bool  // the projection's row is there
	Build  int64 // the live build
	Held   bool  // a rebuild holds the live build still
}
