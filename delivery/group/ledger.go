package group

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// ledger is what one partition of a group knows of the events that it has looked at. Its methods are the rules for
// delivering, answering, retrying and parking. It is a value in memory, and no method blocks.
//
// Every event up to readTo is settled, unless it is leased, is among the retries or the dead letters, or is in a stream
// that is behind and has a version above the last delivered one. So events may be answered in any order.
//
// Methods apply at once and record what changes in the rows next to the ledger. change returns all of these changes
// together. If saving them fails, the ledger is discarded and read again.
//
// Times are microseconds since 1970 by the database's clock.
type ledger struct {
	partition int
	ordered   bool // at most one event of a stream is in flight or waits for a retry

	readTo  int64 // everything up to here was looked at
	floor   int   // attempts up to this one precede a seek
	highest int   // highest attempt so far
	owner   domain.GroupMemberID

	leases  []*lease               // by position; may include ended ones until tidy
	behind  map[string]*leftBehind // by stream
	origins map[int64]int64        // when a replayed event was first parked, by position

	retries      map[int64]*Retry    // by position
	replays      []domain.DeadLetter // dead letters whose replay was requested, oldest first
	replaysCut   bool                // there may be more replays than were read
	otherReplays bool                // also of streams that have no replay in memory

	leaseOf      map[domain.EventID]*lease
	retryOf      map[domain.EventID]*Retry
	heldStreams  map[string]struct{} // ordered: streams with an event in flight or waiting for a retry
	freedStreams []string            // ordered: streams that are behind and not held; some may be outdated

	endedEvents []domain.EventID // events whose leases have ended since recordInFlight was called

	dirty       bool  // changes since the last read or save must not be lost
	savedReadTo int64 // readTo at the last read or save; if progress after it is lost, skipped events are looked at again
	untidy      bool  // some leases have ended or are out of order
	retry       map[int64]*Retry
	unretry     map[int64]struct{}
	park        map[int64]domain.DeadLetter
	unpark      map[int64]struct{}
}

// lease is an event that was delivered and is not settled.
type lease struct {
	leasedEvent
	leaseTerms
	ended bool
}

// leasedEvent is what a ledger knows of an event in flight.
type leasedEvent struct {
	position  int64
	id        domain.EventID
	stream    string
	version   int64
	eventType string
}

func leasedEventOf(e *domain.Event) leasedEvent {
	return leasedEvent{position: e.Position, id: e.ID, stream: e.Stream, version: e.Version, eventType: e.Type}
}

// leaseTerms are what the events of one answer have in common, unless they were delivered before.
type leaseTerms struct {
	attempt   int
	base      int // attempts up to this one do not count
	replays   int
	delivered int64 // the same for all events of one answer, and for no others
	deadline  int64 // 0: given back, due at once; delivered: interrupted, due at once by itself
}

// leftBehind is a stream with undelivered events at or below readTo, because an earlier event held the stream.
type leftBehind struct {
	stream   string
	version  int64 // everything that is left has a higher version
	position int64 // nothing that is left has a lower position
}

// newLedger returns the ledger of a partition that has delivered nothing, starting after readTo.
func newLedger(partition int, ordered bool, readTo int64) *ledger {
	return &ledger{
		partition: partition, ordered: ordered, readTo: readTo, savedReadTo: readTo,
		behind: make(map[string]*leftBehind), origins: make(map[int64]int64),
		retries: make(map[int64]*Retry),
		leaseOf: make(map[domain.EventID]*lease), retryOf: make(map[domain.EventID]*Retry), heldStreams: make(map[string]struct{}),
		retry: make(map[int64]*Retry), unretry: make(map[int64]struct{}),
		park: make(map[int64]domain.DeadLetter), unpark: make(map[int64]struct{}),
	}
}

// openLedger decodes the ledger of a row. It returns an error if the ledger is unreadable. Except for a seek, identify
// and addRows must follow.
func openLedger(partition int, row LedgerRow) (*ledger, error) {
	l := newLedger(partition, row.Group.Ordering == domain.OrderingStream, row.ReadTo)
	if row.Ledger != nil {
		if err := l.decode(row.Ledger); err != nil {
			return nil, err
		}
	}
	l.savedReadTo = l.readTo
	return l, nil
}

// identify adds the events of the leases to a ledger that was just opened. It takes them from known, the partition's
// ledger in memory until now, which may be nil. read returns the others from the log, in any order and without their
// data. The lease of an event that is no longer in the log ends.
func (l *ledger) identify(known *ledger, read func(positions []int64) ([]domain.Event, error)) error {
	if known != nil {
		known.tidy()
	}
	var unknown []int64
	byPosition := func(le *lease, position int64) int { return cmp.Compare(le.position, position) }
	for _, le := range l.leases {
		if known != nil {
			if i, found := slices.BinarySearchFunc(known.leases, le.position, byPosition); found {
				le.leasedEvent = known.leases[i].leasedEvent
				l.leaseOf[le.id] = le
				continue
			}
		}
		unknown = append(unknown, le.position)
	}
	if len(unknown) == 0 {
		return nil
	}
	events, err := read(unknown)
	if err != nil {
		return err
	}
	for i := range events {
		if n, found := slices.BinarySearchFunc(l.leases, events[i].Position, byPosition); found {
			le := l.leases[n]
			le.leasedEvent = leasedEventOf(&events[i])
			l.leaseOf[le.id] = le
		}
	}
	for _, le := range l.leases {
		if le.id.IsZero() {
			le.ended, l.untidy, l.dirty = true, true, true
			delete(l.origins, le.position)
		}
	}
	l.tidy()
	return nil
}

