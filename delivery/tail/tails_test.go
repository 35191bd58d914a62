package tail_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// watched has tables behind a network. It counts the reads of the log, and the events that they return.
type watched struct {
	*tables.Tables
	db            pgtest.DB
	network       *pgtest.Network
	reads, events atomic.Int64
}

// openWatched opens the tables of a separate database, with connections for four long reads per tenant. before, unless
// it is nil, is called before each read of the log reaches the database, with its first position. It may block. If it
// returns false, the connection is cut.
func openWatched(t *testing.T, before func(from int64) bool) *watched {
	t.Helper()
	w := &watched{db: pgtest.Database(t)}
	w.network = pgtest.NewNetwork(t, w.db)
	w.Tables = tablestest.OpenWith(t, w.db, func(c *tables.Config) {
		c.AppURL, c.MaxConns, c.Log = w.network.URL(t, w.db, migrations.RoleApp), 16, quiet
		c.Observer.ReadEvents = func(events int) {
			w.reads.Add(1)
			w.events.Add(int64(events))
		}
	})
	if before != nil {
		w.network.On(pgtest.Fault{Statement: "manifold_log_forward", Before: func(s *pgtest.Statement) bool {
			return before(int64(binary.BigEndian.Uint64(s.Params[1])))
		}})
	}
	return w
}

// numbers returns data for events.
func numbers(n int) []string {
	data := make([]string, n)
	for i := range data {
		data[i] = fmt.Sprint(i)
	}
	return data
}

// consecutive returns all numbers from first to last.
func consecutive(first, last int64) (all []int64) {
	for p := first; p <= last; p++ {
		all = append(all, p)
	}
	return all
}

func TestManyWakesMakeOneRead(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := openWatched(t, func(int64) bool {
		once.Do(func() { close(began) })
		<-goOn
		return true
	})
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
	tenant := domain.NewTenantID()
	feed := follow(t, tails, tenant, domain.Follow{From: domain.From{End: true}})
	for i := range int64(50) {
		tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", "1")
		tails.Wake(domain.Head{Tenant: tenant, Position: i + 1})
		if i == 0 {
			<-began
		}
	}
	close(goOn)
	if seen := until(t, feed, 50); !slices.Equal(seen, consecutive(1, 50)) {
		t.Errorf("it sees %d", seen)
	}
	if reads := s.reads.Load(); reads != 1 {
		t.Errorf("there were %d reads", reads)
	}
}

func TestOneTailReadsForAll(t *testing.T) {
	t.Parallel()
	s := openWatched(t, nil)
	var followers, most, left atomic.Int64
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Observer: tail.Observer{
		Followers: func(n int) { followers.Store(int64(n)) },
		Tails:     func(n int) { most.Store(max(most.Load(), int64(n))); left.Store(int64(n)) },
	}})
	tablestest.Listen(t, s.Tables, tails.Wake)
	tenant := domain.NewTenantID()
	var feeds []*tail.Feed
	for range 20 {
		feeds = append(feeds, follow(t, tails, tenant, domain.Follow{From: domain.From{End: true}}))
	}
	if followers.Load() != 20 || most.Load() != 1 {
		t.Errorf("there are %d followers and %d tails", followers.Load(), most.Load())
	}
	head := tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", numbers(30)...)
	shared := make(map[*tail.Entry]int)
	for _, feed := range feeds {
		for feed.Position() < head {
			slice, err := feed.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range slice.Entries {
				shared[e]++
			}
		}
		feed.Close()
		feed.Close() // does no harm
	}
	if len(shared) != 30 {
		t.Errorf("20 followers were given %d entries of 30 events", len(shared))
	}
	for e, times := range shared {
		if times != 20 {
			t.Errorf("position %d was given %d times to 20 followers", e.Event.Position, times)
		}
	}
	if read := s.events.Load(); read != 30 {
		t.Errorf("%d events were read", read)
	}
	if followers.Load() != 0 || left.Load() != 0 {
		t.Errorf("%d followers and %d tails are left", followers.Load(), left.Load())
	}
}

