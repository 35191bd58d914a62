package subscription

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// history reads from the log what a follower has before it and its tail has forgotten.
type history struct {
	tail      *tail
	selection *selection
	scale     int // slices are this much of the largest, in 16ths

	// While something is being read these are the reading goroutine's, else the feed's.
	version int64 // of the next event of the selection's stream; 0: not known
	window  int64 // how many positions are looked through at once, where only some of their events are asked for
}

// Slices begin small, are doubled while the follower takes them fast, and are small again when it is slow: what waits for it
// is in memory.
const (
	historyBytes = 512 << 10 // the largest, with sliceEvents

	scaleMost  = 16
	scaleLeast = 1
	scaleFirst = 2
	takenFast  = 250 * time.Millisecond
	takenSlow  = 2 * time.Second
)

// A look through the log for events that are rare is to take about so long: then a checkpoint can be told, and others get
// their turn.
const (
	firstWindow = 10_000
	lookedFast  = 50 * time.Millisecond
	lookedSlow  = 250 * time.Millisecond
)

func newHistory(tail *tail, selection *selection) history {
	return history{tail: tail, selection: selection, window: firstWindow, scale: scaleFirst}
}

// paced tells when the follower was given what it had last, now that it is ready for more.
func (h *history) paced(gave time.Time) {
	switch took := time.Since(gave); {
	case gave.IsZero():
	case took < takenFast:
		h.scale = min(2*h.scale, scaleMost)
	case took > takenSlow:
		h.scale = scaleLeast
	}
}

// size is how large the next slice may be.
func (h *history) size() (scale int) {
	if h.tail.tails.behind.Load() > h.tail.tails.crowd {
		return scaleLeast
	}
	return h.scale
}

// readsAhead reports whether a slice may wait for the follower.
func (h *history) readsAhead() bool { return h.size() > scaleLeast }

// saw tells of an entry that the follower had from its tail's memory.
func (h *history) saw(e *Entry) {
	if h.selection.Stream != "" && e.Event.Stream == h.selection.Stream {
		h.version = e.Event.Version + 1
	}
}

// fetched is a stretch of the log that is read beside what else its follower does.
type fetched struct {
	done    chan struct{}
	entries []*Entry // all that are selected from where it began up to upTo
	bytes   int      // of them
	upTo    int64
	gap     gap // that the follower is to be told of before them
	err     error
}

// fetch reads what follows a position, for a follower that has heard of what is gone. The goroutine ends when ctx does.
func (h *history) fetch(ctx context.Context, after int64, known heard) *fetched {
	s := &fetched{done: make(chan struct{})}
	scale := h.size()
	go func() {
		defer close(s.done)
		var events []domain.Event
		s.err = h.tail.tails.try(ctx, h.tail.tenant, h.passes, func(ctx context.Context) (err error) {
			var removedTo int64
			if events, s.upTo, removedTo, err = h.read(ctx, after, scale); err != nil {
				return err
			}
			s.gap, err = gapOf(ctx, h.tail.tails.config.Store, h.tail.tenant, h.selection, after, known, removedTo)
			return err
		})
		if s.err == nil {
			s.err = h.choose(ctx, s, events)
		}
	}()
	return s
}

// choose makes entries of the events that are selected.
func (h *history) choose(ctx context.Context, s *fetched, events []domain.Event) error {
	selected := make([]int, 0, len(events))
	asking := turn{of: h.tail.asking}
	defer asking.end()
	for i := range events {
		if h.selection.filter != nil {
			if err := asking.take(ctx); err != nil {
				return err
			}
		}
		if h.selection.matches(&events[i]) {
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

// passes reports whether it is worth trying again. Where that is for want of time, less is looked through then.
func (h *history) passes(err error) bool {
	h.window = max(100, h.window/4)
	return noAnswer(err)
}

// read reads a slice of what follows a position, and says up to where that is all there is, and up to where events were removed.
func (h *history) read(ctx context.Context, after int64, scale int) (events []domain.Event, upTo, removedTo int64, err error) {
	leave, err := h.tail.enter(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	defer leave()
	_, head := h.tail.ring.place() // before reading: what is visible then is no less
	if h.selection.Stream != "" {
		return h.readStream(ctx, after, scale, head)
	}
	q := domain.LogQuery{From: after + 1, Limit: scale * sliceEvents / scaleMost, MaxBytes: scale * historyBytes / scaleMost}
	h.selection.narrow(&q)
	some := len(q.Categories) > 0 || len(q.Types) > 0
	if some && head-after > h.window {
		q.To = after + h.window
		head = q.To
	}
	began := time.Now()
	slice, err := h.tail.tails.config.Store.LogSlice(ctx, h.tail.tenant, q)
	if err != nil {
		return nil, 0, 0, err
	}
	switch took := time.Since(began); {
	case took < lookedFast && q.To > 0:
		h.window *= 2
	case took > lookedSlow && some:
		h.window = max(1, min(h.window, head-after)/2)
	}
	upTo, _ = reached(slice.Events, q.Limit, q.MaxBytes, head)
	return slice.Events, upTo, slice.RemovedTo, nil
}

// readStream follows the versions of the stream, from that of the position on.
func (h *history) readStream(ctx context.Context, after int64, scale int, head int64) (events []domain.Event, upTo, removedTo int64, err error) {
	store := h.tail.tails.config.Store
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
