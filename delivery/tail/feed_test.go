package tail_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// growth notifies waiting callers of how far a log has grown.
type growth struct {
	mu    sync.Mutex
	head  int64
	done  bool
	moved chan struct{}
	ended chan struct{} // closed when done
}

func (g *growth) grow(head int64, done bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.head = max(g.head, head)
	if done && !g.done {
		g.done = true
		close(g.ended)
	}
	close(g.moved)
	g.moved = make(chan struct{})
}

// wait waits until the log has reached a position or stops growing.
func (g *growth) wait(to int64) {
	for {
		g.mu.Lock()
		reached, moved := g.head >= to || g.done, g.moved
		g.mu.Unlock()
		if reached {
			return
		}
		<-moved
	}
}

func (g *growth) end() (head int64, done bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.head, g.done
}

// wish is a random selection with a separate description of what it means.
type wish struct {
	domain.Selection
	means func(domain.Event) bool
}

func wishes() *rapid.Generator[wish] {
	any := func(domain.Event) bool { return true }
	return rapid.Custom(func(t *rapid.T) wish {
		w := wish{means: any}
		switch rapid.IntRange(0, 3).Draw(t, "of") {
		case 1:
			w.Stream = rapid.SampledFrom([]string{"order-1", "order-2", "user-9", "user-none"}).Draw(t, "stream")
		case 2:
			w.Categories = rapid.SampledFrom([][]string{{"order"}, {"user"}, {"order", "user"}, {"other"}}).Draw(t, "categories")
		}
		w.Types = rapid.SampledFrom([][]string{nil, nil, {"Added"}, {"Rare", "Removed"}}).Draw(t, "types")
		w.Query = rapid.SampledFrom([]domain.Query{nil, nil, {{Tags: []string{"t:0"}}}, {{Types: []string{"Added"}, Tags: []string{"t:1"}}, {Types: []string{"Rare"}}}}).Draw(t, "query")
		text := rapid.SampledFrom([]string{"", "", "even", "none"}).Draw(t, "filter")
		switch text {
		case "even":
			w.Filter = "event.data.n % 2 == 0"
		case "none":
			w.Filter = "event.data.missing == 1"
		}
		w.means = func(e domain.Event) bool {
			var n int
			fmt.Sscanf(string(e.Data), `{"n": %d`, &n)
			return (w.Stream == "" || e.Stream == w.Stream) &&
				(len(w.Categories) == 0 || slices.Contains(w.Categories, domain.Category(e.Stream))) &&
				(len(w.Types) == 0 || slices.Contains(w.Types, e.Type)) &&
				(len(w.Query) == 0 || w.Query.Matches(e.Type, e.Tags)) &&
				(text == "" || text == "even" && n%2 == 0)
		}
		return w
	})
}

