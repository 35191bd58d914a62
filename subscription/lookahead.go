package subscription

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Bounds of what is read of a log ahead of its delivery, for one partition of a group.
const (
	aheadEvents = 2000
	aheadBytes  = 4 << 20
	scarceBytes = 64 << 10 // where all partitions together have too much in memory
	// aheadWindow is how many positions one read covers at most: where few events are a group's, it is over soon all the same.
	aheadWindow = 50_000
)

// lookahead has the next new events of one partition of a group in memory, in the log's order. The log does not change, so
// they stay true whatever becomes of a step: what was taken comes again where the step was not saved. It is for one goroutine;
// a read that was begun runs beside it.
type lookahead struct {
	log        Log
	tenant     domain.TenantID
	selection  *selection
	partition  int
	partitions int // 0: none

	from    int64 // events are all of the group behind it,
	scanned int64 // up to here
	events  []domain.Event
	taken   int   // so many of events were taken since the last save
	bytes   int   // of those that were not
	most    int   // bytes that may be in memory, but for one event
	average int   // bytes of an event, of those read last
	version int64 // of the selection's one stream, that was read last; -1: not known
	pace    int   // events that one read gives at most, fewer where its filter takes long; 0: aheadEvents

	gap   gap         // what was gone of what was read, and nobody was told of yet
	given *domain.Gap // it, where somebody was told of it since the last save: it comes again where that is not made
	heard heard       // what consumers were told is gone, as far as that is ahead

	asking  chan struct{} // has one while a filter of the tenant's groups is asked
	siftFor time.Duration // siftTime, but in tests

	under chan stretch // gives what a read has found that is under way; nil: there is none
}

// stretch is what a read has found.
type stretch struct {
	from, to int64 // positions behind from, up to to, were read
	version  int64
	events   []domain.Event
	bytes    int
	pace     int // that of the next read
	gap      gap // what was gone of it
	err      error
}

// eventBytes is what an event counts for where memory is bounded.
func eventBytes(e *domain.Event) int { return len(e.Data) + len(e.Metadata) }

// at makes the next event the first one behind a position.
func (a *lookahead) at(readTo int64) {
	a.given = nil
	if readTo < a.from || readTo > a.scanned {
		a.from, a.scanned, a.version = readTo, readTo, -1
		a.events, a.taken, a.bytes, a.gap, a.heard = nil, 0, 0, gap{}, nil
		return
	}
	a.taken = sort.Search(len(a.events), func(i int) bool { return a.events[i].Position > readTo })
	a.bytes = 0
	for i := a.taken; i < len(a.events); i++ {
		a.bytes += eventBytes(&a.events[i])
	}
}

// saved lets go of what was taken; readTo is the ledger's.
func (a *lookahead) saved(readTo int64) {
	if a.given != nil && a.given == a.gap.Gap {
		a.heard, a.gap = a.heard.and(a.gap.floors, readTo), gap{}
	}
	a.given = nil
	clear(a.events[:a.taken])
	a.events = a.events[a.taken:]
	a.taken, a.from = 0, readTo
}

// next is the next event; nil where none is in memory.
func (a *lookahead) next() *domain.Event {
	if a.taken == len(a.events) {
		return nil
	}
	return &a.events[a.taken]
}

// take moves on behind the next event.
func (a *lookahead) take() {
	a.bytes -= eventBytes(&a.events[a.taken])
	a.taken++
}

// meets is the gap that comes before an event that is about to be delivered, or reaches over it, where no consumer was told of it;
// nil: there is none.
func (a *lookahead) meets(e *domain.Event) *domain.Gap {
	if a.gap.Gap == nil || e.Position < a.gap.From || a.given == a.gap.Gap {
		return nil
	}
	a.given = a.gap.Gap
	return a.given
}

// joined is what two gaps are together.
func joined(one, other gap) gap {
	if one.Gap == nil {
		return other
	}
	floors := slices.Concat(one.floors, other.floors)
	highest := heard(nil).and(floors, 0)
	floors = slices.DeleteFunc(floors, func(floor domain.RetentionFloor) bool { return floor.RemovedTo < highest[floor.Category] })
	slices.SortFunc(floors, func(a, b domain.RetentionFloor) int { return cmp.Compare(a.Category, b.Category) })
	floors = slices.CompactFunc(floors, func(a, b domain.RetentionFloor) bool { return a.Category == b.Category })
	return gap{domain.NewGap(min(one.From, other.From), floors), floors}
}

// waiting is how many events are in memory.
func (a *lookahead) waiting() int { return len(a.events) - a.taken }

// held is how many bytes of events are in memory.
func (a *lookahead) held() int {
	held := a.bytes
	for i := range a.events[:a.taken] {
		held += eventBytes(&a.events[i])
	}
	return held
}

// begin begins a read beside its caller, where there is room and something up to the head. running counts it.
func (a *lookahead) begin(running *sync.WaitGroup, head int64) {
	if a.under != nil || a.scanned >= head || a.waiting() > aheadEvents/2 || a.bytes > a.most/2 {
		return
	}
	under := make(chan stretch, 1)
	a.under = under
	reader := *a // a may be made another one meanwhile
	from, version, limit, bytes := a.scanned, a.version, a.limit(), a.most-a.bytes
	running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
		defer cancel()
		under <- reader.read(ctx, from, head, version, limit, bytes)
	})
}