func TestFollowersSeeWhatOtherProcessesAppend(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	here, there := tablestest.OpenAgain(t, db), tablestest.OpenAgain(t, db)
	tails := tail.New(tail.Config{Events: here.Log, Log: quiet})
	tablestest.Listen(t, here, tails.Wake)
	tablestest.Listen(t, there, func(domain.Head) {})
	tenant := domain.NewTenantID()
	feed := follow(t, tails, tenant, domain.Follow{From: domain.From{End: true}})
	var writing sync.WaitGroup
	for i, s := range []*tables.Tables{here, there, there} {
		writing.Go(func() {
			for range 30 {
				tablestest.AppendTo(t, s, tenant, fmt.Sprintf("order-%d", i), "Added", numbers(5)...)
			}
		})
	}
	if seen := until(t, feed, 450); !slices.Equal(seen, consecutive(1, 450)) {
		t.Errorf("it sees %d", seen)
	}
	writing.Wait()
	// A new follower learns of a head that no notice has reported yet.
	head := tablestest.AppendTo(t, there, tenant, "order-9", "Added", "1")
	feed = follow(t, tails, tenant, domain.Follow{})
	for {
		slice, err := feed.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slice.CaughtUp {
			if slice.Position < head {
				t.Errorf("it has caught up at %d; the head was %d", slice.Position, head)
			}
			return
		}
	}
}

// Followers whose reads hang, and one that does not read, delay neither their tail nor followers of other tenants.
func TestSlowFollowersDelayNobody(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	s := openWatched(t, func(from int64) bool {
		if from == 1 { // the tails begin at the head
			<-hold
		}
		return true
	})
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Bytes: 100_000})
	tablestest.Listen(t, s.Tables, tails.Wake)
	tenant, other := domain.NewTenantID(), domain.NewTenantID()
	for range 3 {
		tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", numbers(1000)...)
		tablestest.AppendTo(t, s.Tables, other, "order-1", "Added", numbers(1000)...)
	}
	atHead := domain.Follow{From: domain.From{End: true}}
	asleep := follow(t, tails, tenant, atHead)
	if slice, err := asleep.Next(t.Context()); err != nil || !slice.CaughtUp {
		t.Fatalf("%+v, %v", slice, err)
	}
	var reading sync.WaitGroup
	var held [6][]int64 // more than all tenants together may read at a time
	for i := range held {
		feed := follow(t, tails, tenant, domain.Follow{})
		reading.Go(func() { held[i] = until(t, feed, 5000) })
	}
	follow(t, tails, other, atHead)
	if seen := until(t, follow(t, tails, other, domain.Follow{From: domain.From{Position: 2}}), 3000); !slices.Equal(seen, consecutive(2, 3000)) {
		t.Errorf("a follower of another tenant sees %d events", len(seen))
	}
	awake := follow(t, tails, tenant, atHead)
	for range 20 {
		head := tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", numbers(100)...)
		if seen := until(t, awake, head); !slices.Equal(seen, consecutive(head-99, head)) {
			t.Errorf("while others are slow it sees %d", seen)
		}
	}
	close(hold)
	reading.Wait()
	for _, seen := range held {
		if !slices.Equal(seen, consecutive(1, 5000)) {
			t.Errorf("a follower whose read was held up has seen %d events", len(seen))
		}
	}
	if asleep.Forgotten() < 3100 {
		t.Errorf("the tail has only forgotten the events up to %d", asleep.Forgotten())
	}
	if seen := until(t, asleep, 5000); !slices.Equal(seen, consecutive(3001, 5000)) {
		t.Errorf("the follower that did not read has seen %d events", len(seen))
	}
}

func TestCaughtUpIsReportedOnceEachTime(t *testing.T) {
	t.Parallel()
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Bytes: 1})
	tablestest.Listen(t, s, tails.Wake)
	tenant := domain.NewTenantID()
	beside := follow(t, tails, tenant, domain.Follow{}) // tells when the tail has forgotten
	feed := follow(t, tails, tenant, domain.Follow{})
	var said []int64
	for round := range 3 {
		head := int64(0)
		for range 3 * round {
			head = tablestest.AppendTo(t, s, tenant, "order-1", "Added", numbers(1000)...)
		}
		until(t, beside, head)
		for feed.Position() < head || len(said) < round+1 {
			slice, err := feed.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if slice.CaughtUp {
				said = append(said, slice.Position)
			}
		}
	}
	if !slices.Equal(said, []int64{0, 3000, 9000}) {
		t.Errorf("it has caught up at %d", said)
	}
}