// TestFollowersSeeTheLog has several writers append beside followers that begin anywhere, want anything, and stop
// reading for a while: each sees what the log has for it, in order, once.
func TestFollowersSeeTheLog(t *testing.T) {
	t.Parallel()
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	var mu sync.Mutex
	var now *tail.Tails
	tablestest.Listen(t, s, func(head domain.Head) {
		mu.Lock()
		defer mu.Unlock()
		if now != nil {
			now.Wake(head)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		var open struct{ followers, tails int }
		var counting sync.Mutex
		tails := tail.New(tail.Config{
			Events: s.Log, Log: quiet, Bytes: rapid.SampledFrom([]int{1, 5_000, 50_000, 1 << 20}).Draw(t, "bytes"),
			Observer: tail.Observer{
				Followers: func(n int) { counting.Lock(); defer counting.Unlock(); open.followers = n },
				Tails:     func(n int) { counting.Lock(); defer counting.Unlock(); open.tails = n },
			},
		})
		tails.ReportSkippedAfter(10 * time.Millisecond)
		mu.Lock()
		now = tails
		mu.Unlock()
		tenant := domain.NewTenantID()
		g := &growth{moved: make(chan struct{}), ended: make(chan struct{})}
		write := func(seed uint64, requests int) error {
			random := rand.New(rand.NewPCG(seed, 1))
			for range requests {
				request := domain.Append{Streams: []domain.StreamAppend{{
					Stream: []string{"order-1", "order-2", "order-3", "user-9"}[random.IntN(4)], Expected: domain.Any,
				}}}
				for range 1 + random.IntN(20) {
					request.Streams[0].Events = append(request.Streams[0].Events, domain.NewEvent{
						Type: []string{"Added", "Added", "Added", "Removed", "Rare"}[random.IntN(5)],
						Data: fmt.Appendf(nil, `{"n": %d, "text": %q}`, random.IntN(100), strings.Repeat("x", random.IntN(300))),
						Tags: []string{fmt.Sprint("t:", random.IntN(4))},
					})
				}
				appended, err := s.Append(context.Background(), tenant, request)
				if err != nil {
					return err
				}
				g.grow(appended.Position, false)
			}
			return nil
		}
		if err := write(1, rapid.IntRange(0, 20).Draw(t, "requests before")); err != nil {
			t.Fatal(err)
		}

		before, _ := g.end()
		var followers []*follower
		for range rapid.IntRange(1, 6).Draw(t, "followers") {
			f := &follower{wish: wishes().Draw(t, "wish"), store: s, tails: tails, tenant: tenant, growth: g}
			switch rapid.IntRange(0, 3).Draw(t, "from") {
			case 1:
				f.from.End = true
			case 2:
				f.from.Position = rapid.Int64Range(1, before+30).Draw(t, "position")
			}
			f.stops = rapid.SliceOfN(rapid.Int64Range(0, 60), 0, 8).Draw(t, "stops")
			followers = append(followers, f)
		}
		writers := rapid.IntRange(1, 3).Draw(t, "writers")
		requests := rapid.IntRange(0, 20).Draw(t, "requests beside")

		var writing, following sync.WaitGroup
		errs := make(chan error, writers+len(followers))
		for i := range writers {
			writing.Go(func() { errs <- write(uint64(2+i), requests) })
		}
		for _, f := range followers {
			following.Go(func() { errs <- f.follow() })
		}
		writing.Wait()
		g.grow(0, true)
		following.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		if open.followers != 0 || open.tails != 0 {
			t.Errorf("%d followers and %d tails are left", open.followers, open.tails)
		}
		all, err := s.ReadLog(context.Background(), tenant, domain.LogQuery{From: 1, Limit: 1_000_000})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range followers {
			if err := f.check(all); err != nil {
				t.Errorf("%+v from %s (%d): %v", f.wish.Selection, f.from, f.begins, err)
			}
		}
	})
}

// follower follows until the log stops growing, and records what it sees.
type follower struct {
	wish   wish
	from   domain.From
	stops  []int64 // it does not read on before the log has grown by so much
	store  *tables.Tables
	tails  *tail.Tails
	tenant domain.TenantID
	growth *growth

	begins int64 // the first position that it is to see, as far as that is known
	latest int64 // the first position that it is to see at the latest
	head   int64 // before it began
	seen   []domain.Event
}

func (f *follower) follow() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	earliest, _ := f.growth.end()
	f.head = earliest
	feed, err := f.tails.Follow(ctx, f.tenant, domain.Follow{Selection: f.wish.Selection, From: f.from})
	if err != nil {
		return err
	}
	defer feed.Close()
	switch {
	case f.from.End:
		f.begins = earliest + 1
		f.latest = feed.Position() + 1
	default:
		f.begins = max(f.from.Position, 1)
		f.latest = f.begins
	}
	beside, stop := context.WithCancel(ctx) // while the log grows
	defer stop()
	go func() {
		select {
		case <-f.growth.ended:
			stop()
		case <-ctx.Done():
		}
	}()
	position, caughtUp := feed.Position(), false
	told := position // by a slice
	for {
		if len(f.stops) > 0 {
			f.growth.wait(position + f.stops[0])
			f.stops = f.stops[1:]
		}
		end, done := f.growth.end()
		if done && position >= end && caughtUp {
			return nil
		}
		next := beside
		if done {
			next = ctx
		}
		slice, err := feed.Next(next)
		if errors.Is(err, context.Canceled) {
			position = feed.Position() // it may have passed over some
			continue
		}
		if err != nil {
			return fmt.Errorf("at %d: %w", position, err)
		}
		for _, e := range slice.Entries {
			if e.Event.Position <= position || e.Event.Position > slice.Position {
				return fmt.Errorf("position %d is given between %d and %d", e.Event.Position, position, slice.Position)
			}
			position = e.Event.Position
			f.seen = append(f.seen, e.Event)
		}
		if slice.Position < position || feed.Position() != slice.Position {
			return fmt.Errorf("the slice is said to end at %d, the feed to be at %d, behind %d", slice.Position, feed.Position(), position)
		}
		if len(slice.Entries) == 0 && !slice.CaughtUp && slice.Position == told {
			return fmt.Errorf("a slice at %d has no news", position)
		}
		position, told = slice.Position, slice.Position
		if slice.CaughtUp {
			caughtUp = true
			if position < f.head {
				return fmt.Errorf("it has caught up at %d; the head was %d", position, f.head)
			}
		}
	}
}

