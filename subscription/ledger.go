package subscription

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// ledger is what one partition of a group knows of the events that it has looked at: the rules of delivering, answering,
// retrying and parking are its methods. It is a value in memory: nothing of it waits for anything.
//
// Everything up to readTo is settled, unless it is leased, among the retries or the dead letters, or in a stream that is behind
// and above the version delivered last. So events may be answered in any order.
//
// Methods apply at once and note what changes for the rows beside the ledger; change gives all of it together. A ledger whose
// change could not be saved is thrown away and read anew.
//
// Times are microseconds since 1970 by the database's clock.
type ledger struct {
	partition int
	ordered   bool // at most one event of a stream is in flight or waits for a retry

	readTo  int64 // everything up to here was looked at
	floor   int   // attempts up to this one were made before a seek
	highest int   // no attempt above this one was made yet
	owner   domain.GroupMemberID

	leases  []*lease               // by position, with some that are gone, until tidy
	behind  map[string]*leftBehind // by stream
	origins map[int64]int64        // when an event that was replayed was parked first, by position

	retries map[int64]*domain.Retry // by position
	replays []domain.DeadLetter     // whose replay was asked for, oldest first
	cut     bool                    // there may be more of these than were read,
	others  bool                    // also of streams that have none among those that were

	leaseOf map[domain.EventID]*lease
	retryOf map[domain.EventID]*domain.Retry
	holds   map[string]struct{} // ordered: streams with an event in flight or waiting for a retry
	freed   []string            // ordered: streams that are behind and not held, and some that no longer are

	ended []domain.EventID // whose leases have ended since somebody took note

	dirty   bool  // something has changed since the ledger was read or saved that must not be lost
	kept    int64 // readTo as it was then; who loses what came behind it looks at events again that were passed over
	untidy  bool  // leases that are gone, or out of order
	retry   map[int64]*domain.Retry
	unretry map[int64]struct{}
	park    map[int64]domain.DeadLetter
	unpark  map[int64]struct{}
}

// lease is an event that was delivered and is not settled.
type lease struct {
	position  int64
	id        domain.EventID
	stream    string
	version   int64
	eventType string
	attempt   int
	base      int // attempts up to this one do not count
	replays   int
	delivered int64
	deadline  int64 // 0: given back, due at once
	gone      bool
}

// leftBehind is a stream with events at or below readTo that were not delivered yet, since an earlier one held the stream.
type leftBehind struct {
	stream   string
	version  int64 // what is left begins behind this version
	position int64 // nothing that is left has a lower position
}

// newLedger is the ledger of a partition that was never read from, up to a position.
func newLedger(partition int, ordered bool, readTo int64) *ledger {
	return &ledger{
		partition: partition, ordered: ordered, readTo: readTo, kept: readTo,
		behind: make(map[string]*leftBehind), origins: make(map[int64]int64),
		retries: make(map[int64]*domain.Retry),
		leaseOf: make(map[domain.EventID]*lease), retryOf: make(map[domain.EventID]*domain.Retry), holds: make(map[string]struct{}),
		retry: make(map[int64]*domain.Retry), unretry: make(map[int64]struct{}),
		park: make(map[int64]domain.DeadLetter), unpark: make(map[int64]struct{}),
	}
}

// openLedger is the ledger of a row. The error is of a ledger that cannot be read.
func openLedger(partition int, row domain.LedgerRow) (*ledger, error) {
	l := newLedger(partition, row.Group.Ordering == domain.OrderingStream, row.ReadTo)
	if row.Ledger != nil {
		if err := l.decode(row.Ledger); err != nil {
			return nil, err
		}
	}
	l.kept = l.readTo
	l.adopt(row.Retries, row.Replays)
	return l, nil
}

// adopt takes the rows beside a ledger that was just read.
func (l *ledger) adopt(retries []domain.Retry, replays []domain.DeadLetter) {
	for i := range retries {
		r := &retries[i]
		l.retries[r.Position], l.retryOf[r.EventID] = r, r
	}
	l.replays, l.cut = replays, len(replays) >= domain.MaxReplays
	l.others = l.cut
	if !l.ordered {
		return
	}
	for _, le := range l.leases {
		l.holds[le.stream] = struct{}{}
	}
	for _, r := range l.retries {
		l.holds[r.Stream] = struct{}{}
	}
	for _, b := range l.sortedBehind() {
		if _, held := l.holds[b.stream]; !held {
			l.freed = append(l.freed, b.stream)
		}
	}
}

func (l *ledger) sortedBehind() []*leftBehind {
	return slices.SortedFunc(maps.Values(l.behind), func(a, b *leftBehind) int {
		return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.stream, b.stream))
	})
}

// inFlight is how many events are leased.
func (l *ledger) inFlight() int { return len(l.leaseOf) }

// tidy removes what is gone from the leases and puts them in order.
func (l *ledger) tidy() {
	if !l.untidy {
		return
	}
	l.untidy = false
	l.leases = slices.DeleteFunc(l.leases, func(le *lease) bool { return le.gone })
	byPosition := func(a, b *lease) int { return cmp.Compare(a.position, b.position) }
	if !slices.IsSortedFunc(l.leases, byPosition) {
		slices.SortFunc(l.leases, byPosition)
	}
}

// status is what lists show.
func (l *ledger) status() domain.PartitionStatus {
	l.tidy()
	s := domain.PartitionStatus{
		Partition: l.partition, Checkpoint: l.readTo, ReadTo: l.readTo, InFlight: int64(l.inFlight()), Retrying: int64(len(l.retries)), Owner: l.owner,
	}
	oldest := func(position int64) {
		if s.Oldest == 0 || position < s.Oldest {
			s.Oldest = position
		}
	}
	if len(l.leases) > 0 {
		s.Checkpoint = l.leases[0].position - 1
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

// change is all that changed since the ledger was read or saved, ready to be saved; without the group's and the ledger's
// revisions.
func (l *ledger) change() domain.LedgerChange {
	c := domain.LedgerChange{Partition: l.partition, Status: l.status()}
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

// saved notes that what change gave is in the database.
func (l *ledger) saved() {
	l.dirty, l.kept = false, l.readTo
	clear(l.retry)
	clear(l.unretry)
	clear(l.park)
	clear(l.unpark)
}

// Holding streams.

func (l *ledger) hold(stream string) {
	if l.ordered {
		l.holds[stream] = struct{}{}
	}
}

// release lets a stream go on.
func (l *ledger) release(stream string) {
	if !l.ordered {
		return
	}
	delete(l.holds, stream)
	if l.behind[stream] != nil {
		l.freed = append(l.freed, stream)
	}
}

// held reports whether no event of a stream may be delivered now.
func (l *ledger) held(stream string) bool {
	_, held := l.holds[stream]
	return held
}

// sought is the ledger as a seek makes it, which goes on behind a position. What was in flight or waits for a retry is given
// up; dead letters stay.
func (l *ledger) sought(readTo int64) *ledger {
	to := newLedger(l.partition, l.ordered, readTo)
	to.floor, to.highest, to.owner = l.highest, l.highest, l.owner
	return to
}

// lostLedger stands for a ledger that cannot be read, where a seek gives up what it had in flight. Nobody knows how many attempts
// an event of it has had: fewer than seconds have gone by since there are groups. So that number is above them, and no answer to
// a delivery of before is taken for one to a new one.
func lostLedger(partition int, ordered bool) *ledger {
	l := newLedger(partition, ordered, 0)
	l.highest = int(time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)).Seconds())
	return l
}
