package domain

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"
)

// Fault is an event that a build could not fold for one tenant. The build has stopped before that event.
type Fault struct {
	ProjectionID
	Tenant   TenantID
	Build    int64
	Position int64
	EventID  EventID
	Failure
	At      time.Time // when the build stopped
	Retries int64     // attempts since then that met the same fault
	RetryAt time.Time // when the event is tried again; zero if the previous release has stored the fault
}

// RetrySchedule says when a stopped build tries its event again: after First, and then after twice as long each time,
// after Longest at most.
type RetrySchedule struct{ First, Longest time.Duration }

// Jittered returns the schedule with up to a quarter less at random.
func (s RetrySchedule) Jittered() RetrySchedule {
	share := 1 - rand.Float64()/4
	return RetrySchedule{time.Duration(share * float64(s.First)), time.Duration(share * float64(s.Longest))}
}

// After returns how long to wait after a number of retries.
func (s RetrySchedule) After(retries int64) time.Duration {
	wait := s.First
	for ; retries > 0 && wait < s.Longest; retries-- {
		wait *= 2
	}
	return min(wait, s.Longest)
}

// Failure says what went wrong, where, and why.
type Failure struct {
	Stream     string          // the event's
	EventType  string          // likewise
	DocumentID string          // whose document the event was for; empty if the key could not be computed
	Where      string          // the part of the definition, such as "on.ItemAdded" or "key"
	Expression string          // its text, truncated if long; empty for Go code
	Message    string          // with the line and column in the expression, if there is one
	Before     json.RawMessage // the document before the event; nil if there was none or it is too large to keep here
}

// ParkedDocument is a document that a projection with OnErrorPark has parked for one tenant. The event that could
// not be folded into it, and all later events for it, wait as dead letters. The document keeps its state from before.
// If an event's document cannot be determined, the event is parked under ParkedEventID.
type ParkedDocument struct {
	ProjectionID
	Tenant   TenantID
	Build    int64
	ID       string  // the document's
	Position int64   // of the first waiting event
	EventID  EventID // of the event that could not be folded
	Events   int64   // the number of waiting events
	Failure
	ParkedAt time.Time
	Retries  int64     // automatic replays so far
	RetryAt  time.Time // the next one
	// RemovedAt is the position of an event by which a replay was about to remove the document; 0: none. If the
	// document no longer exists, the waiting events up to this position have taken effect.
	RemovedAt int64
}

// ParkedEventID returns the id under which an event is parked if its key cannot be computed: a space and the event's
// id. A document could have the same id through the same event's key. The only effect would be that both wait together.
func ParkedEventID(event EventID) string { return " " + event.String() }

// ParkedEvent is an event that waits for a parked document.
type ParkedEvent struct {
	DocumentID string
	Position   int64
}

// Exclusions is what a build does not fold for one tenant.
type Exclusions struct {
	Skipped   []int64            // the positions of the events that all of their documents skip, ascending
	SkippedBy map[int64][]string // by position: the only documents that skip the event
	Parked    map[string]int64   // by document id: the position from which its events wait
}

// Skips reports whether a document skips the event at a position. An empty id is that of any document.
func (e *Exclusions) Skips(position int64, document string) bool {
	_, found := slices.BinarySearch(e.Skipped, position)
	return found || slices.Contains(e.SkippedBy[position], document)
}

// SkipsAny reports whether any event is skipped, by all of its documents or by some.
func (e *Exclusions) SkipsAny() bool { return len(e.Skipped)+len(e.SkippedBy) > 0 }

// SkippedEvent is an event that somebody told a projection to skip for one tenant. A lasting skip applies to every
// build made until the skip is withdrawn, whatever the version of the definition.
type SkippedEvent struct {
	ProjectionID
	Tenant   TenantID
	Version  int64 // of the definition at the time of the skip
	Lasting  bool  // false in rows of earlier releases: only builds of that version skip the event
	Position int64
	// Documents are the ids of the documents that skip the event. There are none if all of its documents do.
	Documents []string
	EventID   EventID
	Message   string // of the fault that it caused
	Reason    string // as given by the caller
	By        string
	At        time.Time
}
