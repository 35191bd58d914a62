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

// Delivering.

// grant leases an event.
func (l *ledger) grant(e *domain.Event, attempt, base, replays int, now, deadline int64) *lease {
	le := &lease{
		position: e.Position, id: e.ID, stream: e.Stream, version: e.Version, eventType: e.Type,
		attempt: attempt, base: base, replays: replays, delivered: now, deadline: deadline,
	}
	if n := len(l.leases); n > 0 && l.leases[n-1].position > le.position {
		l.untidy = true
	}
	l.leases = append(l.leases, le)
	l.leaseOf[le.id] = le
	l.hold(le.stream)
	l.highest = max(l.highest, attempt)
	l.dirty = true
	return le
}

// pass moves on to a position at which, and below which, there is nothing more to be delivered.
func (l *ledger) pass(position int64) { l.readTo = max(l.readTo, position) }

// next takes the next event of the log that is the group's, which must be behind readTo: it is leased, or left behind where its
// stream is held or has others that were. It returns nil then.
func (l *ledger) next(e *domain.Event, now, deadline int64) *lease {
	l.pass(e.Position)
	if l.ordered {
		if l.behind[e.Stream] != nil {
			return nil
		}
		if l.held(e.Stream) {
			l.behind[e.Stream] = &leftBehind{stream: e.Stream, version: e.Version - 1, position: e.Position}
			return nil
		}
	}
	return l.grant(e, l.floor+1, l.floor, 0, now, deadline)
}

// free are streams that are behind and not held, at most so many, those first that have been free for longest.
func (l *ledger) free(most int) []*leftBehind {
	var streams []*leftBehind
	seen := make(map[string]struct{}, min(most, len(l.freed)))
	kept := l.freed[:0]
	for _, stream := range l.freed {
		b := l.behind[stream]
		if _, twice := seen[stream]; twice || b == nil || l.held(stream) {
			continue
		}
		kept = append(kept, stream)
		seen[stream] = struct{}{}
		if len(streams) < most {
			streams = append(streams, b)
		}
	}
	clear(l.freed[len(kept):])
	l.freed = kept
	return streams
}

// nextBehind leases the next event of a stream that is behind and free.
func (l *ledger) nextBehind(b *leftBehind, e *domain.Event, now, deadline int64) *lease {
	l.passBehind(b, e.Version, e.Position+1)
	return l.grant(e, l.floor+1, l.floor, 0, now, deadline)
}

// passBehind notes that a stream has nothing more to be delivered up to a version, and below a position.
func (l *ledger) passBehind(b *leftBehind, version, position int64) {
	b.version, b.position = version, max(b.position, position)
	l.dirty = true
}

// caughtUp notes that nothing of a stream is left behind.
func (l *ledger) caughtUp(b *leftBehind) {
	delete(l.behind, b.stream)
	l.dirty = true
}

// again is an event that may be delivered again; one of its fields is set.
type again struct {
	lease  *lease // which has expired, or was given back
	retry  *domain.Retry
	replay *domain.DeadLetter
}

func (a again) position() int64 {
	switch {
	case a.lease != nil:
		return a.lease.position
	case a.retry != nil:
		return a.retry.Position
	default:
		return a.replay.Position
	}
}

// dueAgain are the events that may be delivered again now: leases that have expired, which take no room, and with room for more, retries
// that are due, and with fresh, replays. At most so many.
func (l *ledger) dueAgain(now int64, most, room int, fresh bool) []again {
	l.tidy()
	var expired []*lease
	for _, le := range l.leases {
		if le.deadline <= now {
			expired = append(expired, le)
		}
	}
	// Those first that have waited for longest: else some, delivered to slow consumers again and again, would keep others back.
	slices.SortStableFunc(expired, func(a, b *lease) int { return cmp.Compare(a.deadline, b.deadline) })
	var due []again
	for _, le := range expired[:min(most, len(expired))] {
		due = append(due, again{lease: le})
	}
	room = min(room, most-len(due))
	if room <= 0 {
		return due
	}
	var retries []*domain.Retry
	at := time.UnixMicro(now)
	for _, r := range l.retries {
		if !r.DueAt.After(at) {
			retries = append(retries, r)
		}
	}
	slices.SortFunc(retries, func(a, b *domain.Retry) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Position, b.Position))
	})
	for _, r := range retries[:min(room, len(retries))] {
		due = append(due, again{retry: r})
		room--
	}
	if !fresh || room <= 0 {
		return due
	}
	taken := make(map[string]struct{}) // streams, of which one event is enough
	kept := make([]domain.DeadLetter, 0, len(l.replays))
	for _, d := range l.replays {
		if l.coming(&d) {
			l.forget(d.Position) // it is delivered as it is
			continue
		}
		kept = append(kept, d)
	}
	l.others = l.others || l.cut && len(kept) < len(l.replays)
	l.replays = kept
	for i := range l.replays {
		d := &l.replays[i]
		if room == 0 {
			break
		}
		if l.ordered {
			if _, twice := taken[d.Stream]; twice || l.held(d.Stream) {
				continue
			}
			taken[d.Stream] = struct{}{}
		}
		due = append(due, again{replay: d})
		room--
	}
	return due
}

