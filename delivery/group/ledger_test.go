package group

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// ledgerModel is a simple model of a group: each event has a separate fate.
type ledgerModel struct {
	t       *rapid.T
	ordered bool
	log     []domain.Event
	ledger  *ledger
	now     int64

	most, attempts int
	replays        int   // that are read at once
	from           int64 // the group began behind it, or was moved there

	// What the database has beside the ledger.
	retries map[int64]Retry
	letters map[int64]domain.DeadLetter

	fate     map[int64]string // by position: flight, retry, parked, settled; nothing: not delivered yet
	attempt  map[int64]int    // the last one
	used     map[domain.Attempt]bool
	finished map[int64]bool // acked or skipped, since the last seek
	answers  map[int64]int  // by position, in flight: the receive that gave it; nothing: it is due again
	gave     map[int64]int  // by position: the receive that gave it last
	returned map[int64]bool // by position: it was given back since
	received int            // number of receives
}

func drawLedgerModel(t *rapid.T) *ledgerModel {
	m := &ledgerModel{
		t: t, ordered: rapid.Bool().Draw(t, "ordered"), now: 1_000_000,
		most: rapid.IntRange(1, 6).Draw(t, "max in flight"), attempts: rapid.IntRange(1, 3).Draw(t, "max attempts"),
		replays: rapid.SampledFrom([]int{1, 2, 3, domain.MaxReplays}).Draw(t, "replays read at once"),
		retries: make(map[int64]Retry), letters: make(map[int64]domain.DeadLetter),
		fate: make(map[int64]string), attempt: make(map[int64]int), used: make(map[domain.Attempt]bool), finished: make(map[int64]bool),
		answers: make(map[int64]int), gave: make(map[int64]int), returned: make(map[int64]bool),
	}
	versions := make(map[string]int64)
	for position := range rapid.Int64Range(1, 40).Draw(t, "events") {
		stream := fmt.Sprintf("s-%d", rapid.IntRange(1, 5).Draw(t, "stream"))
		versions[stream]++
		m.log = append(m.log, domain.Event{
			ID: domain.DeriveEventID(fmt.Sprint(position)), Position: position + 1, Stream: stream, Version: versions[stream],
			Type: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "type"),
		})
	}
	m.ledger = newLedger(0, m.ordered, 0)
	return m
}

func (m *ledgerModel) event(position int64) *domain.Event { return &m.log[position-1] }

// save writes what has changed, and reads it as another process does, so that only encoded state remains.
func (m *ledgerModel) save() {
	c := m.ledger.change()
	for _, position := range c.Unretry {
		delete(m.retries, position)
	}
	for _, r := range c.Retry {
		m.retries[r.Position] = r
	}
	for _, position := range c.Unpark {
		delete(m.letters, position)
	}
	for _, d := range c.Park {
		m.letters[d.Position] = d
	}
	m.ledger.saved()
	if rapid.Bool().Draw(m.t, "another process continues") {
		m.reopen(c.Ledger)
	}
	m.check(c.Status)
}

