package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// shelf is a store that has its rows in memory. It tests what the drainer does around a store; outboxtest tests the
// stores.
type shelf struct {
	mu      sync.Mutex
	rows    []Row
	claims  int
	settled []Outcome
	kept    []bool
	swept   []int // what the next sweeps remove
	err     error
}

func (s *shelf) Claim(_ context.Context, limit int, _ time.Duration) (Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims++
	return Claim{ID: "c", Rows: s.rows[:min(limit, len(s.rows))]}, s.err
}

func (s *shelf) Settle(ctx context.Context, _ Claim, outcome Outcome, keep bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled, s.kept = append(s.settled, outcome), append(s.kept, keep)
	s.rows = s.rows[len(outcome.Published):]
	return ctx.Err()
}

func (s *shelf) Lag(context.Context) (Lag, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Lag{Waiting: len(s.rows)}, s.err
}

// with reads or changes it while a drainer works.
func (s *shelf) with(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *shelf) Sweep(context.Context, time.Duration, int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.swept) == 0 {
		return 0, s.err
	}
	removed := s.swept[0]
	s.swept = s.swept[1:]
	return removed, s.err
}

func row(stream string, n int) Row {
	return Row{ID: fmt.Sprint(stream, n), Stream: stream, Message: []byte(fmt.Sprint(n))}
}

func ids(rows []Row) string {
	var all []string
	for _, r := range rows {
		all = append(all, r.ID)
	}
	return strings.Join(all, " ")
}

// Refused rows are found, and block only their own streams.
func TestRefusedRowsAreFound(t *testing.T) {
	t.Parallel()
	var rows []Row
	for n := range 4 {
		rows = append(rows, row("a", n), row("b", n), row("c", n))
	}
	rows[1].Attempts = 3
	store := &shelf{rows: rows}
	requests := 0
	refused := 0
	d, err := New(Config{Store: store, Publish: func(_ context.Context, rows []Row) error {
		requests++
		for _, r := range rows {
			if r.ID == "b0" || r.ID == "c2" {
				return &RefusedError{Reason: strings.Repeat("x", 2*MaxReasonBytes)}
			}
		}
		return nil
	}, Keep: time.Hour, Observer: Observer{Refused: func(n int) { refused += n }}})
	if err != nil {
		t.Fatal(err)
	}
	if claimed, err := d.Drain(t.Context()); claimed != 12 || err != nil {
		t.Errorf("%d are claimed, %v", claimed, err)
	}
	outcome := store.settled[0]
	if got := ids(outcome.Published); got != "a0 c0 a1 c1 a2 a3" || !store.kept[0] {
		t.Errorf("published are %s", got)
	}
	if len(outcome.Refused) != 2 || outcome.Refused[0].Row.ID != "b0" || outcome.Refused[0].Pause != 16*time.Second || len(outcome.Refused[0].Reason) != MaxReasonBytes ||
		outcome.Refused[1].Row.ID != "c2" || outcome.Refused[1].Pause != 2*time.Second || refused != 2 {
		t.Errorf("refused are %+v", outcome.Refused)
	}
	if requests > 20 {
		t.Errorf("it took %d requests", requests)
	}
}

// What was published before a failure is settled, also if the drainer's context ends in the middle.
func TestFailuresKeepWhatWasPublished(t *testing.T) {
	t.Parallel()
	large := make([]byte, requestBytes/2)
	store := &shelf{}
	for n := range 5 {
		store.rows = append(store.rows, Row{ID: fmt.Sprint(n), Stream: "s", Message: large})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var sizes []int
	broken := errors.New("broken")
	failed := 0
	d, err := New(Config{Store: store, Publish: func(_ context.Context, rows []Row) error {
		if sizes = append(sizes, len(rows)); len(sizes) == 2 {
			cancel()
			return broken
		}
		return nil
	}, Observer: Observer{Failed: func() { failed++ }}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Drain(ctx); !errors.Is(err, broken) || failed != 1 {
		t.Errorf("the error is %v", err)
	}
	if got := ids(store.settled[0].Published); got != "0 1" || !slices.Equal(sizes, []int{2, 2}) || store.kept[0] {
		t.Errorf("published are %s in %v", got, sizes)
	}
}

// A drainer that finds nothing checks again after a while, or when it is woken. After failures it pauses for longer and
// longer. It also does the store's upkeep.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &shelf{swept: []int{sweptAtOnce, 3}}
		var lags []Lag
		swept := 0
		d, err := New(Config{Store: store, Publish: func(context.Context, []Row) error { return nil }, Poll: time.Second, Observer: Observer{
			Lag: func(lag Lag) { lags = append(lags, lag) }, Swept: func(n int) { swept += n },
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		passes := func(pause time.Duration) {
			timer := time.NewTimer(pause)
			<-timer.C
			synctest.Wait()
		}
		passes(5500 * time.Millisecond)
		store.with(func() {
			if store.claims != 6 || len(lags) != 1 || swept != sweptAtOnce+3 {
				t.Errorf("after 5.5 s it has looked %d times, told %v, swept %d", store.claims, lags, swept)
			}
			store.rows = []Row{row("a", 1)}
		})
		d.Wake()
		d.Wake()
		synctest.Wait()
		store.with(func() {
			if len(store.rows) > 0 {
				t.Error("what was woken for is not published at once")
			}
			store.err = errors.New("broken")
		})
		passes(time.Second)
		before := 0
		store.with(func() { before = store.claims })
		passes(60 * time.Second)
		store.with(func() {
			if tries := store.claims - before; tries < 2 || tries > 10 {
				t.Errorf("in a minute of failures it has tried %d times", tries)
			}
			store.err = nil
		})
		passes(maxPause + 10*time.Second)
		if len(lags) < 2 {
			t.Errorf("it has told %v", lags)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	publish := func(context.Context, []Row) error { return nil }
	for _, config := range []Config{
		{}, {Store: &shelf{}}, {Publish: publish}, {Store: &shelf{}, Publish: publish, Batch: 1001}, {Store: &shelf{}, Publish: publish, Batch: -1},
		{Store: &shelf{}, Publish: publish, Lease: time.Millisecond}, {Store: &shelf{}, Publish: publish, Keep: -1}, {Store: &shelf{}, Publish: publish, Poll: -1},
	} {
		if _, err := New(config); err == nil {
			t.Errorf("%+v is taken", config)
		}
	}
}