// replayable reports whether one of the replays that were read is of a stream that is not held.
func (l *ledger) replayable() bool {
	return slices.ContainsFunc(l.replays, func(d domain.DeadLetter) bool { return !l.held(d.Stream) })
}

// wantsReplays reports whether there may be replays to be delivered that were not read: the ledger is to be read anew.
func (l *ledger) wantsReplays() bool {
	return l.cut && len(l.replays) == 0 || l.others && !l.replayable()
}

// replayReads is how often replays of further streams are read at once, at most: what a ledger has of them is bounded.
const replayReads = 8

// readBeside sees to it that streams which must wait, with however many replays, hold up no replay of others. read gives the oldest ones that
// are of none of some streams; most is how many it gives at most.
func (l *ledger) readBeside(most int, read func(streams []string) ([]domain.DeadLetter, error)) error {
	for reads := 0; l.others && !l.replayable(); reads++ {
		if reads == replayReads {
			l.others = false // until something of them has come to an end
			break
		}
		streams := make(map[string]struct{})
		for i := range l.replays {
			streams[l.replays[i].Stream] = struct{}{}
		}
		more, err := read(slices.Sorted(maps.Keys(streams)))
		if err != nil {
			return err
		}
		l.replays, l.others = append(l.replays, more...), len(more) >= most
	}
	return nil
}

// coming reports whether a dead letter's event is delivered without a replay: after a seek to a place before it.
func (l *ledger) coming(d *domain.DeadLetter) bool {
	if d.Position > l.readTo || l.leaseOf[d.EventID] != nil || l.retryOf[d.EventID] != nil {
		return true
	}
	b := l.behind[d.Stream]
	return b != nil && d.Version > b.version
}

// deliverAgain leases an event that dueAgain gave.
func (l *ledger) deliverAgain(a again, e *domain.Event, now, deadline int64) *lease {
	switch {
	case a.lease != nil:
		a.lease.attempt++
		a.lease.delivered, a.lease.deadline = now, deadline
		l.highest = max(l.highest, a.lease.attempt)
		l.dirty = true
		return a.lease
	case a.retry != nil:
		l.dropRetry(a.retry)
		return l.grant(e, a.retry.Attempt+1, a.retry.Base, a.retry.Replays, now, deadline)
	default:
		d := *a.replay
		l.dropReplay(&d)
		// One that was parked before a seek may have been delivered since, by attempts up to the highest.
		base := d.Attempt
		if base <= l.floor {
			base = l.highest
		}
		l.origins[d.Position] = d.FirstParkedAt.UnixMicro()
		return l.grant(e, base+1, base, d.Replays+1, now, deadline)
	}
}

// settleGone settles an event that dueAgain gave and that is no longer in the log.
func (l *ledger) settleGone(a again) {
	switch {
	case a.lease != nil:
		l.settle(a.lease)
	case a.retry != nil:
		delete(l.origins, a.retry.Position)
		l.dropRetry(a.retry)
		l.release(a.retry.Stream)
	default:
		l.dropReplay(a.replay)
	}
}

func (l *ledger) dropRetry(r *domain.Retry) {
	delete(l.retries, r.Position)
	delete(l.retryOf, r.EventID)
	delete(l.retry, r.Position)
	l.unretry[r.Position] = struct{}{}
	l.dirty = true
}

// dropReplay removes a dead letter whose replay was asked for. Where it was the last one of its stream that was read, there may be more.
func (l *ledger) dropReplay(gone *domain.DeadLetter) {
	position, stream := gone.Position, gone.Stream
	l.replays = slices.DeleteFunc(slices.Clone(l.replays), func(d domain.DeadLetter) bool { return d.Position == position })
	l.others = l.others || l.cut && !slices.ContainsFunc(l.replays, func(d domain.DeadLetter) bool { return d.Stream == stream })
	l.forget(position)
}