func TestSkippedEventsAreReported(t *testing.T) {
	t.Parallel()
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
	tablestest.Listen(t, s, tails.Wake)
	tenant := domain.NewTenantID()
	next := func(feed *tail.Feed) tail.Slice {
		t.Helper()
		slice, err := feed.Next(t.Context())
		if err != nil || len(slice.Entries) > 0 {
			t.Fatalf("%+v, %v", slice, err)
		}
		return slice
	}
	tails.ReportSkippedAfter(time.Millisecond)
	other := domain.Follow{Selection: domain.Selection{Types: []string{"Other"}}}
	feed := follow(t, tails, tenant, other)
	if slice := next(feed); !slice.CaughtUp || slice.Position != 0 {
		t.Errorf("an empty log gives %+v", slice)
	}
	tablestest.AppendTo(t, s, tenant, "order-1", "Added", numbers(5)...)
	if slice := next(feed); slice.CaughtUp || slice.Position != 5 {
		t.Errorf("behind five others comes %+v", slice)
	}
	feed.Close()

	tails.ReportSkippedAfter(time.Hour)
	feed = follow(t, tails, tenant, other)
	if slice := next(feed); !slice.CaughtUp || slice.Position != 5 {
		t.Errorf("from the start comes %+v", slice)
	}
	for range 20 {
		tablestest.AppendTo(t, s, tenant, "order-1", "Added", numbers(99)...)
	}
	if slice := next(feed); slice.CaughtUp || slice.Position < 1005 {
		t.Errorf("behind many others comes %+v", slice)
	}
}

func TestRareTypeIsReadByTheIndex(t *testing.T) {
	t.Parallel()
	s := openWatched(t, nil)
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
	tablestest.Listen(t, s.Tables, tails.Wake)
	tenant := domain.NewTenantID()
	var want []int64
	for range 15 {
		tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", numbers(999)...)
		want = append(want, tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Rare", "1"))
	}
	head := want[len(want)-1]
	follow(t, tails, tenant, domain.Follow{From: domain.From{End: true}}) // so that the tail begins at the head
	feed := follow(t, tails, tenant, domain.Follow{Selection: domain.Selection{Types: []string{"Rare"}}})
	if seen := until(t, feed, head); !slices.Equal(seen, want) {
		t.Errorf("it sees %d; want %d", seen, want)
	}
	if read, reads := s.events.Load(), s.reads.Load(); read != int64(len(want)) || reads > 5 {
		t.Errorf("%d events were read in %d slices", read, reads)
	}
}

func TestFollowersWaitForTheDatabase(t *testing.T) {
	t.Parallel()
	var out atomic.Bool
	failed := map[int64]chan struct{}{501: make(chan struct{}, 1000), 1: make(chan struct{}, 1000)} // by first position
	s := openWatched(t, func(from int64) bool {
		if !out.Load() {
			return true
		}
		failed[from] <- struct{}{}
		return false
	})
	var text bytes.Buffer
	tails := tail.New(tail.Config{Events: s.Log, Bytes: 1, Log: slog.New(slog.NewTextHandler(&text, nil))})
	tablestest.Listen(t, s.Tables, tails.Wake)
	tenant := domain.NewTenantID()
	tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", numbers(500)...)
	live := follow(t, tails, tenant, domain.Follow{From: domain.From{End: true}})
	until(t, live, 500)
	out.Store(true)
	behind := follow(t, tails, tenant, domain.Follow{})
	head := tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", "1", "2")
	var reading sync.WaitGroup
	for feed, first := range map[*tail.Feed]int64{live: 501, behind: 1} {
		reading.Go(func() {
			if seen := until(t, feed, head); !slices.Equal(seen, consecutive(first, head)) {
				t.Errorf("from %d it sees %d", first, seen)
			}
		})
	}
	for range 12 { // a read is repeated several times before it fails
		<-failed[501]
		<-failed[1]
	}
	out.Store(false)
	reading.Wait()
	live.Close()
	behind.Close()
	if complaints := strings.Count(text.String(), "\n"); complaints != 1 || !strings.Contains(text.String(), "unexpected EOF") {
		t.Errorf("the log says:\n%s", text.String())
	}
}

func TestNextReturnsFaults(t *testing.T) {
	t.Parallel()
	s := openWatched(t, nil)
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Bytes: 1})
	tablestest.Listen(t, s.Tables, tails.Wake)
	tenant := domain.NewTenantID()
	tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", numbers(500)...)
	follow(t, tails, tenant, domain.Follow{From: domain.From{End: true}})
	feed := follow(t, tails, tenant, domain.Follow{})
	if _, err := s.db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "revoke select on manifold.events from manifold_app"); err != nil {
		t.Fatal(err)
	}
	if _, err := feed.Next(t.Context()); tablestest.StateOf(err) != "42501" {
		t.Errorf("the fault is reported as %v", err)
	}
}

