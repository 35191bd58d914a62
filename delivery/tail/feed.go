package tail

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// Bounds of what a feed skips before it reports progress, and of what it takes from its tail's memory at once.
const (
	passedEvents = 1000        // skipped events before the follower is notified
	passedTime   = time.Second // since the first skipped event

	takenEvents = 512
	takenBytes  = 256 << 10
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

	buffer  []*Entry // what Next returns
	history history
	ahead   *fetched // the events after position, being read from the log; nil: no read is running
	has     int      // bytes of events from the log that the last Next returned
	gave    time.Time

	heard selection.Heard // what the follower knows to be gone, as far as that is ahead

	passed int64       // events skipped without the follower's knowledge
	tell   *time.Timer // fires when the follower must be notified of skipped events

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
	f.history.paced(f.gave)
	clear(f.buffer) // do not keep entries in memory while waiting
	f.release()
	slice, err := f.next(ctx)
	f.gave = time.Now()
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
		if f.ahead == nil {
			slice, news = f.take(ctx)
		}
		if f.ahead != nil {
			if slice, err = f.read(ctx); err != nil {
				return Slice{}, err
			}
		}
		if len(slice.Entries) > 0 || slice.CaughtUp || slice.Gap != nil || f.passed >= passedEvents {
			return f.give(slice), nil
		}
		if news == nil {
			continue
		}
		var tell <-chan time.Time
		if f.passed > 0 {
			tell = f.tell.C
		}
		select {
		case <-ctx.Done():
		case <-news:
		case <-tell:
			return f.give(slice), nil
		}
	}
}

// take takes the events after the feed's position from the tail's memory. news is not nil if these are all. If the tail
// no longer has some of them, take starts to read them from the log.
func (f *Feed) take(ctx context.Context) (slice Slice, news <-chan struct{}) {
	t := f.tail.ring.take(f.position, f.goal, f.buffer[:0], takenEvents, takenBytes)
	if t.missed {
		f.ahead = f.history.fetch(f.ctx, f.position, f.heard)
		return Slice{}, nil
	}
	var gone selection.Gap
	if len(t.missing) > 0 {
		gone = f.selection.GapBehind(f.position, f.heard, t.missing)
	}
	f.buffer = t.entries
	entries := f.buffer[:0]
	asking := selection.Turn{Of: f.tail.asking}
	defer asking.End()
	looked := f.position
	for _, e := range f.buffer {
		if f.selection.Condition != nil && asking.Take(ctx) != nil {
			t.upTo, t.atHead, t.news = looked, false, nil
			break
		}
		f.history.saw(e)
		if e.matches(f.selection) {
			entries = append(entries, e)
		}
		looked = e.Event.Position
	}
	clear(f.buffer[len(entries):])
	return f.moved(entries, t.upTo, t.atHead, gone), t.news
}

// read waits for the running read from the log.
func (f *Feed) read(ctx context.Context) (Slice, error) {
	select {
	case <-ctx.Done():
		return Slice{}, context.Cause(ctx)
	case <-f.ahead.done:
	}
	s := f.ahead
	f.ahead = nil
	if s.err != nil {
		return Slice{}, s.err
	}
	f.has += s.bytes
	slice := f.moved(s.entries, s.upTo, f.tail.ring.atHead(s.upTo, f.goal), s.gap)
	if floor, _ := f.tail.ring.place(); s.upTo < floor && f.history.readsAhead() {
		f.ahead = f.history.fetch(f.ctx, s.upTo, f.heard)
	}
	return slice, nil
}

// moved moves the feed's position.
func (f *Feed) moved(entries []*Entry, upTo int64, atHead bool, gone selection.Gap) Slice {
	if passed := upTo - f.position - int64(len(entries)); passed > 0 {
		if f.passed == 0 {
			f.tellLater()
		}
		f.passed += passed
	}
	slice := Slice{Entries: entries, Position: upTo, CaughtUp: atHead && !f.atHead, Gap: gone.Gap}
	if gone.Gap != nil || atHead && f.heard != nil {
		f.heard = f.heard.And(gone.Floors, upTo)
	}
	if len(f.heard) == 0 {
		f.heard = nil
	}
	f.position, f.atHead = upTo, atHead
	return slice
}

func (f *Feed) tellLater() {
	if f.tell == nil {
		f.tell = time.NewTimer(f.tail.tails.tell)
		return
	}
	f.tell.Reset(f.tail.tails.tell)
}

// give finishes a slice that Next returns.
func (f *Feed) give(slice Slice) Slice {
	if f.passed > 0 {
		f.passed = 0
		f.tell.Stop()
	}
	return slice
}

// release releases the memory of the events that the follower has finished with.
func (f *Feed) release() {
	f.tail.tails.behind.Add(-int64(f.has))
	f.has = 0
}

// Close ends the feed. It may be called again, but not concurrently with Next.
func (f *Feed) Close() {
	f.once.Do(func() {
		f.cancel()
		if f.ahead != nil {
			<-f.ahead.done
			f.has += f.ahead.bytes
		}
		f.release()
		if f.tell != nil {
			f.tell.Stop()
		}
		f.tail.tails.leave(f.tail)
	})
}
