package domain

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// TenantFloor is a RetentionFloor with the tenant whose log it is about.
type TenantFloor struct {
	Tenant TenantID
	RetentionFloor
}

// LogSlice is a part of a log as it was read, and what was no longer there.
type LogSlice struct {
	Events []Event
	// RemovedTo is the highest position that retention had removed of the categories that were read, a moment behind the
	// reading; 0: none.
	RemovedTo int64
}

// StreamSlice is a part of a stream as it was read, and what was no longer there.
type StreamSlice struct {
	Events []Event
	// Floor is the version that the stream had when retention removed its newest event, a moment behind the reading; 0: it
	// never did. The stream's version is that of its newest event, or this where it is higher.
	Floor int64
	// RemovedTo is as LogSlice has it, of the stream's category.
	RemovedTo int64
}

// Version is the stream's, where the slice has its newest event, if there is one: that of the event, or the floor. 0: there never
// was an event.
func (s *StreamSlice) Version() int64 {
	version := s.Floor
	for i := range s.Events {
		version = max(version, s.Events[i].Version)
	}
	return version
}

// Gap says that retention has removed events of categories from a stretch of the log that a reader has come to. It is about
// events of all types and streams of these categories: whether the reader would have been given one of them nobody knows any
// more. Events within the stretch that are left are given as usual.
type Gap struct {
	From       int64    // the first position that may be missing
	To         int64    // the last one
	Categories []string // by name, at most GapCategories of them
}

// GapReason is why an event comes without its data. More may be added.
type GapReason string

// The reasons.
const (
	GapUnreadable GapReason = "unreadable" // PostgreSQL cannot print it: an earlier release took numbers that are too long
	GapRedacted   GapReason = "redacted"   // the operator has removed it
)

// EventGap stands for the data and metadata of an event that is in its place in the log, and whose content nobody is given.
type EventGap struct {
	Reason  GapReason `json:"reason"`
	Message string    `json:"message"` // for people
	At      time.Time `json:"at"`      // since when
}

// Append appends it as JSON.
func (g *EventGap) Append(b []byte) []byte {
	b = AppendText(append(b, `{"reason":`...), string(g.Reason))
	b = AppendText(append(b, `,"message":`...), g.Message)
	b = AppendTime(append(b, `,"at":"`...), g.At)
	return append(b, `"}`...)
}

// WithData returns those events that have data, in the same memory.
func WithData(events []Event) []Event {
	return slices.DeleteFunc(events, func(e Event) bool { return e.Gap != nil })
}

// UnreadableEvent is where an event is whose data cannot be read.
type UnreadableEvent struct {
	Position int64
	ID       EventID
	Stream   string
	Version  int64
	Type     string
}

// GapCategories is how many categories a Gap and a loss name at most: of more, those of which the highest positions are gone.
const GapCategories = 100

// NewGap makes the gap that a reader meets who begins at a position, of what was removed there and above; nil where that is
// nothing.
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

// Loss says of documents, or of a rebuild, that events of a category were gone when they were made.
type Loss struct {
	Category  string `json:"category"`
	RemovedTo int64  `json:"removedTo"` // up to here some may be missing
}

// MergeLosses adds losses to others: one for each category, with the highest position, by the categories' names; at most
// GapCategories of them, those with the highest positions.
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

// EventsRemoved refuses what would need events that are gone, or are about to go; losses has at least one. remedy says how to
// have it all the same.
func EventsRemoved(where string, losses []Loss, remedy string) *Error {
	worst := slices.MaxFunc(losses, func(a, b Loss) int { return cmp.Compare(a.RemovedTo, b.RemovedTo) })
	others := ""
	if len(losses) > 1 {
		others = fmt.Sprintf(", and of %d more categories", len(losses)-1)
	}
	return Errorf(CodeEventsRemoved, where, "retention has removed events that this needs, or is removing them: of category %s up to position %d%s; %s",
		worst.Category, worst.RemovedTo, others, remedy)
}
