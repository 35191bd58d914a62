package domain

import (
	"encoding/json"
	"time"
)

// Fault is an event that a build could not fold for one tenant, and before which it stands still.
type Fault struct {
	ProjectionID
	Tenant   TenantID
	Build    int64
	Position int64
	EventID  EventID
	Failure
	At time.Time
}

// Failure says what went wrong where, with all that is needed to see why.
type Failure struct {
	Stream     string          // the event's
	EventType  string          // likewise
	DocumentID string          // whose document it was for; empty where the key could not be worked out
	Where      string          // the part of the definition, such as "on.ItemAdded" or "key"
	Expression string          // its text, cut off where it is long; empty where it is Go code
	Message    string          // with the line and column in the expression, where there is one
	Before     json.RawMessage // the document before the event; nil where there was none, or where it is too large to be kept here
}

// ParkedDocument is a document that a projection with OnErrorPark has set aside for one tenant: the event that it could not
// be folded by, and all its later ones, wait as dead letters. The document itself stays as it was before. An event whose
// document cannot be told is parked by itself, see ParkedEventID.
type ParkedDocument struct {
	ProjectionID
	Tenant   TenantID
	Build    int64
	ID       string  // the document's
	Position int64   // of the first event that waits
	EventID  EventID // of the event that could not be folded
	Events   int64   // that wait
	Failure
	ParkedAt time.Time
	// A replay was about to remove the document by the event at this position: where it is not there, what waits up to here has
	// taken effect. 0: none was.
	RemovedAt int64
}

// ParkedEventID is the id under which an event is parked whose key cannot be worked out: a blank and the event's id. A
// document may have such an id, too, by the same event's key; nothing else would come of it than waiting together.
func ParkedEventID(event EventID) string { return " " + event.String() }

// ParkedEvent is an event that waits for a parked document.
type ParkedEvent struct {
	DocumentID string
	Position   int64
}

// Aside is what a build leaves out of its folding for one tenant.
type Aside struct {
	Skipped []int64          // the positions of the events that are passed over, in their order
	Parked  map[string]int64 // by document id: the position from which on its events wait
}

// SkippedEvent is an event that somebody has told a projection to pass over for one tenant. A lasting one is passed over in
// every build that is made until the skip is withdrawn, by whatever version of the definition.
type SkippedEvent struct {
	ProjectionID
	Tenant   TenantID
	Version  int64 // of the definition, when it was skipped
	Lasting  bool  // false in rows of earlier releases: builds by that version alone pass it over
	Position int64
	EventID  EventID
	Message  string // of the fault that it caused
	Reason   string // as given
	By       string
	At       time.Time
}
