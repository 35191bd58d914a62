package group

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// Bounds of what is read ahead of delivery, for one partition of a group.
const (
	aheadEvents = 2000
	aheadBytes  = 4 << 20
	scarceBytes = 64 << 10 // if all partitions together have too much in memory
	// aheadWindow limits how many positions one read covers, so that a read ends soon even if few events are selected.
	aheadWindow = 50_000
)

// lookahead holds the next new events of one partition of a group, in the log's order. The log does not change, unless
// a person's data is erased, so they stay valid whatever becomes of a step: events taken by a step that was not saved
// are taken again. Only one goroutine may use it. A read may run in the background.
type lookahead struct {
	log        *sharedReads
	tenant     domain.TenantID
	selection  *selection.Selection
	partition  int
	partitions int // 0: none

	from          int64 // events holds all events of the group after this position
	scanned       int64 // and up to this one
	events        []domain.Event
	taken         int   // number of events taken since the last save
	bytes         int   // of the events not taken
	maxBytes      int   // limit of bytes in memory; one event may exceed it
	average       int   // bytes of an event in the last read
	version       int64 // last version read of the selection's stream; -1: unknown
	eventsPerRead int   // limit of events per read, lower if the filter is slow; 0: aheadEvents

	gap         selection.Gap       // what was found gone and not reported yet
	reportedGap *domain.Gap         // that gap, if reported since the last save; without a save it is reported again
	knownGaps   selection.KnownGaps // what consumers know to be gone, as far as that is ahead

	filterTurn chan struct{} // one entry while a filter of the tenant's groups runs
	filterTime time.Duration // maxFilterTime, except in tests

	reading chan logRead // receives the result of the running read; nil: none

	erased int64 // of group.erased: events may have changed since
}

// forget makes the next seekTo read all events again, and drops the running read.
func (a *lookahead) forget() { a.from, a.scanned, a.reading = -1, -1, nil }

// logRead is the result of a read.
type logRead struct {
	from, to      int64 // positions after from, up to to, were read
	version       int64
	events        []domain.Event
	bytes         int
	eventsPerRead int           // pace of the next read
	gap           selection.Gap // what was gone
	err           error
}

// eventBytes returns the size of an event for memory limits.
func eventBytes(e *domain.Event) int { return e.Bytes() }

// seekTo makes the first event after a position the next one.
func (a *lookahead) seekTo(readTo int64) {
	a.reportedGap = nil
	if readTo < a.from || readTo > a.scanned {
		a.from, a.scanned, a.version = readTo, readTo, -1
		a.events, a.taken, a.bytes, a.gap, a.knownGaps = nil, 0, 0, selection.Gap{}, nil
		return
	}
	a.taken = sort.Search(len(a.events), func(i int) bool { return a.events[i].Position > readTo })
	a.bytes = 0
	for i := a.taken; i < len(a.events); i++ {
		a.bytes += eventBytes(&a.events[i])
	}
}

// saved releases the events that were taken. readTo is the ledger's.
func (a *lookahead) saved(readTo int64) {
	if a.reportedGap != nil && a.reportedGap == a.gap.Gap {
		a.knownGaps, a.gap = a.knownGaps.With(a.gap.Floors, readTo), selection.Gap{}
	}
	a.reportedGap = nil
	clear(a.events[:a.taken])
	a.events = a.events[a.taken:]
	a.taken, a.from = 0, readTo
}

// next returns the next event, or nil if none is in memory.
func (a *lookahead) next() *domain.Event {
	if a.taken == len(a.events) {
		return nil
	}
	return &a.events[a.taken]
}

// advance moves on to the event after the next one.
func (a *lookahead) advance() {
	a.bytes -= eventBytes(&a.events[a.taken])
	a.taken++
}