// Closing feeds ends the reads of the feed and of its tail, even if the database does not answer.
func TestCloseEndsReadsThatHang(t *testing.T) {
	t.Parallel()
	hanging := make(chan int64, 10)
	var s *watched
	s = openWatched(t, func(from int64) bool {
		hanging <- from
		<-s.network.Dead() // which is after the tables are closed; they wait for the read
		return false
	})
	left := -1
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Observer: tail.Observer{Tails: func(n int) { left = n }}})
	tenant := domain.NewTenantID()
	tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", numbers(500)...)
	open := func(wanted domain.Follow) *tail.Feed { // without follow's cleanup, which would hang as well
		feed, err := tails.Follow(t.Context(), tenant, wanted)
		if err != nil {
			t.Fatal(err)
		}
		return feed
	}
	live, behind := open(domain.Follow{From: domain.From{End: true}}), open(domain.Follow{})
	if _, err := behind.Next(canceledAfter(t, hanging, 1)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	tails.Wake(domain.Head{Tenant: tenant, Position: 501})
	<-canceledAfter(t, hanging, 501).Done()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		behind.Close()
		live.Close()
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second): // a read ends by itself after 20 s
		s.network.Cut()
		t.Fatal("the feeds are not closed while reads hang")
	}
	if left != 0 {
		t.Errorf("%d tails are left", left)
	}
}

// canceledAfter returns a context that ends when a read from a position has begun.
func canceledAfter(t *testing.T, begun <-chan int64, want int64) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for from := range begun {
			if from == want {
				return
			}
		}
	}()
	return ctx
}

// A tail does not read again and again if the log ends before its head, because its tenant is being removed.
func TestRemovedEventsAreReadOnce(t *testing.T) {
	t.Parallel()
	var beyond atomic.Int64 // reads after the last event
	s := openWatched(t, func(from int64) bool {
		if from == 6 {
			beyond.Add(1)
		}
		return true
	})
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
	tablestest.Listen(t, s.Tables, tails.Wake)
	tenant, other := domain.NewTenantID(), domain.NewTenantID()
	tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", numbers(5)...)
	tablestest.AppendTo(t, s.Tables, other, "order-1", "Added", numbers(100)...)
	feed := follow(t, tails, tenant, domain.Follow{})
	tails.Wake(domain.Head{Tenant: tenant, Position: 10})
	until(t, feed, 5)
	clock := follow(t, tails, other, domain.Follow{From: domain.From{End: true}})
	for range 20 { // a tail that has more to read would read about as often as this one
		until(t, clock, tablestest.AppendTo(t, s.Tables, other, "order-1", "Added", "1"))
	}
	if reads := beyond.Load(); reads > 1 {
		t.Errorf("the missing events were looked for %d times", reads)
	}
	tablestest.AppendTo(t, s.Tables, tenant, "order-1", "Added", numbers(6)...)
	tails.Wake(domain.Head{Tenant: tenant, Position: 11})
	if seen := until(t, feed, 11); !slices.Equal(seen, consecutive(6, 11)) {
		t.Errorf("the later events are seen as %d", seen)
	}
}

// One tenant's followers take neither connections nor memory from those of others.
func TestFollowersOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Followers: 2})
	tenant := domain.NewTenantID()
	first := follow(t, tails, tenant, domain.Follow{})
	follow(t, tails, tenant, domain.Follow{})
	_, err := tails.Follow(t.Context(), tenant, domain.Follow{})
	if e, ok := errors.AsType[*domain.Error](err); !ok || e.Code != domain.CodeTooManyRequests {
		t.Fatalf("a third one is answered %v", err)
	}
	follow(t, tails, domain.NewTenantID(), domain.Follow{})
	first.Close()
	follow(t, tails, tenant, domain.Follow{})
}