// check compares what was seen with the log.
func (f *follower) check(all []domain.Event) error {
	var want []int64
	for _, e := range all {
		if e.Position >= f.latest && f.wish.means(e) {
			want = append(want, e.Position)
		}
	}
	var got []int64
	for _, e := range f.seen {
		got = append(got, e.Position)
		if e.Position < f.begins {
			return fmt.Errorf("position %d is before where it began", e.Position)
		}
		if in := all[e.Position-1]; in.ID != e.ID || string(in.Data) != string(e.Data) {
			return fmt.Errorf("position %d is not as in the log", e.Position)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("it has seen %d; want %d", got, want)
	}
	return nil
}

func follow(t testing.TB, tails *tail.Tails, tenant domain.TenantID, wanted domain.Follow) *tail.Feed {
	t.Helper()
	feed, err := tails.Follow(t.Context(), tenant, wanted)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(feed.Close)
	return feed
}

// until reads a feed up to at least a position, and returns the positions of its events.
func until(t testing.TB, feed *tail.Feed, position int64) (seen []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for feed.Position() < position {
		slice, err := feed.Next(ctx)
		if err != nil {
			t.Fatalf("at %d: %v", feed.Position(), err)
		}
		for _, e := range slice.Entries {
			seen = append(seen, e.Event.Position)
		}
	}
	return seen
}

// Events that got other tags have them for followers that begin afterwards.
func TestTailsForgetRetaggedEvents(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 3))
	until(t, follow(t, tails, tenant, domain.Follow{}), 3)
	tablestest.Must(t, s.Retag(t.Context(), tenant, []eventlog.Retagging{{Position: 2, Type: "Counted", Derived: []string{"a"}}}, func(pgx.Tx, eventlog.Retagged) error { return nil }))
	tails.Forget(tenant)
	query := domain.Selection{Query: domain.Query{{Tags: []string{"a"}}}}
	if seen := until(t, follow(t, tails, tenant, domain.Follow{Selection: query}), 3); !slices.Equal(seen, []int64{2}) {
		t.Errorf("the follower sees %v", seen)
	}
}

func TestNextContinuesAfterCancellation(t *testing.T) {
	t.Parallel()
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
	tablestest.Listen(t, s, tails.Wake)
	tenant := domain.NewTenantID()
	feed := follow(t, tails, tenant, domain.Follow{From: domain.From{End: true}})
	if slice, err := feed.Next(t.Context()); err != nil || !slice.CaughtUp || len(slice.Entries) > 0 || slice.Position != 0 {
		t.Fatalf("at the end of an empty log comes %+v, %v", slice, err)
	}
	cause := errors.New("no more waiting")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := feed.Next(ctx); !errors.Is(err, cause) {
		t.Fatalf("a Next that is ended returns %v", err)
	}
	ctx, done := context.WithTimeout(t.Context(), time.Millisecond)
	defer done()
	if _, err := feed.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a Next that has no more time returns %v", err)
	}
	head := tablestest.AppendTo(t, s, tenant, "order-1", "Added", "1", "2")
	if seen := until(t, feed, head); !slices.Equal(seen, []int64{1, 2}) {
		t.Fatalf("then it gives %d", seen)
	}
}

func TestFollowRefuses(t *testing.T) {
	t.Parallel()
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	left := -1
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Observer: tail.Observer{Tails: func(n int) { left = n }}})
	for where, wanted := range map[string]domain.Follow{
		"filter":   {Selection: domain.Selection{Filter: "event.nothing"}},
		"types[0]": {Selection: domain.Selection{Types: []string{"no type"}}},
		"from":     {From: domain.From{EventID: domain.NewEventID()}},
	} {
		_, err := tails.Follow(t.Context(), domain.NewTenantID(), wanted)
		if failure, ok := errors.AsType[*domain.Error](err); !ok || failure.Where != where {
			t.Errorf("what is wrong with %s is refused with %v", where, err)
		}
	}
	if left != 0 {
		t.Errorf("%d tails are left", left)
	}
}

func TestFromFindsTheFirstPosition(t *testing.T) {
	t.Parallel()
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
	tablestest.Listen(t, s, tails.Wake)
	tenant, other := domain.NewTenantID(), domain.NewTenantID()
	tablestest.AppendTo(t, s, other, "order-1", "Added", "1", "2", "3", "4", "5", "6", "7")
	for range 4 {
		tablestest.AppendTo(t, s, tenant, "order-1", "Added", "1", "2")
	}
	all, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, Limit: 100})
	if err != nil || len(all) != 8 {
		t.Fatalf("%d events, %v", len(all), err)
	}
	first := func(at time.Time) int64 {
		for _, e := range all {
			if !e.RecordedAt.Before(at) {
				return e.Position
			}
		}
		return 9
	}
	for name, test := range map[string]struct {
		from domain.From
		want int64
	}{
		"start":          {domain.From{}, 1},
		"end":            {domain.From{End: true}, 9},
		"a position":     {domain.From{Position: 3}, 3},
		"beyond the end": {domain.From{Position: 12}, 12},
		"an event":       {domain.From{EventID: all[5].ID}, 6},
		"a time":         {domain.From{Time: all[4].RecordedAt}, first(all[4].RecordedAt)},
		"a bit later":    {domain.From{Time: all[4].RecordedAt.Add(1)}, first(all[4].RecordedAt.Add(1))},
		"long ago":       {domain.From{Time: all[0].RecordedAt.Add(-time.Hour)}, 1},
		"in future":      {domain.From{Time: all[0].RecordedAt.Add(time.Hour)}, 9},
	} {
		if got := follow(t, tails, tenant, domain.Follow{From: test.from}).Position() + 1; got != test.want {
			t.Errorf("%s begins at %d; want %d", name, got, test.want)
		}
	}
}
