package tail

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// Bounds of what a feed skips before it reports progress, and of what it takes from its tail's memory at once.
const (
	skippedEvents = 1000        // skipped events before the follower is notified
	skippedTime   = time.Second // since the first skipped event

	ringEvents = 512
	ringBytes  = 256 << 10
)

// Feed is one follower's position in a log. Only one goroutine may use it.
//
// A feed returns every selected event once, in the order of positions, starting where it began. If its tail no longer
// has the next events, the feed reads them from the log, one slice ahead of the follower. Slices grow with the
// follower's speed.
type Feed struct {
	tail      *tail
	selection *selection.Selection
	position  int64 // everything up to here was returned or skipped
	goal      int64 // the head when it began
	atHead    bool  // position was the head when the feed reached it, and the follower knows

	buffer       []*Entry // what Next returns
	history      history
	fetching     *fetched // the events after position, being read from the log; nil: no read is running
	fetchedBytes int      // bytes of events from the log that the last Next returned
	returnedAt   time.Time

	knownGaps selection.KnownGaps // what the follower knows to be gone, as far as that is ahead

	skipped      int64       // events skipped without the follower's knowledge
	skippedTimer *time.Timer // fires when the follower must be notified of skipped events

	ctx    context.Context // context of reads from the log
	cancel context.CancelFunc
	once   sync.Once
}

// Slice is the next part of a feed.
type Slice struct {
	Entries  []*Entry // in order; the next call of Next reuses the list, but not its entries
	Position int64    // everything up to here was returned or skipped; resume after it
	CaughtUp bool     // Position is the current head, at least the head when the feed began, and was not before
	// Gap reports events in what comes next that retention has removed. It is nil if nothing is missing that was not
	// reported before. It may extend beyond Position.
	Gap *domain.Gap
}

// Metadata returns the metadata of the entry with an index.
func (s *Slice) Metadata(i int) json.RawMessage { return s.Entries[i].Event.Metadata }

