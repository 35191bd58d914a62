package tail

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// history reads from the log the events that a follower still needs and its tail no longer has.
type history struct {
	tail      *tail
	selection *selection.Selection
	scale     int // slice size, in 16ths of the largest

	// During a read these belong to the reading goroutine, otherwise to the feed.
	version int64 // of the next event of the selection's stream; 0: not known
	window  int64 // how many positions one read covers if it asks for only some of their events
}

// Slices start small. They double while the follower takes them fast, and become small again when it is slow, because a
// slice that waits for the follower is in memory.
const (
	historyBytes = 512 << 10 // the largest, with sliceEvents

	scaleMost    = 16
	scaleLeast   = 1
	scaleFirst   = 2
	fastFollower = 250 * time.Millisecond
	slowFollower = 2 * time.Second
)

// A read that searches for rare events should take about this long, so that a checkpoint can be reported and other
// followers get their turn.
const (
	firstWindow = 10_000
	lookedFast  = 50 * time.Millisecond
	lookedSlow  = 250 * time.Millisecond
)

func newHistory(tail *tail, selection *selection.Selection) history {
	return history{tail: tail, selection: selection, window: firstWindow, scale: scaleFirst}
}

// adjustScale adjusts the slice size to how long the follower took for its last slice, which it received at returnedAt.
func (h *history) adjustScale(returnedAt time.Time) {
	switch took := time.Since(returnedAt); {
	case returnedAt.IsZero():
	case took < fastFollower:
		h.scale = min(2*h.scale, scaleMost)
	case took > slowFollower:
		h.scale = scaleLeast
	}
}

// size returns how large the next slice may be.
func (h *history) size() (scale int) {
	if h.tail.tails.behind.Load() > h.tail.tails.maxBehind {
		return scaleLeast
	}
	return h.scale
}

// readsAhead reports whether the next slice may be read before the follower asks for it.
func (h *history) readsAhead() bool { return h.size() > scaleLeast }

// noteVersion records the version of an entry that the follower received from its tail's memory.
func (h *history) noteVersion(e *Entry) {
	if h.selection.Stream != "" && e.Event.Stream == h.selection.Stream {
		h.version = e.Event.Version + 1
	}
}

// fetched is a part of the log that is read in the background for a follower.
type fetched struct {
	done    chan struct{}
	entries []*Entry // all selected events from where the read began up to upTo
	bytes   int      // of entries
	upTo    int64
	gap     selection.Gap // to be reported to the follower before the entries
	err     error
}

// fetch reads the events after a position. known is what the follower already knows to be gone. The goroutine ends when
// ctx does.
func (h *history) fetch(ctx context.Context, after int64, known selection.KnownGaps) *fetched {
	s := &fetched{done: make(chan struct{})}
	scale := h.size()
	go func() {
		defer close(s.done)
		var events []domain.Event
		s.err = h.tail.tails.try(ctx, h.tail.tenant, h.isTemporary, func(ctx context.Context) (err error) {
			var removedTo int64
			if events, s.upTo, removedTo, err = h.read(ctx, after, scale); err != nil {
				return err
			}
			s.gap, err = selection.GapOf(ctx, h.tail.tails.config.Events, h.tail.tenant, h.selection, after, known, removedTo)
			return err
		})
		if s.err == nil {
			s.err = h.selectEntries(ctx, s, events)
		}
	}()
	return s
}

// selectEntries turns the selected events into entries.
func (h *history) selectEntries(ctx context.Context, s *fetched, events []domain.Event) error {
	selected := make([]int, 0, len(events))
	turn := selection.FilterTurn{Slot: h.tail.filterTurn}
	defer turn.End()
	for i := range events {
		if h.selection.TakesTurns() {
			if err := turn.Wait(ctx); err != nil {
				return err
			}
		}
		if h.selection.Matches(&events[i]) {
			selected = append(selected, i)
		}
	}
	block := make([]Entry, len(selected))
	s.entries = make([]*Entry, len(selected))
	for i, at := range selected {
		block[i].Event = events[at]
		s.entries[i] = &block[i]
		s.bytes += sizeOf(&events[at])
	}
	h.tail.tails.behind.Add(int64(s.bytes))
	return nil
}

// isTemporary reports whether an error is worth a retry. It also narrows the window, so that a read that ran out of
// time covers less the next time.
func (h *history) isTemporary(err error) bool {
	h.window = max(100, h.window/4)
	return isTimeout(err)
}

// read reads a slice of the events after a position. It returns up to where the slice is complete, and up to where
// events were removed.
func (h *history) read(ctx context.Context, after int64, scale int) (events []domain.Event, upTo, removedTo int64, err error) {
	leave, err := h.tail.awaitReadTurn(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	defer leave()
	_, head := h.tail.ring.place() // read before the log, so that at least these events are visible
	if h.selection.Stream != "" {
		return h.readStream(ctx, after, scale, head)
	}
	if q, ok := h.selection.MatchQuery(after, head); ok {
		q.Limit, q.MaxBytes = scale*sliceEvents/scaleMost, scale*historyBytes/scaleMost
		events, next, err := h.tail.tails.config.Events.ReadMatching(ctx, h.tail.tenant, q)
		// The index says nothing of removed events, so the caller reads what is known of them.
		return events, cmp.Or(next, head), math.MaxInt64, err
	}
	q := domain.LogQuery{From: after + 1, Limit: scale * sliceEvents / scaleMost, MaxBytes: scale * historyBytes / scaleMost}
	h.selection.Narrow(&q)
	some := len(q.Categories) > 0 || len(q.Types) > 0
	narrowed := some && head-after > h.window
	if narrowed {
		head = after + h.window
	}
	if head > after {
		q.To = head
	}
	if !h.selection.SeesTags() { // a replica may lack derived tags that were just added
		q.AsOf = h.tail.tails.config.Events.Recent()
	}
	began := time.Now()
	slice, err := h.tail.tails.config.Events.LogSlice(ctx, h.tail.tenant, q)
	if err != nil {
		return nil, 0, 0, err
	}
	switch took := time.Since(began); {
	case took < lookedFast && narrowed:
		h.window *= 2
	case took > lookedSlow && some:
		h.window = max(1, min(h.window, head-after)/2)
	}
	upTo, _ = reached(slice.Events, q.Limit, q.MaxBytes, head)
	return slice.Events, upTo, slice.RemovedTo, nil
}

// readStream reads the stream by its versions, starting with the first version after the position.
func (h *history) readStream(ctx context.Context, after int64, scale int, head int64) (events []domain.Event, upTo, removedTo int64, err error) {
	store := h.tail.tails.config.Events
	if h.version == 0 {
		before, err := store.VersionBefore(ctx, h.tail.tenant, h.selection.Stream, after+1)
		if err != nil {
			return nil, 0, 0, err
		}
		h.version = before + 1
	}
	q := domain.StreamQuery{From: h.version, Limit: scale * sliceEvents / scaleMost, MaxBytes: scale * historyBytes / scaleMost}
	slice, err := store.StreamSlice(ctx, h.tail.tenant, h.selection.Stream, q)
	if err != nil {
		return nil, 0, 0, err
	}
	if n := len(slice.Events); n > 0 {
		h.version = slice.Events[n-1].Version + 1
	}
	upTo, _ = reached(slice.Events, q.Limit, q.MaxBytes, head)
	return slice.Events, upTo, slice.RemovedTo, nil
}
