package domain

import (
	"encoding/json"
	"time"
)

// Aggregate says how the events of a category's streams fold into a state.
type Aggregate struct {
	Category      string            `json:"category"`
	Initial       json.RawMessage   `json:"initial,omitempty"`       // the state before the first event; {} where empty
	On            map[string]string `json:"on"`                      // event type, or "*" -> expression (state, event) -> state
	SnapshotEvery int               `json:"snapshotEvery,omitempty"` // events between snapshots; DefaultSnapshotEvery where 0
	UpdatedAt     time.Time         `json:"-"`
}

// DefaultSnapshotEvery is the number of events between two snapshots of a stream.
const DefaultSnapshotEvery = 100

// SnapshotsKept is how many snapshots of a stream and tag are kept; older ones fall away.
const SnapshotsKept = 3

// Snapshot is an aggregate's state at a version, kept so that loading it does not start at version 1. It can be thrown
// away at any time.
type Snapshot struct {
	Stream  string
	Version int64
	Tag     string // what made the state: a hash of the definition, or the client's own word
	State   json.RawMessage
	TakenAt time.Time
}