// forget removes a dead letter.
func (l *ledger) forget(position int64) {
	delete(l.park, position)
	l.unpark[position] = struct{}{}
	l.dirty = true
}

// Answering.

// find returns the lease that an answer is about, or what becomes of the answer where there is none.
func (l *ledger) find(a domain.Attempt) (*lease, domain.Outcome) {
	if le := l.leaseOf[a.EventID]; le != nil {
		switch {
		case le.attempt == a.Attempt:
			return le, domain.OutcomeDone
		case le.attempt > a.Attempt:
			return nil, domain.OutcomeStale
		}
		return nil, domain.OutcomeNotInFlight
	}
	if r := l.retryOf[a.EventID]; r != nil && r.Attempt >= a.Attempt {
		return nil, domain.OutcomeStale
	}
	if a.Attempt <= l.floor {
		return nil, domain.OutcomeStale // a seek has given it up
	}
	for i := range l.replays {
		if d := &l.replays[i]; d.EventID == a.EventID && d.Attempt >= a.Attempt {
			return nil, domain.OutcomeStale
		}
	}
	return nil, domain.OutcomeNotInFlight
}

// end takes a lease away.
func (l *ledger) end(le *lease) {
	delete(l.leaseOf, le.id)
	l.ended = append(l.ended, le.id)
	le.gone, l.untidy, l.dirty = true, true, true
}

// settle ends a lease for good.
func (l *ledger) settle(le *lease) {
	l.end(le)
	delete(l.origins, le.position)
	l.release(le.stream)
}

// retryAt has a leased event delivered again at a time.
func (l *ledger) retryAt(le *lease, due int64, reason string) {
	l.end(le)
	r := &domain.Retry{
		Partition: l.partition, Position: le.position, EventID: le.id, Stream: le.stream, Version: le.version,
		Attempt: le.attempt, Base: le.base, Replays: le.replays, DueAt: time.UnixMicro(due).UTC(), Reason: reason,
	}
	l.retries[r.Position], l.retryOf[r.EventID] = r, r
	delete(l.unretry, r.Position)
	l.retry[r.Position] = r
}

// parkLease puts a leased event to the dead letters.
func (l *ledger) parkLease(le *lease, now int64, reason string) {
	at := time.UnixMicro(now).UTC()
	first := at
	if origin, ok := l.origins[le.position]; ok {
		first = time.UnixMicro(origin).UTC()
	}
	l.settle(le)
	delete(l.unpark, le.position)
	l.park[le.position] = domain.DeadLetter{
		Partition: l.partition, Position: le.position, EventID: le.id, Stream: le.stream, Version: le.version, Type: le.eventType,
		Attempt: le.attempt, Base: le.base, Replays: le.replays, Reason: reason, FirstParkedAt: first, ParkedAt: at,
	}
}

// giveBack has a leased event delivered again at once, and this attempt not counted: it has reached nobody.
func (l *ledger) giveBack(le *lease) {
	le.deadline = 0
	le.base++
	l.dirty = true
}

// givenBack reports whether an event was given back that nobody was given since.
func (l *ledger) givenBack() bool {
	return slices.ContainsFunc(l.leases, func(le *lease) bool { return !le.gone && le.deadline == 0 })
}

// extend moves a lease's deadline.
func (l *ledger) extend(le *lease, deadline int64) {
	le.deadline = deadline
	l.dirty = true
}

// lastAttempt reports whether a lease's attempt is the last that its event is given.
func (le *lease) lastAttempt(maxAttempts int) bool { return le.attempt-le.base >= maxAttempts }

// unanswered is what is said of an event that nobody answered for in time.
const unanswered = "there was no answer in time"

// parkExpired parks the events whose last attempt has expired, and returns how many these are.
func (l *ledger) parkExpired(now int64, maxAttempts int) int {
	parked := 0
	for _, le := range l.leases {
		if !le.gone && le.deadline <= now && le.lastAttempt(maxAttempts) {
			l.parkLease(le, now, unanswered)
			parked++
		}
	}
	return parked
}

// nextDue is the next time at which a lease expires or, with retries, one of these is due; 0: there is none.
func (l *ledger) nextDue(retries bool) int64 {
	var next int64
	at := func(t int64) {
		if next == 0 || t < next {
			next = t
		}
	}
	for _, le := range l.leaseOf {
		at(max(1, le.deadline))
	}
	if retries {
		for _, r := range l.retries {
			at(max(1, r.DueAt.UnixMicro()))
		}
	}
	return next
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