// addRows adds the rows that belong to a ledger that was just read and identified.
func (l *ledger) addRows(retries []Retry, replays []domain.DeadLetter) {
	for i := range retries {
		r := &retries[i]
		l.retries[r.Position], l.retryOf[r.EventID] = r, r
	}
	l.replays, l.replaysCut = replays, len(replays) >= domain.MaxReplays
	l.otherReplays = l.replaysCut
	if !l.ordered {
		return
	}
	for _, le := range l.leases {
		l.heldStreams[le.stream] = struct{}{}
	}
	for _, r := range l.retries {
		l.heldStreams[r.Stream] = struct{}{}
	}
	for _, b := range l.sortedBehind() {
		if _, held := l.heldStreams[b.stream]; !held {
			l.freedStreams = append(l.freedStreams, b.stream)
		}
	}
}

func (l *ledger) sortedBehind() []*leftBehind {
	return slices.SortedFunc(maps.Values(l.behind), func(a, b *leftBehind) int {
		return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.stream, b.stream))
	})
}

// inFlight returns how many events are leased.
func (l *ledger) inFlight() int { return len(l.leaseOf) }

// tidy removes ended leases and sorts the rest.
func (l *ledger) tidy() {
	if !l.untidy {
		return
	}
	l.untidy = false
	l.leases = slices.DeleteFunc(l.leases, func(le *lease) bool { return le.ended })
	byPosition := func(a, b *lease) int { return cmp.Compare(a.position, b.position) }
	if !slices.IsSortedFunc(l.leases, byPosition) {
		slices.SortFunc(l.leases, byPosition)
	}
}

// checkpoint returns the position up to which nothing is in flight, and everything was read.
func (l *ledger) checkpoint() int64 {
	l.tidy()
	if len(l.leases) > 0 {
		return l.leases[0].position - 1
	}
	return l.readTo
}

// status returns the partition's status for lists.
func (l *ledger) status() domain.PartitionStatus {
	l.tidy()
	s := domain.PartitionStatus{
		Partition: l.partition, Checkpoint: l.checkpoint(), ReadTo: l.readTo, InFlight: int64(l.inFlight()), Retrying: int64(len(l.retries)), Owner: l.owner,
	}
	oldest := func(position int64) {
		if s.Oldest == 0 || position < s.Oldest {
			s.Oldest = position
		}
	}
	if len(l.leases) > 0 {
		oldest(l.leases[0].position)
	}
	for position := range l.retries {
		oldest(position)
	}
	for _, b := range l.behind {
		oldest(b.position)
	}
	return s
}

// change returns everything that changed since the ledger was read or saved, ready to be saved. It does not set the
// revisions of the group and the ledger.
func (l *ledger) change() LedgerChange {
	c := LedgerChange{Partition: l.partition, Status: l.status()}
	c.Ledger = l.encode()
	for _, position := range slices.Sorted(maps.Keys(l.retry)) {
		c.Retry = append(c.Retry, *l.retry[position])
	}
	c.Unretry = slices.Sorted(maps.Keys(l.unretry))
	for _, position := range slices.Sorted(maps.Keys(l.park)) {
		c.Park = append(c.Park, l.park[position])
	}
	c.Unpark = slices.Sorted(maps.Keys(l.unpark))
	return c
}

// saved records that the result of change is in the database.
func (l *ledger) saved() {
	l.dirty, l.savedReadTo = false, l.readTo
	clear(l.retry)
	clear(l.unretry)
	clear(l.park)
	clear(l.unpark)
}

// Holding streams.

func (l *ledger) holdStream(stream string) {
	if l.ordered {
		l.heldStreams[stream] = struct{}{}
	}
}

// releaseStream ends the hold on a stream.
func (l *ledger) releaseStream(stream string) {
	if !l.ordered {
		return
	}
	delete(l.heldStreams, stream)
	if l.behind[stream] != nil {
		l.freedStreams = append(l.freedStreams, stream)
	}
}

// isHeld reports whether no event of a stream may be delivered now.
func (l *ledger) isHeld(stream string) bool {
	_, held := l.heldStreams[stream]
	return held
}

// afterSeek returns the ledger after a seek, which continues after readTo. Events in flight or waiting for a retry are
// dropped. Dead letters stay.
func (l *ledger) afterSeek(readTo int64) *ledger {
	to := newLedger(l.partition, l.ordered, readTo)
	to.floor, to.highest, to.owner = l.highest, l.highest, l.owner
	return to
}

// lostLedger replaces an unreadable ledger after a seek, which drops what it had in flight. The number of earlier
// attempts is unknown, but is lower than the seconds since 2020, before groups existed. So new attempts count from
// there, and no answer to an earlier delivery matches a new one.
func lostLedger(partition int, ordered bool) *ledger {
	l := newLedger(partition, ordered, 0)
	l.highest = int(time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)).Seconds())
	return l
}
