package group_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
)

// modelLease is the length of leases.
const modelLease = 300 * time.Millisecond

// fates is what consumers know of each event.
type fates struct {
	mu      sync.Mutex
	ordered bool
	delay   time.Duration            // of the group
	streams map[string]int64         // how many events each has
	given   map[domain.EventID][]int // the delivered attempts
	acked   map[domain.EventID]int   // the attempt whose ack was confirmed
	ended   map[string]bool          // by stream and version: an answer was sent that may have settled it
	open    map[string]string        // by stream and version: it was not, when this one of the stream was delivered
	wrong   []string
}

func at(stream string, version int64) string { return fmt.Sprintf("%s@%d", stream, version) }

func (f *fates) fail(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

// answer looks at all that one answer has: no lease that is over, no event twice, and in an ordered group no two events
// of a stream.
func (f *fates) answer(deliveries []domain.Delivery, returned time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[string]int)
	for _, d := range deliveries {
		name := at(d.Event.Stream, d.Event.Version)
		if over := returned.Sub(d.AckDeadline); over >= 0 {
			f.fail("attempt %d of %s is given %s after its deadline", d.Attempt, name, over)
		}
		if f.ordered {
			name = d.Event.Stream
		}
		if attempt, twice := seen[name]; twice {
			f.fail("%s is twice in one answer, with the attempts %d and %d", name, attempt, d.Attempt)
		}
		seen[name] = d.Attempt
	}
}

func (f *fates) delivered(d domain.Delivery, upTo int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := d.Event
	for _, attempt := range f.given[e.ID] {
		if attempt == d.Attempt {
			f.fail("attempt %d of %s is given twice", attempt, at(e.Stream, e.Version))
		}
	}
	f.given[e.ID] = append(f.given[e.ID], d.Attempt)
	if early := time.Until(e.RecordedAt.Add(f.delay)); early > 0 {
		f.fail("%s is delivered %s before its delay is over", at(e.Stream, e.Version), early)
	}
	if upTo > 0 && d.Attempt == 1 && e.Position > upTo && !f.ordered {
		f.fail("%s, at %d, is given to a receive up to %d", at(e.Stream, e.Version), e.Position, upTo)
	}
	if attempt, acked := f.acked[e.ID]; acked && d.Attempt > attempt {
		f.fail("%s is delivered with attempt %d; the ack of attempt %d was answered", at(e.Stream, e.Version), d.Attempt, attempt)
	}
	if !f.ordered || d.Replays > 0 {
		return
	}
	for version := int64(1); version < e.Version; version++ {
		if before := at(e.Stream, version); !f.ended[before] {
			f.open[before] = at(e.Stream, e.Version)
		}
	}
}

func (f *fates) answering(d domain.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended[at(d.Event.Stream, d.Event.Version)] = true
}

func (f *fates) answered(d domain.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acked[d.Event.ID] = d.Attempt
	for _, attempt := range f.given[d.Event.ID] {
		if attempt > d.Attempt {
			f.fail("%s was delivered with attempt %d; the ack of attempt %d is answered as done", at(d.Event.Stream, d.Event.Version), attempt, d.Attempt)
		}
	}
}

// consume behaves like a consumer in every respect, until its process is dead or done is closed.
func (f *fates) consume(ctx context.Context, groups *group.Groups, network *pgtest.Network, tenant domain.TenantID, behave *rand.Rand) {
	var kept []domain.Delivery   // to be answered late
	var acking []domain.Delivery // to be acknowledged by the next receive
	for ctx.Err() == nil && !network.IsDead() {
		patience := time.Duration(1+behave.IntN(200)) * time.Millisecond
		if behave.IntN(2) == 0 {
			patience = time.Minute
		}
		waiting, cancel := context.WithTimeout(ctx, patience)
		wanted := group.Receive{Batch: 1 + behave.IntN(12), Wait: time.Duration(behave.IntN(100)) * time.Millisecond}
		if behave.IntN(4) == 0 {
			wanted.UpTo = 1 + behave.Int64N(600)
		}
		for _, d := range acking {
			f.answering(d)
		}
		wanted.Ack = attempts(acking...)
		received, err := groups.Poll(waiting, tenant, "g", wanted)
		returned := time.Now()
		cancel()
		for i, outcome := range received.Outcomes {
			if outcome == domain.OutcomeDone {
				f.answered(acking[i])
			}
		}
		acking = nil
		if err != nil {
			continue
		}
		deliveries := received.Deliveries
		f.answer(deliveries, returned)
		for _, d := range deliveries {
			f.delivered(d, wanted.UpTo)
		}
		for _, d := range deliveries {
			switch behave.IntN(10) {
			case 0: // it dies with it
				continue
			case 1:
				kept = append(kept, d)
				continue
			case 2:
				// Whether it is retried or parked is the group's to say.
				_, _ = groups.Nack(ctx, tenant, "g", attempts(d), domain.Nack{Action: domain.NackRetry, Delay: -1})
				continue
			case 3:
				_, _ = groups.Extend(ctx, tenant, "g", attempts(d), time.Second)
			case 4:
				if len(kept) > 0 {
					f.ack(ctx, groups, tenant, kept[0])
					kept = kept[1:]
				}
			case 5, 6, 7:
				acking = append(acking, d)
				continue
			}
			f.ack(ctx, groups, tenant, d)
		}
	}
}

