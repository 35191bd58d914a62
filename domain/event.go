package domain

import (
	"encoding/json"
	"strconv"
	"time"
)

// EventID identifies an event, uniquely within its tenant.
type EventID UUID

// NewEventID returns a new, time-ordered id.
func NewEventID() EventID { return EventID(NewUUID()) }

// ParseEventID parses the canonical form of a UUID.
func ParseEventID(text string) (EventID, error) {
	id, err := ParseUUID(text)
	return EventID(id), err
}

// DeriveEventID derives an event's id from its origin. The same parts always give the same id, so that repeating a
// request or an import appends nothing twice.
func DeriveEventID(parts ...string) EventID { return EventID(derivedUUID(parts...)) }

// String returns the canonical form of 36 characters.
func (id EventID) String() string { return UUID(id).String() }

// Append appends the canonical form of 36 characters to dst.
func (id EventID) Append(dst []byte) []byte { return UUID(id).append(dst) }

// IsZero reports whether no id was given.
func (id EventID) IsZero() bool { return id == EventID{} }

// Event is an immutable fact, as the log keeps it.
type Event struct {
	ID         EventID
	Stream     string
	Version    int64 // in its stream: 1, 2, 3 ...
	Position   int64 // in its tenant's log: 1, 2, 3 ...
	Type       string
	Data       json.RawMessage // any JSON value, in the form that JSONB returns
	Metadata   json.RawMessage // any JSON value; nil if none was given
	Tags       []string        // sorted, each once; nil if there are none
	OccurredAt time.Time       // as the client stated it; zero if it did not
	RecordedAt time.Time       // never runs backwards in a log
	Gap        *EventGap       // why Data is null and Metadata is missing; nil: both are as they were appended
	Erased     *EventErasure   // personal fields of Data were erased; nil: none, or Gap says that all is gone
}

// Bytes returns the size of the event's data, metadata and tags, as reads count it for their limit MaxBytes.
func (e *Event) Bytes() int {
	size := len(e.Data) + len(e.Metadata) + max(0, len(e.Tags)-1)
	for _, tag := range e.Tags {
		size += len(tag)
	}
	return size
}

// NewEvent is an event that a client wants to append.
type NewEvent struct {
	ID         EventID // zero: the store generates one, and a repeated request is not recognised
	Type       string
	Data       json.RawMessage // valid by CheckJSON
	Metadata   json.RawMessage // valid by CheckJSON, or nil
	Tags       []string        // as CheckTags returns them
	Derived    []string        // those of Tags that only the schema of the type gives it, in the same order
	OccurredAt time.Time       // zero if none was given; kept to the microsecond
}

// Bytes returns the size of the event as limits and usage count it: its type, data and metadata as they were sent.
func (e *NewEvent) Bytes() int { return len(e.Type) + len(e.Data) + len(e.Metadata) }

// Size returns the number of events of the append, and their bytes.
func (a Append) Size() (events, bytes int64) {
	for i := range a.Streams {
		events += int64(len(a.Streams[i].Events))
		for j := range a.Streams[i].Events {
			bytes += int64(a.Streams[i].Events[j].Bytes())
		}
	}
	return events, bytes
}

// Expected is the version that a stream must have before an append: a number, or one of Any, None and Exists.
type Expected int64

const (
	// Any accepts every version.
	Any Expected = -1
	// None requires a stream without events: version 0.
	None Expected = 0
	// Exists requires a stream with at least one event, of any version.
	Exists Expected = -2
)

// Holds reports whether a stream's version meets the expectation. Version 0 means that the stream has no event yet.
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

// String returns the form that the API uses: any, none, exists or a number.
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

// ParseExpected parses what String returns; "0" means None.
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
		return 0, Errorf(CodeInvalidRequest, "Expected-Version", "%q is not any, none, exists or a version such as 4", Clip(text, 40))
	}
	return Expected(version), nil
}

// StreamAppend holds what one request appends to one stream.
type StreamAppend struct {
	Stream   string
	Expected Expected
	Events   []NewEvent // at least one
}

// Append is one request. Either all of it is appended or nothing. Its events are consecutive in the log, in the
// request's order. A stream may occur more than once, to keep an order that alternates between streams. Then only its
// first occurrence may state a version; the later ones expect Any.
type Append struct {
	Streams    []StreamAppend
	Conditions []Condition // all must hold
}

// AppendedEvent gives the place of a request's event in the log.
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

// Appended is the result of an Append, with the streams in the request's order.
type Appended struct {
	Streams   []AppendedStream
	Position  int64 // the highest position of the request's events
	Duplicate bool  // every event already existed; these are the original positions, and nothing was written
	// Violations counts the events that violate their schemas, in categories that only warn.
	Violations int
}

// Direction is the order in which events are read.
type Direction int

// Forward reads from lower to higher versions or positions, Backward from higher to lower.
const (
	Forward Direction = iota
	Backward
)

// LogQuery says which events of a tenant's log to read.
type LogQuery struct {
	From       int64     // the first position to read, inclusive; 0: the log's end where the direction starts
	To         int64     // the last position to read, inclusive; 0: the log's end in the direction
	Limit      int       // at most this many events; at least 1
	MaxBytes   int       // stop after the event that exceeds this many bytes of data and metadata; 0: no limit
	Direction  Direction // by position
	Categories []string  // none: all
	Types      []string  // none: all
	// Query may leave out events that it does not match; none: it leaves out nothing. If all of its items have tags, a
	// long forward read finds the events by their tags alone, whatever their categories and types.
	Query Query
	// AsOf permits a replica to answer if it has everything that was committed at this time, by this process's clock.
	// Replicas answer only forward reads with a To, and backward ones with a From. Zero: only the primary answers.
	AsOf time.Time
}

// ByStreamQuery says which events of a log to read in the order of their streams' names, compared as bytes, and within
// a stream by version.
type ByStreamQuery struct {
	AfterStream  string    // with AfterVersion: begin after this event; empty: with the first stream
	AfterVersion int64     // 0: with the first event of AfterStream
	Category     string    // only streams of this category; empty: all
	Seeds        []Seed    // by stream: of theirs, only events after the seed; they require a Category
	UpToStream   string    // the last stream, with a Category; empty: the category's last
	To           int64     // only events at or before this position
	Types        []string  // none: all
	Limit        int       // at most this many events; at least 1
	MaxBytes     int       // as in LogQuery
	AsOf         time.Time // as in LogQuery
}

// StreamQuery says which events of a stream to read.
type StreamQuery struct {
	From      int64 // the first version to read, inclusive; 0: the stream's end where the direction starts
	To        int64 // the last version to read, inclusive; 0: the stream's end in the direction
	Limit     int   // at most this many events; at least 1
	MaxBytes  int   // as in LogQuery
	Direction Direction
	AsOf      time.Time // as in LogQuery; only forward reads with a To
}

// StreamInfo describes a stream without its events' data.
type StreamInfo struct {
	Stream       string
	Version      int64 // of its newest event, even if retention has removed that event
	Events       int64 // how many exist now; fewer than Version if retention removed some
	Bytes        int64 // of the events' data and metadata as JSON text; unreadable events count as 0
	FirstVersion int64 // of the oldest remaining event; 0: none remains
	FirstAt      time.Time
	LastAt       time.Time // both are zero if no event remains
}

// Head is the current end of a tenant's log.
type Head struct {
	Tenant   TenantID
	Position int64
	LastAt   time.Time // when the newest event was recorded; zero for an empty log
}