// more reads on up to the head, at most one stretch, or waits for the read that is under way. It reports false where there is nothing more.
func (a *lookahead) more(ctx context.Context, head int64) (bool, error) {
	if a.under != nil {
		if taken, err := a.join(); taken || err != nil {
			return taken, err
		}
	}
	if a.scanned >= head {
		return false, nil
	}
	return true, a.accept(a.read(ctx, a.scanned, head, a.version, a.limit(), max(1, a.most-a.bytes)))
}

// limit is how many events are read at once.
func (a *lookahead) limit() int {
	return max(1, min(cmp.Or(a.pace, aheadEvents), aheadEvents-a.waiting()))
}

// join waits for the read that is under way, if there is one. What is no longer wanted of it is left.
func (a *lookahead) join() (taken bool, err error) {
	if a.under == nil {
		return false, nil
	}
	found := <-a.under
	a.under = nil
	if found.from != a.scanned || found.err != nil {
		return false, nil // where it has failed, whoever needs the events reads them again
	}
	return true, a.accept(found)
}

func (a *lookahead) accept(found stretch) error {
	if found.err != nil {
		return found.err
	}
	a.events = append(a.events, found.events...)
	a.bytes += found.bytes
	a.scanned, a.version, a.pace = found.to, found.version, found.pace
	if news := a.heard.news(found.gap.floors); len(news) > 0 {
		a.gap = joined(a.gap, gap{domain.NewGap(found.gap.From, news), news})
	}
	if n := len(found.events); n > 0 {
		a.average = found.bytes / n
	}
	return nil
}

// read reads the log behind from, up to the head, within its bounds. It changes nothing.
func (a *lookahead) read(ctx context.Context, from, head, version int64, limit, bytes int) stretch {
	if a.selection.Stream != "" {
		return a.readStream(ctx, from, head, version, limit, bytes)
	}
	to := min(head, from+aheadWindow)
	q := domain.LogQuery{From: from + 1, To: to, Limit: limit, MaxBytes: bytes}
	a.selection.narrow(&q)
	slice, err := a.log.LogSlice(ctx, a.tenant, q)
	found, events := stretch{from: from, to: to, version: -1, err: err}, slice.Events
	if err == nil {
		found.gap, found.err = gapOf(ctx, a.log, a.tenant, a.selection, from, nil, slice.RemovedTo)
	}
	if n := len(events); n > 0 && cut(events, limit, bytes) {
		found.to = events[n-1].Position
	}
	return a.choose(ctx, found, events)
}

// readStream is read for a group of one stream: by its versions, however much else is in the log.
func (a *lookahead) readStream(ctx context.Context, from, head, version int64, limit, bytes int) stretch {
	found := stretch{from: from, to: head, version: version}
	if found.version < 0 {
		if found.version, found.err = a.log.VersionBefore(ctx, a.tenant, a.selection.Stream, from+1); found.err != nil {
			return found
		}
	}
	slice, err := a.log.StreamSlice(ctx, a.tenant, a.selection.Stream, domain.StreamQuery{From: found.version + 1, Limit: limit, MaxBytes: bytes})
	events := slice.Events
	if found.err = err; err == nil {
		found.gap, found.err = gapOf(ctx, a.log, a.tenant, a.selection, from, nil, slice.RemovedTo)
	}
	if n := len(events); n > 0 {
		found.version = events[n-1].Version
		if last := events[n-1].Position; last > head || cut(events, limit, bytes) {
			found.to = last
		}
	}
	return a.choose(ctx, found, events)
}

// typical is how many bytes an event has, as far as that is known.
func (a *lookahead) typical() int {
	if a.average == 0 {
		return 64 << 10 // nothing was read yet: better less of them than too much
	}
	return max(1, a.average)
}

// cut reports whether a read ended at its bounds, not where there was nothing more.
func cut(events []domain.Event, limit, bytes int) bool {
	if len(events) >= limit {
		return true
	}
	for i := range events {
		if bytes -= eventBytes(&events[i]); bytes <= 0 {
			return true
		}
	}
	return false
}

// choose keeps of what was read what is the partition's. Where asking takes too long the stretch ends there.
func (a *lookahead) choose(ctx context.Context, found stretch, events []domain.Event) stretch {
	asking := a.sieve()
	defer asking.end()
	found.events, found.pace = events[:0], min(2*cmp.Or(a.pace, aheadEvents), aheadEvents)
	for i := range events {
		wanted, enough, err := asking.wants(ctx, &events[i])
		if err != nil {
			found.err = err
			return found
		}
		if enough {
			found.to, found.pace = events[i-1].Position, 2*i
			if found.version >= 0 {
				found.version = events[i-1].Version
			}
			break
		}
		if wanted {
			found.events = append(found.events, events[i])
			found.bytes += eventBytes(&events[i])
		}
	}
	if few := found.events; len(few) < len(events)/4 {
		found.events = make([]domain.Event, len(few))
		for i := range few {
			found.events[i] = apart(&few[i])
		}
	}
	return found
}

// apart is an event with memory of its own: events that were read together share it, so that one keeps that of all.
func apart(e *domain.Event) domain.Event {
	copied := *e
	copied.Data, copied.Metadata = slices.Clone(e.Data), slices.Clone(e.Metadata)
	return copied
}
