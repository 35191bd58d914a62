package domain

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// TenantFloor is a RetentionFloor and the tenant whose log it belongs to.
type TenantFloor struct {
	Tenant TenantID
	RetentionFloor
}

// LogSlice is a part of a log as it was read, with a note of what had been removed.
type LogSlice struct {
	Events []Event
	// RemovedTo is the highest position that retention had removed of the requested categories, shortly after the
	// reading; 0: none.
	RemovedTo int64
}

// StreamSlice is a part of a stream as it was read, with a note of what had been removed.
type StreamSlice struct {
	Events []Event
	// Floor is the version that the stream had when retention removed its newest event, as known shortly after the
	// reading; 0: retention never did. The stream's version is that of its newest event, or Floor if that is higher.
	Floor int64
	// RemovedTo is as in LogSlice, for the stream's category.
	RemovedTo int64
}

// Version returns the stream's version, provided that the slice contains the stream's newest event if there is one. It
// is the version of that event or the floor. 0: there never was an event.
func (s *StreamSlice) Version() int64 {
	version := s.Floor
	for i := range s.Events {
		version = max(version, s.Events[i].Version)
	}
	return version
}

// Gap says that retention has removed events of some categories in a range of the log that a reader has reached. It
// covers all types and streams of these categories. Whether the reader would have received one of those events is no
// longer known. Remaining events in the range are delivered as usual.
type Gap struct {
	From       int64    // the first position that may be missing
	To         int64    // the last position that may be missing
	Categories []string // by name, at most GapCategories
}

// GapReason says why an event comes without its data. More reasons may be added.
type GapReason string

// The reasons.
const (
	GapUnreadable GapReason = "unreadable" // PostgreSQL cannot print it: an earlier release accepted numbers that are too long
	GapRedacted   GapReason = "redacted"   // the operator has removed it
	GapErased     GapReason = "erased"     // it was erased with the data of a person
)

// EventErasure says that personal fields of an event are null because they were erased. The rest is as it was appended.
type EventErasure struct {
	Erasure UUID      // the last one
	At      time.Time // when it changed the event
}

// Append appends the erasure as JSON.
func (e *EventErasure) Append(b []byte) []byte {
	b = append(append(append(b, `{"erasure":"`...), e.Erasure.String()...), `","at":"`...)
	return append(AppendTime(b, e.At), `"}`...)
}

// EventGap takes the place of the data and metadata of an event whose content cannot be delivered. The event itself
// keeps its place in the log.
type EventGap struct {
	Reason  GapReason `json:"reason"`
	Message string    `json:"message"` // for people
	At      time.Time `json:"at"`      // since when
}

// Append appends the gap as JSON.
func (g *EventGap) Append(b []byte) []byte {
	b = AppendText(append(b, `{"reason":`...), string(g.Reason))
	b = AppendText(append(b, `,"message":`...), g.Message)
	b = AppendTime(append(b, `,"at":"`...), g.At)
	return append(b, `"}`...)
}

// WithData returns the events that have data. It reuses the memory of its argument.
func WithData(events []Event) []Event {
	return slices.DeleteFunc(events, func(e Event) bool { return e.Gap != nil })
}

// UnreadableEvent identifies an event whose data cannot be read.
type UnreadableEvent struct {
	Position int64
	ID       EventID
	Stream   string
	Version  int64
	Type     string
}

// GapCategories limits the categories that a Gap or a list of losses names. If there are more, those with the highest
// removed positions are named.
const GapCategories = 100

// NewGap returns the gap for a reader that begins at a position: everything that was removed at or after it. It returns
// nil if nothing was.
func NewGap(from int64, floors []RetentionFloor) *Gap {
	met := slices.DeleteFunc(slices.Clone(floors), func(r RetentionFloor) bool { return r.RemovedTo < from })
	if len(met) == 0 {
		return nil
	}
	slices.SortFunc(met, func(a, b RetentionFloor) int { return cmp.Compare(b.RemovedTo, a.RemovedTo) })
	gap := &Gap{From: from, To: met[0].RemovedTo}
	for _, r := range met[:min(len(met), GapCategories)] {
		gap.Categories = append(gap.Categories, r.Category)
	}
	slices.Sort(gap.Categories)
	return gap
}

// Loss says that events of a category were missing when documents or a rebuild were made.
type Loss struct {
	Category  string `json:"category"`
	RemovedTo int64  `json:"removedTo"` // events up to this position may be missing
}

// MergeLosses merges two lists of losses into one loss per category, each with the highest position, sorted by
// category. It keeps at most GapCategories losses, those with the highest positions.
func MergeLosses(losses, more []Loss) []Loss {
	if len(more) == 0 {
		return losses
	}
	highest := make(map[string]int64, len(losses)+len(more))
	for _, loss := range slices.Concat(losses, more) {
		highest[loss.Category] = max(highest[loss.Category], loss.RemovedTo)
	}
	merged := make([]Loss, 0, len(highest))
	for category, to := range highest {
		merged = append(merged, Loss{category, to})
	}
	slices.SortFunc(merged, func(a, b Loss) int {
		return cmp.Or(cmp.Compare(b.RemovedTo, a.RemovedTo), cmp.Compare(a.Category, b.Category))
	})
	merged = merged[:min(len(merged), GapCategories)]
	slices.SortFunc(merged, func(a, b Loss) int { return cmp.Compare(a.Category, b.Category) })
	return merged
}

// EventsRemoved returns an error for an operation that needs events which are removed or about to be removed. There
// must be at least one loss. The text of remedy says how to proceed nevertheless.
func EventsRemoved(where string, losses []Loss, remedy string) *Error {
	worst := slices.MaxFunc(losses, func(a, b Loss) int { return cmp.Compare(a.RemovedTo, b.RemovedTo) })
	others := ""
	if len(losses) > 1 {
		others = fmt.Sprintf(", and of %d more categories", len(losses)-1)
	}
	return Errorf(CodeEventsRemoved, where, "retention has removed events that this needs, or is removing them: of category %s up to position %d%s; %s",
		worst.Category, worst.RemovedTo, others, remedy)
}
