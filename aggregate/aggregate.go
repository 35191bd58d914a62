package aggregate

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Definition says how the events of a category's streams fold into a state.
type Definition struct {
	Category      string            `json:"category"`
	Initial       json.RawMessage   `json:"initial,omitempty"`       // the state before the first event; {} if empty
	On            map[string]string `json:"on"`                      // event type, or "*" -> expression (state, event) -> state
	SnapshotEvery int               `json:"snapshotEvery,omitempty"` // events between snapshots; 0: the default
	UpdatedAt     time.Time         `json:"-"`

	Commands map[string]CommandDefinition `json:"-"` // by name; they are stored separately
}

// Folds reports whether the definition folds events of the given type.
func (a *Definition) Folds(eventType string) bool {
	if _, ok := a.On["*"]; ok {
		return true
	}
	_, ok := a.On[eventType]
	return ok
}

// MaxAggregates is how many definitions a tenant may have. Concurrent creation may exceed it slightly. Beyond it, the
// error is domain.CodeQuotaExceeded.
const MaxAggregates = 1000

// DefaultSnapshotEvery is the number of events between two snapshots of a stream.
const DefaultSnapshotEvery = 100

// SnapshotsKept is how many of the newest snapshots of a stream and tag are kept.
const SnapshotsKept = 3

// Of older snapshots that Manifold folded, the first of each rung stays: of every rungEvents versions, or of more if
// states have more than rungBytes. So the state at any version is loaded by folding a few hundred events, and snapshots
// take at most rungBytes/rungEvents bytes an event.
const (
	rungEvents = 400
	rungBytes  = 64 << 10
)

// rung returns how many versions have one old snapshot, for states of this size. It is 0 for a client's tag, of which
// no old ones are kept.
func rung(tag string, stateBytes int) int64 {
	if !IsDefinitionTag(tag) {
		return 0
	}
	return rungEvents * int64(1+stateBytes/rungBytes)
}

// Snapshot is an aggregate's state at a version. Loading the aggregate can start from it instead of from version 1. A
// snapshot can be deleted at any time.
type Snapshot struct {
	Stream  string
	Version int64
	Tag     string // what produced the state: DefinitionTag, or the client's own tag
	State   json.RawMessage
	TakenAt time.Time
	// RemovedTo is the highest version that the state lacks because retention had removed its event; 0: it lacks none.
	RemovedTo int64
}

// maxTagBytes limits the length of a client's own tag.
const maxTagBytes = 100

// definitionPrefix begins the tags of states that Manifold folded. A client's tag cannot contain a colon, so the two
// kinds never collide. A new definition deletes the snapshots of older definitions, and leaves alone those that a
// client keeps for its own folding.
const definitionPrefix = "def:"

// DefinitionTag returns the tag of a snapshot that was folded by a definition; hash is the definition's fingerprint.
func DefinitionTag(hash string) string { return definitionPrefix + hash }

// IsDefinitionTag reports whether DefinitionTag returned tag.
func IsDefinitionTag(tag string) bool { return strings.HasPrefix(tag, definitionPrefix) }

// checkTag reports what is wrong with a client's own tag: 1 to maxTagBytes of letters, digits, and "_.-".
func checkTag(where, tag string) error {
	return domain.CheckAlphabet(where, "tag", tag, maxTagBytes, "_.-")
}
