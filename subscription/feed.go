package subscription

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Bounds of what a feed gives out without events, and of what it takes from its tail's memory at once.
const (
	passedEvents = 1000        // passed over: the follower is told
	passedTime   = time.Second // since some were passed over

	takenEvents = 512
	takenBytes  = 256 << 10
)

// Feed is one follower's place in a log. It is for one goroutine.
//
// It gives every event that is selected once, in the order of positions, from the place on where it began; where its tail has
// forgotten what comes next it reads that from the log, a slice ahead of the follower, and more at a time the faster that is.
type Feed struct {
	tail      *tail
	selection *selection
	position  int64 // everything up to here was given out or passed over
	goal      int64 // the head when it began
	atHead    bool  // position was the head when it came there, and the follower knows

	buffer  []*Entry // what Next gives out
	history history
	ahead   *fetched // what follows position, being read from the log; nil: nothing is
	has     int      // bytes that Next has given out of what was read
	gave    time.Time

	heard heard // what the follower was told is gone, as far as that is ahead

	passed int64       // over, and the follower does not know
	tell   *time.Timer // runs out when it has to

	ctx    context.Context // of what is being read
	cancel context.CancelFunc
	once   sync.Once
}

// Slice is what comes next in a feed.
type Slice struct {
	Entries  []*Entry // in order; the list, not what is in it, is used again by the next call of Next
	Position int64    // everything up to here has been given out or passed over: whoever has that goes on behind it
	CaughtUp bool     // Position is the head as it was then, at least that of when the feed began, and was not before
	// Gap is what retention has removed of what comes next, which nobody knows any more; nil: nothing that was not told before. It
	// may reach beyond Position.
	Gap *domain.Gap
}

func newFeed(tail *tail, selection *selection, position, goal int64) *Feed {
	f := &Feed{tail: tail, selection: selection, position: position, goal: goal}
	f.history = newHistory(tail, selection)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Position is the place that the feed has come to: everything up to here was given out by Next, or was passed over since it
// is not selected. It may be further than the last slice's.
func (f *Feed) Position() int64 { return f.position }

// Next returns the next slice, which is never without news: it waits until there is some. A slice without entries tells that the
// feed has caught up, that events are gone, or that some were passed over: some thousand of them, or a few and a second ago.
//
// Where ctx ends first, it returns ctx's cause, and the feed stays as it is: Next may be called again, so that a deadline
// may say when to give a sign of life. While the database does not answer it waits. Other errors are faults.
func (f *Feed) Next(ctx context.Context) (Slice, error) {
	f.history.paced(f.gave)
	clear(f.buffer) // who waits keeps nothing in memory
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

// take takes what the tail has in memory behind the feed's place; news is not nil where that is all there is. Where the tail
// has forgotten some of it, that is begun to be read from the log.
func (f *Feed) take(ctx context.Context) (slice Slice, news <-chan struct{}) {
	t := f.tail.ring.take(f.position, f.goal, f.buffer[:0], takenEvents, takenBytes)
	if t.missed {
		f.ahead = f.history.fetch(f.ctx, f.position, f.heard)
		return Slice{}, nil
	}
	var gone gap
	if len(t.missing) > 0 {
		gone = f.selection.gapBehind(f.position, f.heard, t.missing)
	}
	f.buffer = t.entries
	entries := f.buffer[:0]
	asking := turn{of: f.tail.asking}
	defer asking.end()
	looked := f.position
	for _, e := range f.buffer {
		if f.selection.filter != nil && asking.take(ctx) != nil {
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

// read waits for what is being read from the log.
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

// moved moves the feed's place.
func (f *Feed) moved(entries []*Entry, upTo int64, atHead bool, gone gap) Slice {
	if passed := upTo - f.position - int64(len(entries)); passed > 0 {
		if f.passed == 0 {
			f.tellLater()
		}
		f.passed += passed
	}
	slice := Slice{Entries: entries, Position: upTo, CaughtUp: atHead && !f.atHead, Gap: gone.Gap}
	if gone.Gap != nil || atHead && f.heard != nil {
		f.heard = f.heard.and(gone.floors, upTo)
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

// give is for what Next returns.
func (f *Feed) give(slice Slice) Slice {
	if f.passed > 0 {
		f.passed = 0
		f.tell.Stop()
	}
	return slice
}

// release is for what the follower has done with.
func (f *Feed) release() {
	f.tail.tails.behind.Add(-int64(f.has))
	f.has = 0
}

// Close ends the feed. It may be called again, but not beside Next.
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