func (m *ledgerModel) reopen(encoded []byte) {
	ordering := domain.OrderingNone
	if m.ordered {
		ordering = domain.OrderingStream
	}
	row := LedgerRow{Group: domain.Group{GroupDefinition: domain.GroupDefinition{Ordering: ordering}}, Ledger: encoded}
	for _, position := range slices.Sorted(maps.Keys(m.retries)) {
		row.Retries = append(row.Retries, m.retries[position])
	}
	row.Replays = m.askedBeside(nil)
	l, err := openLedger(0, row)
	if err != nil {
		m.t.Fatal(err)
	}
	known := m.ledger
	if rapid.Bool().Draw(m.t, "nothing is in memory") {
		known = nil
	}
	err = l.identify(known, func(positions []int64) (events []domain.Event, err error) {
		for _, position := range slices.Backward(positions) {
			events = append(events, *m.event(position))
		}
		return events, nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	l.addRows(row.Retries, row.Replays)
	l.replaysCut = len(row.Replays) == m.replays
	l.otherReplays = l.replaysCut
	if err := l.readOtherReplays(m.replays, func(streams []string) ([]domain.DeadLetter, error) { return m.askedBeside(streams), nil }); err != nil {
		m.t.Fatal(err)
	}
	if again := l.encode(); !bytes.Equal(again, encoded) {
		m.t.Fatalf("a ledger is encoded as %x, and read and encoded again as %x", encoded, again)
	}
	m.ledger = l
}

// askedBeside are the first dead letters of other streams than these whose replay was asked for, as the store reads
// them.
func (m *ledgerModel) askedBeside(streams []string) (first []domain.DeadLetter) {
	for _, position := range slices.Sorted(maps.Keys(m.letters)) {
		if d := m.letters[position]; !d.ReplayAt.IsZero() && !slices.Contains(streams, d.Stream) && len(first) < m.replays {
			first = append(first, d)
		}
	}
	return first
}

// look checks that no replay waits for those of other streams.
func (m *ledgerModel) look() {
	if m.ledger.wantsReplays() {
		m.reopen(m.ledger.encode())
	}
	for _, d := range m.letters {
		if !d.ReplayAt.IsZero() && !m.ledger.isHeld(d.Stream) && !m.ledger.isDeliveredAnyway(&d) && !m.ledger.hasFreeReplay() {
			m.t.Fatalf("the replay of the event at %d of %s waits, and the stream is not held", d.Position, d.Stream)
		}
	}
}

// check compares the ledger with the model.
func (m *ledgerModel) check(status domain.PartitionStatus) {
	flight, retrying, oldest := int64(0), int64(0), int64(0)
	checkpoint := m.ledger.readTo
	for i := len(m.log); i > 0; i-- {
		position := int64(i)
		switch m.fate[position] {
		case "flight":
			flight++
			oldest = position
			checkpoint = position - 1
		case "retry":
			retrying++
			oldest = position
		case "parked":
			if _, there := m.letters[position]; !there {
				m.t.Fatalf("the event at %d was parked, and there is no dead letter", position)
			}
		}
	}
	if status.InFlight != flight || status.Retrying != retrying || int(retrying) != len(m.retries) || status.Checkpoint != checkpoint {
		m.t.Fatalf("the status is %+v; want %d in flight, %d retrying, %d rows, checkpoint %d", status, flight, retrying, len(m.retries), checkpoint)
	}
	if oldest > 0 && (status.Oldest == 0 || status.Oldest > oldest) {
		m.t.Fatalf("the oldest is said to be %d; want %d, or less where a stream is behind", status.Oldest, oldest)
	}
	if int(flight) > m.most {
		m.t.Fatalf("%d are in flight; at most %d are allowed", flight, m.most)
	}
	if m.ordered {
		streams := make(map[string]int64)
		for position, fate := range m.fate {
			if fate != "flight" && fate != "retry" {
				continue
			}
			stream := m.event(position).Stream
			if other := streams[stream]; other != 0 {
				m.t.Fatalf("the events at %d and %d of %s are in flight or retrying at the same time", other, position, stream)
			}
			streams[stream] = position
		}
	}
}

// delivered records a delivery, and checks that it was allowed.
func (m *ledgerModel) delivered(le *lease) {
	attempt := domain.Attempt{EventID: le.id, Attempt: le.attempt}
	switch {
	case m.used[attempt]:
		m.t.Fatalf("attempt %d of the event at %d is given twice", le.attempt, le.position)
	case m.finished[le.position]:
		m.t.Fatalf("the event at %d is delivered again after it was settled", le.position)
	case le.attempt <= m.attempt[le.position]:
		m.t.Fatalf("attempt %d of the event at %d comes after attempt %d", le.attempt, le.position, m.attempt[le.position])
	}
	if m.ordered && le.replays == 0 {
		for _, e := range m.log[:le.position-1] {
			fate := m.fate[e.Position]
			if e.Stream == le.stream && e.Position > m.from && fate != "settled" && fate != "parked" {
				m.t.Fatalf("the event at %d is delivered before that at %d of its stream, which is %q", le.position, e.Position, fate)
			}
		}
	}
	m.used[attempt] = true
	m.attempt[le.position], m.fate[le.position] = le.attempt, "flight"
	m.answers[le.position], m.gave[le.position] = m.received, m.received
	delete(m.returned, le.position)
	if le.base >= le.attempt {
		m.t.Fatalf("the event at %d is delivered with attempt %d, of which %d do not count", le.position, le.attempt, le.base)
	}
}

// together returns how many events of a receive are unsettled, and were not given back. They may be interrupted.
func (m *ledgerModel) together(receive int) (events int) {
	for position, of := range m.gave {
		if of == receive && m.fate[position] == "flight" && !m.returned[position] {
			events++
		}
	}
	return events
}

// expire interrupts what has expired. Only an event that was its receive's only one in flight counts the attempt.
func (m *ledgerModel) expire() {
	parked, interrupted := 0, make(map[int64]int)
	for _, le := range m.ledger.leases {
		of, held := m.answers[le.position]
		if le.ended || !held || le.deadline > m.now {
			continue
		}
		counts := le.attempt - le.base
		switch alone := m.together(of) == 1; {
		case alone && counts >= m.attempts:
			m.fate[le.position] = "parked"
			parked++
			continue
		case !alone:
			counts = max(0, counts-1)
		}
		interrupted[le.position] = counts
	}
	if got := m.ledger.expireLeases(m.now, m.attempts); got != parked {
		m.t.Fatalf("%d were parked; want %d", got, parked)
	}
	for _, le := range m.ledger.leases {
		counts, of := interrupted[le.position]
		if of && !le.ended && (!le.interrupted() || le.attempt-le.base != counts) {
			m.t.Fatalf("the interrupted event at %d counts %d attempts; want %d", le.position, le.attempt-le.base, counts)
		}
	}
	for position := range interrupted {
		delete(m.answers, position)
	}
}

func (m *ledgerModel) receive() {
	m.look()
	l := m.ledger
	m.now++ // no two receives have the same time
	m.received++
	deadline := m.now + 100
	m.expire()
	want := rapid.IntRange(1, 8).Draw(m.t, "batch")
	if single := l.dueInterrupted(1); len(single) > 0 {
		m.delivered(l.redeliver(single[0], m.event(single[0].position()), m.now, deadline))
		return
	}
	fresh := func() bool { return len(l.retries) < 2*m.most }
	for _, a := range l.dueRedeliveries(m.now, want, m.most-l.inFlight(), fresh()) {
		m.delivered(l.redeliver(a, m.event(a.position()), m.now, deadline))
		want--
	}
	for want > 0 && fresh() && l.inFlight() < m.most {
		free := l.freeStreams(1)
		if len(free) == 0 {
			break
		}
		b := free[0]
		e := m.nextInStream(b)
		if e == nil {
			l.caughtUp(b)
			continue
		}
		m.delivered(l.leaseLeftBehind(b, e, m.now, deadline))
		want--
	}
	for want > 0 && fresh() && l.inFlight() < m.most && int(l.readTo) < len(m.log) {
		if le := l.leaseNext(m.event(l.readTo+1), m.now, deadline); le != nil {
			m.delivered(le)
			want--
		}
	}
}

func (m *ledgerModel) nextInStream(b *leftBehind) *domain.Event {
	for i := range m.log[:m.ledger.readTo] {
		if e := &m.log[i]; e.Stream == b.stream && e.Version > b.version {
			if e.Position < b.position {
				m.t.Fatalf("the event at %d was left behind in a stream that is said to be behind from %d on", e.Position, b.position)
			}
			return e
		}
	}
	return nil
}

// answer picks a delivery at random, mostly one in flight, and answers it.
func (m *ledgerModel) answer() {
	if len(m.used) == 0 {
		return
	}
	var all []domain.Attempt
	for position := range m.attempt {
		id := m.event(position).ID
		for attempt := 1; attempt <= m.attempt[position]; attempt++ {
			if a := (domain.Attempt{EventID: id, Attempt: attempt}); m.used[a] {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, func(a, b domain.Attempt) int {
		return bytes.Compare(append(a.EventID[:], byte(a.Attempt)), append(b.EventID[:], byte(b.Attempt)))
	})
	a := rapid.SampledFrom(all).Draw(m.t, "answered")
	var position int64
	for i := range m.log {
		if m.log[i].ID == a.EventID {
			position = m.log[i].Position
		}
	}
	le, outcome := m.ledger.find(a)
	current := m.fate[position] == "flight" && m.attempt[position] == a.Attempt
	if current != (outcome == domain.OutcomeDone) || (le != nil) != current {
		m.t.Fatalf("an answer to attempt %d of the event at %d, which is %q with attempt %d, is %s", a.Attempt, position, m.fate[position], m.attempt[position], outcome)
	}
	if m.fate[position] == "flight" && a.Attempt < m.attempt[position] && outcome != domain.OutcomeStale {
		m.t.Fatalf("an answer to attempt %d, while %d is in flight, is %s", a.Attempt, m.attempt[position], outcome)
	}
	if le == nil {
		return
	}
	_, held := m.answers[position]
	switch rapid.SampledFrom([]string{"ack", "retry", "park", "extend", "give back", "interrupt"}).Draw(m.t, "answer") {
	case "interrupt":
		if !held {
			return
		}
		delete(m.answers, position)
		if m.ledger.interrupt(le, rapid.Bool().Draw(m.t, "alone"), m.now, m.attempts, "no") {
			m.fate[position] = "parked"
		}
	case "ack":
		m.ledger.settle(le)
		m.fate[position], m.finished[position] = "settled", true
	case "park":
		m.ledger.parkLease(le, m.now, "no")
		m.fate[position] = "parked"
	case "retry":
		if le.lastAttempt(m.attempts) {
			m.ledger.parkLease(le, m.now, "no")
			m.fate[position] = "parked"
			return
		}
		m.ledger.retryAt(le, m.now+rapid.Int64Range(0, 200).Draw(m.t, "delay"), "no")
		m.fate[position] = "retry"
	case "extend":
		m.ledger.extend(le, m.now+500)
		m.answers[position] = m.gave[position] // even if it was late
		delete(m.returned, position)
	case "give back":
		m.ledger.giveBack(le)
		if held {
			delete(m.answers, position)
			m.returned[position] = true
		}
	}
}

// replay requests the replay of some dead letters, as the store does.
func (m *ledgerModel) replay() {
	asked := false
	for _, position := range slices.Sorted(maps.Keys(m.letters)) {
		if d := m.letters[position]; d.ReplayAt.IsZero() && m.fate[position] == "parked" && rapid.Bool().Draw(m.t, "replayed") {
			d.ReplayAt = d.ParkedAt
			m.letters[position] = d
			asked = true
		}
	}
	if asked {
		m.reopen(m.ledger.encode())
	}
}

func (m *ledgerModel) seek() {
	m.from = rapid.Int64Range(0, int64(len(m.log))).Draw(m.t, "sought")
	m.ledger = m.ledger.afterSeek(m.from)
	clear(m.retries)
	maps.DeleteFunc(m.letters, func(position int64, d domain.DeadLetter) bool { return !d.ReplayAt.IsZero() && position > m.from }) // as the store does
	for position, fate := range m.fate {
		if fate != "parked" || position > m.from {
			delete(m.fate, position)
		}
	}
	clear(m.finished)
	for position := range m.log[:m.from] {
		if m.fate[int64(position+1)] == "" {
			m.fate[int64(position+1)] = "settled"
		}
	}
	m.reopen(m.ledger.encode())
}

// Whatever consumers do, and whichever process continues: no event is lost, no settled event is redelivered, attempts
// only increase, and the streams of an ordered group stay in order.
func TestLedgerInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawLedgerModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"receive": func(*rapid.T) { m.receive(); m.save() },
			"answer":  func(*rapid.T) { m.answer(); m.save() },
			"wait":    func(t *rapid.T) { m.now += rapid.Int64Range(1, 150).Draw(t, "time") },
			"replay":  func(*rapid.T) { m.replay() },
			"seek": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					m.seek()
				}
			},
		})
		m.drain()
	})
}