// gapBefore returns the gap that starts at or before an event about to be delivered, if no consumer was notified of the
// gap yet, and otherwise nil.
func (a *lookahead) gapBefore(e *domain.Event) *domain.Gap {
	if a.gap.Gap == nil || e.Position < a.gap.From || a.reportedGap == a.gap.Gap {
		return nil
	}
	a.reportedGap = a.gap.Gap
	return a.reportedGap
}

// mergeGaps combines two gaps.
func mergeGaps(one, other selection.Gap) selection.Gap {
	if one.Gap == nil {
		return other
	}
	floors := slices.Concat(one.Floors, other.Floors)
	highest := selection.KnownGaps(nil).With(floors, 0)
	floors = slices.DeleteFunc(floors, func(floor domain.RetentionFloor) bool { return floor.RemovedTo < highest[floor.Category] })
	slices.SortFunc(floors, func(a, b domain.RetentionFloor) int { return cmp.Compare(a.Category, b.Category) })
	floors = slices.CompactFunc(floors, func(a, b domain.RetentionFloor) bool { return a.Category == b.Category })
	return selection.Gap{Gap: domain.NewGap(min(one.From, other.From), floors), Floors: floors}
}

// waiting returns how many events are in memory and not taken.
func (a *lookahead) waiting() int { return len(a.events) - a.taken }

// memory returns how many bytes of events are in memory.
func (a *lookahead) memory() int {
	held := a.bytes
	for i := range a.events[:a.taken] {
		held += eventBytes(&a.events[i])
	}
	return held
}

// startRead starts a read in the background if there is room and something to read up to the head. running counts it.
func (a *lookahead) startRead(running *sync.WaitGroup, head int64) {
	if a.reading != nil || a.scanned >= head || a.waiting() > aheadEvents/2 || a.bytes > a.maxBytes/2 {
		return
	}
	under := make(chan logRead, 1)
	a.reading = under
	reader := *a // a may change meanwhile
	from, version, limit, bytes := a.scanned, a.version, a.limit(), a.maxBytes-a.bytes
	running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
		defer cancel()
		under <- reader.read(ctx, from, head, version, limit, bytes)
	})
}

// readMore makes at most one read up to the head, or waits for the running read. It returns false if there is nothing
// more.
func (a *lookahead) readMore(ctx context.Context, head int64) (bool, error) {
	if a.reading != nil {
		if taken, err := a.awaitRead(); taken || err != nil {
			return taken, err
		}
	}
	if a.scanned >= head {
		return false, nil
	}
	return true, a.addRead(a.read(ctx, a.scanned, head, a.version, a.limit(), max(1, a.maxBytes-a.bytes)))
}

// limit returns how many events to read at once.
func (a *lookahead) limit() int {
	return max(1, min(cmp.Or(a.eventsPerRead, aheadEvents), aheadEvents-a.waiting()))
}

// awaitRead waits for the running read, if there is one. It discards a result that is no longer wanted.
func (a *lookahead) awaitRead() (taken bool, err error) {
	if a.reading == nil {
		return false, nil
	}
	found := <-a.reading
	a.reading = nil
	if found.from != a.scanned || found.err != nil {
		return false, nil // after a failure, whoever needs the events reads them again
	}
	return true, a.addRead(found)
}

func (a *lookahead) addRead(found logRead) error {
	if found.err != nil {
		return found.err
	}
	a.events = append(a.events, found.events...)
	a.bytes += found.bytes
	a.scanned, a.version, a.eventsPerRead = found.to, found.version, found.eventsPerRead
	if news := a.knownGaps.Unknown(found.gap.Floors); len(news) > 0 {
		a.gap = mergeGaps(a.gap, selection.Gap{Gap: domain.NewGap(found.gap.From, news), Floors: news})
	}
	if n := len(found.events); n > 0 {
		a.average = found.bytes / n
	}
	return nil
}