func newFeed(tail *tail, selection *selection.Selection, position, goal int64) *Feed {
	f := &Feed{tail: tail, selection: selection, position: position, goal: goal}
	f.history = newHistory(tail, selection)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Position returns the feed's position. Every event up to it was returned by Next, or skipped because it is not
// selected. It may be beyond the position of the last slice.
func (f *Feed) Position() int64 { return f.position }

// Next waits until there is something to report and returns the next slice. A slice without entries reports that the
// feed has caught up, that events are gone, or that events were skipped: about a thousand, or fewer after a second.
//
// If ctx ends first, Next returns the cause of ctx and the feed is unchanged. Next may be called again, so a deadline
// can be used to send keep-alives. Next waits while the database does not answer. Other errors are faults.
func (f *Feed) Next(ctx context.Context) (Slice, error) {
	f.history.adjustScale(f.returnedAt)
	clear(f.buffer) // do not keep entries in memory while waiting
	f.release()
	slice, err := f.next(ctx)
	f.returnedAt = time.Now()
	return slice, err
}

func (f *Feed) next(ctx context.Context) (Slice, error) {
	for {
		if ctx.Err() != nil {
			return Slice{}, context.Cause(ctx)
		}
		var slice Slice
		var news <-chan struct{}
		var err error
		if f.fetching == nil {
			slice, news = f.readRing(ctx)
		}
		if f.fetching != nil {
			if slice, err = f.awaitFetch(ctx); err != nil {
				return Slice{}, err
			}
		}
		if len(slice.Entries) > 0 || slice.CaughtUp || slice.Gap != nil || f.skipped >= skippedEvents {
			return f.finish(slice), nil
		}
		if news == nil {
			continue
		}
		var due <-chan time.Time
		if f.skipped > 0 {
			due = f.skippedTimer.C
		}
		select {
		case <-ctx.Done():
		case <-news:
		case <-due:
			return f.finish(slice), nil
		}
	}
}

// readRing takes the events after the feed's position from the tail's memory. news is not nil if these are all. If the
// tail no longer has some of them, take starts to read them from the log.
func (f *Feed) readRing(ctx context.Context) (slice Slice, news <-chan struct{}) {
	t := f.tail.ring.after(f.position, f.goal, f.buffer[:0], ringEvents, ringBytes)
	if t.missed {
		f.fetching = f.history.fetch(f.ctx, f.position, f.knownGaps)
		return Slice{}, nil
	}
	var gone selection.Gap
	if len(t.missing) > 0 {
		gone = f.selection.GapAfter(f.position, f.knownGaps, t.missing)
	}
	f.buffer = t.entries
	entries := f.buffer[:0]
	turn := selection.FilterTurn{Slot: f.tail.filterTurn}
	defer turn.End()
	looked := f.position
	for _, e := range f.buffer {
		if f.selection.TakesTurns() && turn.Wait(ctx) != nil {
			t.upTo, t.atHead, t.news = looked, false, nil
			break
		}
		f.history.noteVersion(e)
		if e.matches(f.selection) {
			entries = append(entries, e)
		}
		looked = e.Event.Position
	}
	clear(f.buffer[len(entries):])
	return f.advance(entries, t.upTo, t.atHead, gone), t.news
}

// awaitFetch waits for the running read from the log.
func (f *Feed) awaitFetch(ctx context.Context) (Slice, error) {
	select {
	case <-ctx.Done():
		return Slice{}, context.Cause(ctx)
	case <-f.fetching.done:
	}
	s := f.fetching
	f.fetching = nil
	if s.err != nil {
		return Slice{}, s.err
	}
	f.fetchedBytes += s.bytes
	slice := f.advance(s.entries, s.upTo, f.tail.ring.atHead(s.upTo, f.goal), s.gap)
	if floor, _ := f.tail.ring.place(); s.upTo < floor && f.history.readsAhead() {
		f.fetching = f.history.fetch(f.ctx, s.upTo, f.knownGaps)
	}
	return slice, nil
}

// advance moves the feed's position.
func (f *Feed) advance(entries []*Entry, upTo int64, atHead bool, gone selection.Gap) Slice {
	if passed := upTo - f.position - int64(len(entries)); passed > 0 {
		if f.skipped == 0 {
			f.startSkippedTimer()
		}
		f.skipped += passed
	}
	slice := Slice{Entries: entries, Position: upTo, CaughtUp: atHead && !f.atHead, Gap: gone.Gap}
	if gone.Gap != nil || atHead && f.knownGaps != nil {
		f.knownGaps = f.knownGaps.With(gone.Floors, upTo)
	}
	if len(f.knownGaps) == 0 {
		f.knownGaps = nil
	}
	f.position, f.atHead = upTo, atHead
	return slice
}

func (f *Feed) startSkippedTimer() {
	if f.skippedTimer == nil {
		f.skippedTimer = time.NewTimer(f.tail.tails.reportSkippedAfter)
		return
	}
	f.skippedTimer.Reset(f.tail.tails.reportSkippedAfter)
}

// finish completes a slice that Next returns.
func (f *Feed) finish(slice Slice) Slice {
	if f.skipped > 0 {
		f.skipped = 0
		f.skippedTimer.Stop()
	}
	return slice
}

// release releases the memory of the events that the follower has finished with.
func (f *Feed) release() {
	f.tail.tails.behind.Add(-int64(f.fetchedBytes))
	f.fetchedBytes = 0
}

// Close ends the feed. It may be called again, but not concurrently with Next.
func (f *Feed) Close() {
	f.once.Do(func() {
		f.cancel()
		if f.fetching != nil {
			<-f.fetching.done
			f.fetchedBytes += f.fetching.bytes
		}
		f.release()
		if f.skippedTimer != nil {
			f.skippedTimer.Stop()
		}
		f.tail.tails.leave(f.tail)
	})
}