func TestTailIsBounded(t *testing.T) {
	t.Parallel()
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	const bound = 200_000
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Bytes: bound})
	tablestest.Listen(t, s, tails.Wake)
	tenant := domain.NewTenantID()
	feed := follow(t, tails, tenant, domain.Follow{Selection: domain.Selection{Filter: "event.data.n == 1"}})
	for range 30 {
		head := tablestest.AppendTo(t, s, tenant, "order-1", "Added", slices.Repeat([]string{`{"n": 1, "text": "` + strings.Repeat("x", 500) + `"}`}, 20)...)
		for feed.Position() < head {
			slice, err := feed.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range slice.Entries {
				e.Encoded(1, encode)
			}
		}
	}
	// What was made of the last slice is counted when the next one comes.
	held, events := feed.Held()
	if held > bound+20*10_000 || events == 0 || events > 200 {
		t.Errorf("%d bytes of %d events are held", held, events)
	}
	tablestest.AppendTo(t, s, tenant, "order-1", "Added", `"`+strings.Repeat("x", 500_000)+`"`)
	until(t, feed, 601)
	if held, events := feed.Held(); held < 500_000 || events != 1 {
		t.Errorf("%d bytes of %d events are held behind one that is larger than the bound", held, events)
	}
}

func TestAnEntryIsEncodedOnceForAll(t *testing.T) {
	t.Parallel()
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
	tablestest.Listen(t, s, tails.Wake)
	tenant := domain.NewTenantID()
	var made [2]atomic.Int64
	encoder := func(form tail.Form) func([]byte, *domain.Event) []byte {
		return func(b []byte, e *domain.Event) []byte {
			made[form].Add(1)
			return fmt.Appendf(b, "%d in form %d;", e.Position, form)
		}
	}
	const followers = 10
	var reading sync.WaitGroup
	for range followers {
		feed := follow(t, tails, tenant, domain.Follow{From: domain.From{End: true}})
		reading.Go(func() {
			for feed.Position() < 2 {
				slice, err := feed.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range slice.Entries {
					for form := range tail.Form(2) {
						want := fmt.Sprintf("%d in form %d;", e.Event.Position, form)
						if got := e.AppendTo([]byte("before "), form, encoder(form)); string(got) != "before "+want {
							t.Errorf("appended it is %q", got)
						}
						if got := e.Encoded(form, encoder(form)); string(got) != want {
							t.Errorf("encoded it is %q", got)
						}
					}
				}
			}
		})
	}
	tablestest.AppendTo(t, s, tenant, "order-1", "Added", "1", "2")
	reading.Wait()
	if made[0].Load() != 2 || made[1].Load() != 2 {
		t.Errorf("two events were encoded %d and %d times", made[0].Load(), made[1].Load())
	}
}

func TestManyFollowersBehindGetSmallSlices(t *testing.T) {
	t.Parallel()
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Bytes: 1})
	tails.LimitBehind(100_000)
	tablestest.Listen(t, s, tails.Wake)
	tenant := domain.NewTenantID()
	for range 10 {
		tablestest.AppendTo(t, s, tenant, "order-1", "Added", numbers(1000)...)
	}
	follow(t, tails, tenant, domain.Follow{From: domain.From{End: true}})
	largest := func(feed *tail.Feed) (events int) {
		t.Helper()
		for feed.Position() < 10_000 {
			slice, err := feed.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			events = max(events, len(slice.Entries))
		}
		return events
	}
	slow := follow(t, tails, tenant, domain.Follow{})
	for range 3 {
		if _, err := slow.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if tails.Behind() < 100_000 {
		t.Fatalf("one that is slow has %d bytes", tails.Behind())
	}
	beside := follow(t, tails, tenant, domain.Follow{})
	if events := largest(beside); events > 250 {
		t.Errorf("beside it a slice of another has %d events", events)
	}
	beside.Close()
	slow.Close()
	tails.LimitBehind(1 << 30)
	alone := follow(t, tails, tenant, domain.Follow{})
	if events := largest(alone); events < 1000 {
		t.Errorf("with room for all a slice has %d events at most", events)
	}
	if _, err := alone.Next(canceled(t)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if tails.Behind() != 0 {
		t.Errorf("when nobody is behind they have %d bytes", tails.Behind())
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