// read reads the log after from, up to the head, within its bounds. It does not change the lookahead.
func (a *lookahead) read(ctx context.Context, from, head, version int64, limit, bytes int) logRead {
	if a.selection.Stream != "" {
		return a.readStream(ctx, from, head, version, limit, bytes)
	}
	if q, ok := a.selection.MatchQuery(from, head); ok && a.partitions < 2 {
		return a.readMatching(ctx, q, head, limit, bytes)
	}
	to := min(head, from+aheadWindow)
	q := domain.LogQuery{From: from + 1, To: to, Limit: limit, MaxBytes: bytes}
	a.selection.Narrow(&q)
	slice, upTo, err := a.log.read(ctx, a.tenant, q, a.partition, a.partitions, head)
	found := logRead{from: from, to: upTo, version: -1, err: err}
	if err == nil {
		found.gap, found.err = selection.GapOf(ctx, a.log.log, a.tenant, a.selection, from, nil, slice.RemovedTo)
	}
	return a.selectEvents(ctx, found, slice.Events)
}

// readMatching implements read for a group whose events an index finds, however rare they are.
func (a *lookahead) readMatching(ctx context.Context, q domain.MatchQuery, head int64, limit, bytes int) logRead {
	q.Limit, q.MaxBytes = limit, bytes
	events, next, err := a.log.log.ReadMatching(ctx, a.tenant, q)
	found := logRead{from: q.After, to: cmp.Or(next, head), version: -1, err: err}
	if err == nil {
		// The index says nothing of removed events.
		found.gap, found.err = selection.GapOf(ctx, a.log.log, a.tenant, a.selection, q.After, nil, math.MaxInt64)
	}
	return a.selectEvents(ctx, found, events)
}

// readStream implements read for a group of one stream. It reads by versions, so other events in the log do not matter.
func (a *lookahead) readStream(ctx context.Context, from, head, version int64, limit, bytes int) logRead {
	found := logRead{from: from, to: head, version: version}
	if found.version < 0 {
		if found.version, found.err = a.log.log.VersionBefore(ctx, a.tenant, a.selection.Stream, from+1); found.err != nil {
			return found
		}
	}
	slice, err := a.log.log.StreamSlice(ctx, a.tenant, a.selection.Stream, domain.StreamQuery{From: found.version + 1, Limit: limit, MaxBytes: bytes})
	events := slice.Events
	if found.err = err; err == nil {
		found.gap, found.err = selection.GapOf(ctx, a.log.log, a.tenant, a.selection, from, nil, slice.RemovedTo)
	}
	if n := len(events); n > 0 {
		found.version = events[n-1].Version
		if last := events[n-1].Position; last > head || wasCut(events, limit, bytes) {
			found.to = last
		}
	}
	return a.selectEvents(ctx, found, events)
}

// typicalBytes returns the expected size of an event in bytes.
func (a *lookahead) typicalBytes() int {
	if a.average == 0 {
		return 64 << 10 // nothing was read yet; rather read too little than too much
	}
	return max(1, a.average)
}

// wasCut reports whether a read ended because of its limits, and not because there was nothing more.
func wasCut(events []domain.Event, limit, bytes int) bool {
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

// selectEvents keeps the partition's events of those that were read. If the filter takes too long, the read ends early.
func (a *lookahead) selectEvents(ctx context.Context, found logRead, events []domain.Event) logRead {
	filter := a.newFilter()
	defer filter.end()
	found.events, found.eventsPerRead = events[:0], min(2*cmp.Or(a.eventsPerRead, aheadEvents), aheadEvents)
	for i := range events {
		wanted, enough, err := filter.selects(ctx, &events[i])
		if err != nil {
			found.err = err
			return found
		}
		if enough {
			found.to, found.eventsPerRead = events[i-1].Position, 2*i
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
			found.events[i] = cloneEvent(&few[i])
		}
	}
	return found
}

// cloneEvent returns an event with separate memory. Events of one read share memory, so keeping one would keep all.
func cloneEvent(e *domain.Event) domain.Event {
	copied := *e
	copied.Data, copied.Metadata = slices.Clone(e.Data), slices.Clone(e.Metadata)
	return copied
}
