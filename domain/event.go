package domain

import (
	"encoding/json"
	"strconv"
	"time"
)

// EventID names an event, uniquely within its tenant.
type EventID uuid

// NewEventID returns a fresh, time-ordered id.
func NewEventID() EventID { return EventID(newUUID()) }

// ParseEventID reads the canonical form of a UUID.
func ParseEventID(text string) (EventID, error) {
	id, err := parseUUID(text)
	return EventID(id), err
}

// DeriveEventID returns the id that an event has by where it came from: the same parts always give the same id, so that
// repeating a request or an import appends nothing twice.
func DeriveEventID(parts ...string) EventID { return EventID(derivedUUID(parts...)) }

// String returns the canonical form of 36 characters.
func (id EventID) String() string { return uuid(id).String() }

// Append writes the canonical form of 36 characters behind dst.
func (id EventID) Append(dst []byte) []byte { return uuid(id).append(dst) }

// IsZero reports whether no id was given.
func (id EventID) IsZero() bool { return id == EventID{} }

// Event is an immutable fact, as the log keeps it.
type Event struct {
	ID         EventID
	Stream     string
	Version    int64 // in its stream: 1, 2, 3 ...
	Position   int64 // in its tenant's log: 1, 2, 3 ...
	Type       string
	Data       json.RawMessage // any JSON value, in the form that JSONB gives back
	Metadata   json.RawMessage // any JSON value; nil where none was given
	OccurredAt time.Time       // the client's word; zero where none was given
	RecordedAt time.Time       // never runs backwards in a log
	Gap        *EventGap       // why Data is null and there is no Metadata; nil: they are as they were appended
}

// NewEvent is an event that a client wants to append.
type NewEvent struct {
	ID         EventID // zero: the store gives a fresh one, and a repeat of the request is not recognised
	Type       string
	Data       json.RawMessage // valid by CheckJSON
	Metadata   json.RawMessage // valid by CheckJSON, or nil
	OccurredAt time.Time       // zero where none was given; kept to the microsecond
}

// Expected is the version that a stream must have for an append to be made: a number, or one of Any, None and Exists.
type Expected int64

const (
	// Any accepts whatever is there.
	Any Expected = -1
	// None wants a stream without events: version 0.
	None Expected = 0
	// Exists wants a stream that has at least one event, of any version.
	Exists Expected = -2
)

// Holds reports whether a stream at version (0: no event yet) is as expected.
func (e Expected) Holds(version int64) bool {
	switch e {
	case Any:
		return true
	case Exists:
		return version > 0
	default:
		return version == int64(e)
	}
}

// String gives the form that the API uses: any, none, exists or a number.
func (e Expected) String() string {
	switch e {
	case Any:
		return "any"
	case None:
		return "none"
	case Exists:
		return "exists"
	default:
		return strconv.FormatInt(int64(e), 10)
	}
}

// ParseExpected reads what String gives; "0" means None.
func ParseExpected(text string) (Expected, error) {
	switch text {
	case "any":
		return Any, nil
	case "none":
		return None, nil
	case "exists":
		return Exists, nil
	}
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version < 0 {
		return 0, Errorf(CodeInvalidRequest, "Expected-Version", "%q is not any, none, exists or a version such as 4", clip(text, 40))
	}
	return Expected(version), nil
}

// StreamAppend is what one request adds to one stream.
type StreamAppend struct {
	Stream   string
	Expected Expected
	Events   []NewEvent // at least one
}

// Append is one request: all of it is appended, or nothing, and its events stand in the log one behind the other in its
// order. A stream may come again further down, to keep an order that goes to and fro between streams, with Any expected
// there: only its first place can say which version the stream must have.
type Append struct {
	Streams []StreamAppend
}

// AppendedEvent says where an event of a request is in the log.
type AppendedEvent struct {
	ID       EventID
	Version  int64
	Position int64
}

// AppendedStream is a stream after an append to it.
type AppendedStream struct {
	Stream  string
	Version int64 // of the last of Events
	Events  []AppendedEvent
}

// Appended is the answer to an Append: its streams in the request's order.
type Appended struct {
	Streams   []AppendedStream
	Position  int64 // the highest position of the request's events
	Duplicate bool  // every event was there already; these are their first positions, and nothing was written
}

// Direction is the order in which events are read.
type Direction int

// Forward reads from lower to higher; Backward from higher to lower.
const (
	Forward Direction = iota
	Backward
)

// LogQuery says which events of a tenant's log to read.
type LogQuery struct {
	From       int64     // the first position to read, included; 0 means the log's end in the query's direction of travel
	To         int64     // forward only: the last position to read, included; 0 means the head
	Limit      int       // at most this many events; at least 1
	MaxBytes   int       // stop behind the event that passes this many bytes of data and metadata; 0: no such bound
	Direction  Direction // by position
	Categories []string  // none: all
	Types      []string  // none: all
}

// StreamQuery says which events of a stream to read.
type StreamQuery struct {
	From      int64 // the first version to read, included; 0 means the stream's end in the query's direction of travel
	To        int64 // forward only: the last version to read, included; 0 means the newest
	Limit     int   // at most this many events; at least 1
	MaxBytes  int   // as in LogQuery
	Direction Direction
}

// StreamInfo is what can be said of a stream without reading its events' data.
type StreamInfo struct {
	Stream       string
	Version      int64 // of its newest event, also where retention has removed that
	Events       int64 // how many it has now; fewer than Version where retention removed some
	Bytes        int64 // of the events' data and metadata as JSON text; those that cannot be read count as 0
	FirstVersion int64 // of the oldest event that is left; 0: none is
	FirstAt      time.Time
	LastAt       time.Time // both zero where no event is left
}

// Head is how far a tenant's log has come.
type Head struct {
	Tenant   TenantID
	Position int64
	LastAt   time.Time // recorded time of the newest event; zero for an empty log
}