func (f *fates) ack(ctx context.Context, groups *group.Groups, tenant domain.TenantID, d domain.Delivery) {
	f.answering(d)
	outcomes, err := groups.Ack(ctx, tenant, "g", attempts(d))
	if err == nil && outcomes[0] == domain.OutcomeDone {
		f.answered(d)
	}
}

// Random consumers at several processes, some of which are killed: every event is acked or parked in the end, none is
// lost, none is delivered again when its ack was answered, and the streams of an ordered group stay in order.
func TestGroupsUnderKills(t *testing.T) {
	t.Parallel()
	for _, ordering := range []domain.Ordering{domain.OrderingNone, domain.OrderingStream} {
		t.Run(string(ordering), func(t *testing.T) {
			t.Parallel()
			testGroupsUnderKills(t, ordering)
		})
	}
}

func testGroupsUnderKills(t *testing.T, ordering domain.Ordering) {
	const processes, lives, consumers, events, streams = 3, 4, 3, 600, 25
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	b := newGroupBench(t)
	f := &fates{
		ordered: ordering == domain.OrderingStream, delay: 20 * time.Millisecond, streams: make(map[string]int64), given: make(map[domain.EventID][]int),
		acked: make(map[domain.EventID]int), ended: make(map[string]bool), open: make(map[string]string),
	}
	b.quick(t, "g", func(d *domain.GroupDefinition) {
		d.Ordering, d.MaxInFlight, d.MaxAttempts, d.AckTimeout, d.BackoffMax = ordering, 40, 4, modelLease, 30*time.Millisecond
		d.Categories, d.Delay = []string{"order"}, f.delay
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		behave := rand.New(rand.NewPCG(seed, 0))
		for n := 0; n < events; {
			var names []string
			for range 1 + behave.IntN(30) {
				stream := fmt.Sprintf("order-%d", behave.IntN(streams))
				if behave.IntN(5) == 0 {
					stream = "other-1"
				}
				names = append(names, stream)
			}
			b.append(t, names...)
			n += len(names)
		}
	})
	for process := range processes {
		var stores [lives]*tables.Tables
		var networks [lives]*pgtest.Network
		for life := range lives {
			stores[life], networks[life] = b.through(t)
		}
		all.Go(func() {
			for life := range lives {
				behave := rand.New(rand.NewPCG(seed, uint64(100*process+life)))
				s, network := stores[life], networks[life]
				if saves := 5 + behave.IntN(40); life < lives-1 {
					network.CutAt("manifold_save_ledger", saves)
				}
				network.After("manifold_save_ledger", func(int) bool {
					if rand.IntN(20) == 0 { // the answer is slow: before it others may look at what was saved
						select {
						case <-network.Dead():
						case <-time.After(rand.N(2 * modelLease)):
						}
					}
					return true
				})
				live, end := context.WithCancel(ctx)
				stop := runGroupsOf(t, live, s)
				var consuming sync.WaitGroup
				for consumer := range consumers {
					consuming.Go(func() {
						f.consume(live, stop.groups, network, b.tenant, rand.New(rand.NewPCG(seed, uint64(1000*process+10*life+consumer))))
					})
				}
				for !network.IsDead() && !b.settled(live, t) {
					pause(t)
				}
				if !network.IsDead() {
					end()
				}
				all.Go(func() { // a killed process ends when it no longer looks for what became of its saves
					consuming.Wait()
					end()
					stop.done.Wait()
				})
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		t.Fatalf("it does not come to an end: %+v", b.status(t, "g"))
	}

	for _, wrong := range f.wrong {
		t.Error(wrong)
	}
	letters, err := b.groups.DeadLetters(t.Context(), b.tenant, "g", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	parked := make(map[string]bool)
	for _, d := range letters {
		parked[at(d.Event.Stream, d.Event.Version)] = true
		if _, acked := f.acked[d.Event.ID]; acked {
			t.Errorf("%s is acked and parked", at(d.Event.Stream, d.Event.Version))
		}
	}
	for before, behind := range f.open {
		if !parked[before] {
			t.Errorf("%s was delivered before %s was settled", behind, before)
		}
	}
	log, err := b.store.ReadLog(t.Context(), b.tenant, domain.LogQuery{From: 1, Limit: 10_000, Categories: []string{"order"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log {
		if name := at(e.Stream, e.Version); !f.ended[name] && !parked[name] {
			t.Errorf("%s is lost", name)
		}
	}
	t.Logf("%d events: %d acks were answered, %d are parked", len(log), len(f.acked), len(letters))
}

// settled reports whether the group has nothing left to do.
func (b groupBench) settled(ctx context.Context, t testing.TB) bool {
	if ctx.Err() != nil {
		return true
	}
	head, err := b.store.Head(ctx, b.tenant)
	if err != nil {
		return false
	}
	s := b.status(t, "g")
	return head.Position >= 600 && s.Checkpoint == head.Position && s.Oldest == 0
}

type runningGroups struct {
	groups *group.Groups
	done   *sync.WaitGroup
}

// runGroupsOf runs the groups of one process until ctx ends.
func runGroupsOf(t testing.TB, ctx context.Context, s *tables.Tables) runningGroups {
	r := runningGroups{groups: groupsOf(s), done: new(sync.WaitGroup)}
	for _, run := range []func() error{
		func() error { return r.groups.Run(ctx) },
		func() error { return s.Listen(ctx, r.groups.Wake) },
		func() error { return s.ListenGroups(ctx, r.groups.Notice) },
	} {
		r.done.Go(func() {
			if err := run(); err != nil {
				t.Error(err)
			}
		})
	}
	return r
}