// drain acknowledges everything, and checks that nothing was lost.
func (m *ledgerModel) drain() {
	for range 20 * len(m.log) {
		m.now += 10_000
		m.receive()
		for position, fate := range m.fate {
			if fate != "flight" {
				continue
			}
			le, outcome := m.ledger.find(domain.Attempt{EventID: m.event(position).ID, Attempt: m.attempt[position]})
			if le == nil {
				m.t.Fatalf("the event at %d cannot be acked: %s", position, outcome)
			}
			m.ledger.settle(le)
			m.fate[position], m.finished[position] = "settled", true
		}
		m.save()
	}
	for _, e := range m.log {
		if fate := m.fate[e.Position]; fate != "settled" && fate != "parked" {
			m.t.Fatalf("the event at %d is %q in the end", e.Position, fate)
		}
	}
	if s := m.ledger.status(); s.Checkpoint != int64(len(m.log)) || s.Oldest != 0 || len(m.ledger.behind) > 0 || len(m.ledger.heldStreams) > 0 || len(m.ledger.origins) > 0 {
		m.t.Fatalf("in the end the status is %+v, with %d behind, %d held, %d origins", s, len(m.ledger.behind), len(m.ledger.heldStreams), len(m.ledger.origins))
	}
}

// Events that kill their consumer become dead letters, and none of the events that were in flight with them.
func TestOnlyEventsThatKillTheirConsumerAreParked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawLedgerModel(t)
		deadly := make(map[int64]bool)
		for i := range m.log {
			deadly[int64(i+1)] = rapid.IntRange(0, 5).Draw(t, "deadly") == 0
		}
		deaths := 0
		for rounds := 0; ; rounds++ {
			m.receive()
			m.save()
			dies := false
			given := slices.DeleteFunc(slices.Sorted(maps.Keys(m.answers)), func(position int64) bool {
				return m.answers[position] != m.received || m.fate[position] != "flight"
			})
			if len(given) == 0 && int(m.ledger.readTo) == len(m.log) && m.ledger.inFlight() == 0 {
				break
			}
			for _, position := range given {
				if dies = deadly[position]; dies {
					deaths++
					m.now += 1000 // until its leases have expired
					break
				}
				le, _ := m.ledger.find(domain.Attempt{EventID: m.event(position).ID, Attempt: m.attempt[position]})
				m.ledger.settle(le)
				m.fate[position], m.finished[position] = "settled", true
			}
			if rounds > 1000 {
				t.Fatal("it does not come to an end")
			}
		}
		all := 0
		for position, deadly := range deadly {
			if parked := m.fate[position] == "parked"; parked != deadly {
				t.Fatalf("the event at %d is %q; it kills its consumer: %v", position, m.fate[position], deadly)
			}
			if deadly {
				all++
			}
		}
		if most := all * (m.attempts + 1); deaths > most {
			t.Fatalf("%d events have killed %d consumers; at most %d were needed", all, deaths, most)
		}
	})
}

