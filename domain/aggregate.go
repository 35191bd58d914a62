package domain

import (
	"encoding/json"
	"strings"
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

// Folds reports whether the definition folds events of a type.
func (a *Aggregate) Folds(eventType string) bool {
	if _, ok := a.On["*"]; ok {
		return true
	}
	_, ok := a.On[eventType]
	return ok
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
	Tag     string // what made the state: DefinitionTag, or the client's own word
	State   json.RawMessage
	TakenAt time.Time
	// RemovedTo is the highest version that is missing in the state, since retention had removed its event; 0: none is.
	RemovedTo int64
}

// MaxTagBytes is the length that a client's own tag may have.
const MaxTagBytes = 100

// definitionPrefix begins the tags of states that Manifold folded. A client's tag cannot have a colon, so the two are
// never taken for one another: a new definition makes the snapshots of the older ones fall away, and leaves alone what a
// client keeps for its own folding.
const definitionPrefix = "def:"

// DefinitionTag is the tag of a snapshot that was folded by a definition, of which hash is a fingerprint.
func DefinitionTag(hash string) string { return definitionPrefix + hash }

// IsDefinitionTag reports whether tag is one that DefinitionTag gives.
func IsDefinitionTag(tag string) bool { return strings.HasPrefix(tag, definitionPrefix) }

// CheckTag reports what is wrong with a client's own tag: 1 to MaxTagBytes of letters, digits, and "_.-".
func CheckTag(where, tag string) error {
	return checkAlphabet(where, "tag", tag, MaxTagBytes, "_.-")
}