// Of a thousand events in flight, a ledger takes little more than a byte each.
func TestLedgersAreSmall(t *testing.T) {
	t.Parallel()
	l := newLedger(0, false, 0)
	for i := range int64(1000) {
		delivered := 1_790_000_000_000_000 + i/100*1000
		l.leaseNext(&domain.Event{ID: domain.NewEventID(), Position: 1_000_000_000 + 3*i, Stream: "order-1", Version: i, Type: "Placed"}, delivered, delivered+30_000_000)
	}
	if n := len(l.encode()); n > 1200 {
		t.Fatalf("the ledger has %d bytes", n)
	}
}

// The lease of an event that is no longer in the log ends.
func TestIdentifyEndsLeasesOfMissingEvents(t *testing.T) {
	t.Parallel()
	saved := newLedger(0, true, 0)
	var events []domain.Event
	for i := range int64(3) {
		e := domain.Event{ID: domain.NewEventID(), Position: i + 1, Stream: fmt.Sprintf("s-%d", i), Version: 1, Type: "T"}
		events = append(events, e)
		saved.leaseNext(&e, 100, 200)
	}
	row := LedgerRow{Group: domain.Group{GroupDefinition: domain.GroupDefinition{Ordering: domain.OrderingStream}}, Ledger: saved.encode()}
	l, err := openLedger(0, row)
	if err != nil {
		t.Fatal(err)
	}
	var asked []int64
	err = l.identify(nil, func(positions []int64) ([]domain.Event, error) {
		asked = positions
		return []domain.Event{events[2], events[0]}, nil
	})
	l.addRows(nil, nil)
	if err != nil || !slices.Equal(asked, []int64{1, 2, 3}) {
		t.Fatalf("it reads the events at %v: %v", asked, err)
	}
	if l.inFlight() != 2 || l.leaseOf[events[1].ID] != nil || l.isHeld("s-1") || !l.isHeld("s-2") {
		t.Fatalf("%d events are in flight, of streams %v", l.inFlight(), l.heldStreams)
	}
	if !l.dirty || l.checkpoint() != 0 || l.leases[1].position != 3 {
		t.Fatalf("the lease that ended is not saved, or others ended: %+v", l)
	}
}

// ledgerOfVersion1 is what an earlier release encoded.
const ledgerOfVersion1 = "010b000100000000000000000000000000000000010154640302338a3d986bbc8c43b2a3206a429aaa3003732d300100010000006503031dc88d0ec0852d918bbc28b322" +
	"da9303732d31010001010000000325af8dcacaa182a0ac5b816b1b9b111703732d32010001000002660103732d30010b010222"

// A ledger that an earlier release wrote is read.
func TestLedgerOfVersion1(t *testing.T) {
	t.Parallel()
	encoded, err := hex.DecodeString(ledgerOfVersion1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLedger(0, LedgerRow{Ledger: encoded})
	if err != nil {
		t.Fatal(err)
	}
	var found []lease
	for _, le := range l.leases {
		found = append(found, *le)
	}
	want := []lease{
		{leasedEvent: leasedEvent{position: 2}, leaseTerms: leaseTerms{attempt: 1, delivered: 100, deadline: 200}},
		{leasedEvent: leasedEvent{position: 5}, leaseTerms: leaseTerms{attempt: 1, base: 1, delivered: 100}},
		{leasedEvent: leasedEvent{position: 8}, leaseTerms: leaseTerms{attempt: 1, delivered: 101, deadline: 202}},
	}
	behind := leftBehind{stream: "s-0", version: 1, position: 11}
	if !slices.Equal(found, want) || l.readTo != 11 || l.highest != 1 || l.origins[2] != 17 || len(l.behind) != 1 || *l.behind["s-0"] != behind {
		t.Fatalf("it is read as %+v with the leases %+v", l, found)
	}
}

// Decoding fails on anything that is not a ledger, and restores a ledger as it was encoded.
func FuzzLedgerDecode(f *testing.F) {
	l := newLedger(0, true, 0)
	for i := range int64(5) {
		stream := fmt.Sprintf("s-%d", i%3)
		l.leaseNext(&domain.Event{ID: domain.NewEventID(), Position: 2*i + 1, Stream: stream, Version: i + 1, Type: "T"}, 100, 200)
	}
	l.origins[3] = 17
	f.Add(l.encode())
	l.leases[1].attempt++
	l.leases[2].deadline = 0
	f.Add(l.encode())
	version1, err := hex.DecodeString(ledgerOfVersion1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(version1)
	f.Add(newLedger(0, false, 1<<40).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		l := newLedger(0, true, 0)
		if err := l.decode(b); err != nil {
			return
		}
		again := newLedger(0, true, 0)
		if err := again.decode(l.encode()); err != nil {
			t.Fatalf("%x is read, but not what is made of it, %x: %v", b, l.encode(), err)
		}
		if !bytes.Equal(again.encode(), l.encode()) {
			t.Fatalf("%x changes when it is read again", l.encode())
		}
	})
}
