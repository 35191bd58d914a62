package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
)

// However a state is loaded, and whatever snapshots exist, it is the fold of the events up to its version.
func TestAStateIsTheFoldOfItsEvents(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	definition := adding("sum")
	must(t, states.Put(t.Context(), tenant, definition))
	streams := 0
	rapid.Check(t, func(r *rapid.T) {
		streams++
		stream := fmt.Sprintf("sum-%d", streams)
		version := 0
		for range rapid.IntRange(1, 6).Draw(r, "steps") {
			n := rapid.IntRange(1, 30).Draw(r, "events")
			add(r, s, states, tenant, stream, version+1, version+n)
			version += n
			if rapid.Bool().Draw(r, "snapshot") {
				snapshot, err := states.TakeSnapshot(t.Context(), tenant, stream, false)
				if err != nil || snapshot.Version != int64(version) || snapshot.TakenAt.IsZero() {
					r.Fatalf("took %+v, %v", snapshot, err)
				}
			}
		}
		at := rapid.IntRange(1, version).Draw(r, "at")
		got, err := states.Load(t.Context(), tenant, stream, At{Version: int64(at)})
		must(r, err)
		wantState(r, got, int64(at), sumTo(at))
		if got.EventsRead != at-int(got.Snapshot) {
			r.Fatalf("read %d events from version %d to %d", got.EventsRead, got.Snapshot, at)
		}
		if got, err = states.Load(t.Context(), tenant, stream, At{}); err != nil {
			r.Fatal(err)
		}
		wantState(r, got, int64(version), sumTo(version))
		if _, err := states.Load(t.Context(), tenant, stream, At{Version: int64(version + 1)}); code(err) != domain.CodeNotFound {
			r.Fatalf("a version that does not exist yet: %v", err)
		}
	})
}

func TestStateAtAMoment(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	for n := 1; n <= 12; n++ {
		add(t, s, states, tenant, "sum-1", n, n)
		add(t, s, states, tenant, "sum-2", n, n)
	}
	events, err := s.ReadStream(t.Context(), tenant, "sum-1", domain.StreamQuery{From: 1, Limit: 100})
	must(t, err)
	for i, event := range events {
		got, err := states.Load(t.Context(), tenant, "sum-1", At{Time: event.RecordedAt})
		must(t, err)
		last := i
		for last+1 < len(events) && events[last+1].RecordedAt.Equal(event.RecordedAt) {
			last++
		}
		wantState(t, got, int64(last+1), sumTo(last+1))
	}
	if _, err := states.Load(t.Context(), tenant, "sum-1", At{Time: events[0].RecordedAt.Add(-time.Microsecond)}); code(err) != domain.CodeNotFound {
		t.Errorf("before the first event: %v", err)
	}
}

func TestLongStreamsAreFoldedInSlices(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	add(t, s, states, tenant, "sum-1", 1, 3500)
	for _, version := range []int64{0, 1, 999, 1000, 1001, 2000, 3500} {
		got, err := states.Load(t.Context(), tenant, "sum-1", At{Version: version})
		must(t, err)
		if version == 0 {
			version = 3500
		}
		wantState(t, got, version, sumTo(int(version)))
	}
	// Events of half a megabyte: a slice ends by its bytes.
	big := strings.Repeat("x", 500<<10)
	must(t, states.Put(t.Context(), tenant, Definition{Category: "big", On: map[string]string{"*": `{"bytes": state.?bytes.orValue(0) + size(event.data.text)}`}}))
	for range 5 {
		var events []domain.NewEvent
		for range 5 {
			events = append(events, domain.NewEvent{Type: "Grew", Data: json.RawMessage(`{"text": "` + big + `"}`)})
		}
		_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "big-1", Expected: domain.Any, Events: events}}})
		must(t, err)
	}
	got, err := states.Load(t.Context(), tenant, "big-1", At{})
	must(t, err)
	wantState(t, got, 25, fmt.Sprintf(`{"bytes":%d}`, 25*len(big)))
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	add(t, s, states, tenant, "sum-1", 1, 3)
	appended, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
		Stream: "sum-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Added", Data: json.RawMessage(`{"m": 1}`)}},
	}}})
	must(t, err)
	_, err = states.Load(t.Context(), tenant, "sum-1", At{})
	problem, ok := errors.AsType[*domain.Error](err)
	if !ok || problem.Code != domain.CodeFaulted || problem.Where != "on.Added" {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"event 4 of sum-1", fmt.Sprintf("position %d", appended.Position), "Added", "line 1, column"} {
		if !strings.Contains(problem.Message, part) {
			t.Errorf("%q is not in: %s", part, problem.Message)
		}
	}
	if _, err := states.TakeSnapshot(t.Context(), tenant, "sum-1", false); code(err) != domain.CodeFaulted {
		t.Errorf("a snapshot of it: %v", err)
	}
	got, err := states.Load(t.Context(), tenant, "sum-1", At{Version: 3})
	must(t, err)
	wantState(t, got, 3, sumTo(3))
}

func TestNullRestartsFromTheInitialState(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	definition := adding("sum")
	definition.On["Cleared"] = "null"
	must(t, states.Put(t.Context(), tenant, definition))
	add(t, s, states, tenant, "sum-1", 1, 3)
	_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
		Stream: "sum-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Cleared", Data: json.RawMessage(`{}`)}, {Type: "Seen", Data: json.RawMessage(`{}`)}},
	}}})
	must(t, err)
	for range 2 { // without and with a snapshot
		got, err := states.Load(t.Context(), tenant, "sum-1", At{})
		must(t, err)
		wantState(t, got, 5, "null")
		_, err = states.TakeSnapshot(t.Context(), tenant, "sum-1", false)
		must(t, err)
	}
	add(t, s, states, tenant, "sum-1", 1, 2)
	got, err := states.Load(t.Context(), tenant, "sum-1", At{})
	must(t, err)
	wantState(t, got, 7, sumTo(2))
	if got.Snapshot != 5 {
		t.Errorf("folded on from version %d", got.Snapshot)
	}
}

func TestTenantsAreIsolated(t *testing.T) {
	t.Parallel()
	s, states, one := begin(t, false)
	two := domain.NewTenantID()
	must(t, s.CreateTenant(t.Context(), domain.Tenant{ID: two, Name: two.String()}))
	other := adding("sum")
	other.On["Added"] = `{"sum": state.sum - event.data.n, "count": state.count + 1}`
	must(t, states.Put(t.Context(), one, adding("sum")))
	must(t, states.Put(t.Context(), two, other))
	add(t, s, states, one, "sum-1", 1, 10)
	add(t, s, states, two, "sum-1", 1, 4)
	for range 2 { // without and with snapshots
		got, err := states.Load(t.Context(), one, "sum-1", At{})
		must(t, err)
		wantState(t, got, 10, sumTo(10))
		if got, err = states.Load(t.Context(), two, "sum-1", At{}); err != nil {
			t.Fatal(err)
		}
		wantState(t, got, 4, `{"count":4,"sum":-10}`)
		for _, tenant := range []domain.TenantID{one, two} {
			_, err := states.TakeSnapshot(t.Context(), tenant, "sum-1", false)
			must(t, err)
		}
	}
	must(t, states.Delete(t.Context(), one, "sum"))
	if _, err := states.Load(t.Context(), two, "sum-1", At{}); err != nil {
		t.Errorf("the other tenant's definition: %v", err)
	}
}

// BenchmarkLoad loads the state of a stream of 10,000 events, with and without snapshots.
func BenchmarkLoad(b *testing.B) {
	s, states, tenant := begin(b, false)
	must(b, states.Put(b.Context(), tenant, adding("sum")))
	add(b, s, states, tenant, "sum-1", 1, 10_000)
	load := func(b *testing.B) {
		for b.Loop() {
			if _, err := states.Load(b.Context(), tenant, "sum-1", At{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("from-the-first-event", load)
	_, err := states.TakeSnapshot(b.Context(), tenant, "sum-1", false)
	must(b, err)
	add(b, s, states, tenant, "sum-1", 10_001, 10_099)
	b.Run("99-events-behind-a-snapshot", load)
}

// occurred appends events that happened in some minutes of an hour, with their numbers as data.
func occurred(t testing.TB, s *watched, tenant domain.TenantID, stream string, minutes ...int) {
	t.Helper()
	var events []domain.NewEvent
	for i, minute := range minutes {
		event := domain.NewEvent{Type: "Added", Data: json.RawMessage(fmt.Sprintf(`{"n": %d}`, i+1))}
		if minute > 0 {
			event.OccurredAt = minuteOf(minute)
		}
		events = append(events, event)
	}
	_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: events}}})
	must(t, err)
}

func minuteOf(minute int) time.Time { return time.Date(2020, 1, 1, 12, minute, 0, 0, time.UTC) }

// The state at a moment of business time is that of the events that had happened by then, whenever they were recorded
// and whatever snapshots exist.
func TestStateByOccurredAt(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	definition := adding("sum")
	definition.On["Added"] = `{"sum": state.sum + event.data.n, "count": state.count + 1, "last": event.data.n}`
	must(t, states.Put(t.Context(), tenant, definition))
	occurred(t, s, tenant, "sum-1", 10, 30, 20, 30, 0) // imported, the third one late; the last says nothing, and happened now
	_, err := states.TakeSnapshot(t.Context(), tenant, "sum-1", false)
	must(t, err)
	for minute, want := range map[int]struct {
		version int64
		state   string
	}{
		10: {1, `{"count":1,"last":1,"sum":1}`},
		19: {1, `{"count":1,"last":1,"sum":1}`},
		20: {3, `{"count":2,"last":3,"sum":4}`},
		29: {3, `{"count":2,"last":3,"sum":4}`},
		30: {4, `{"count":4,"last":4,"sum":10}`},
		59: {4, `{"count":4,"last":4,"sum":10}`},
	} {
		got, err := states.Load(t.Context(), tenant, "sum-1", At{OccurredAt: minuteOf(minute)})
		must(t, err)
		wantState(t, got, want.version, want.state)
		if got.Snapshot != 0 || got.EventsRead != 5 {
			t.Errorf("at minute %d %d events were read from version %d on", minute, got.EventsRead, got.Snapshot)
		}
	}
	got, err := states.Load(t.Context(), tenant, "sum-1", At{OccurredAt: time.Now().Add(time.Hour)})
	must(t, err)
	wantState(t, got, 5, `{"count":5,"last":5,"sum":15}`)
	if _, err := states.Load(t.Context(), tenant, "sum-1", At{OccurredAt: minuteOf(9)}); code(err) != domain.CodeNotFound {
		t.Errorf("before the first one had happened: %v", err)
	}
	if _, err := states.Load(t.Context(), tenant, "sum-2", At{OccurredAt: minuteOf(9)}); code(err) != domain.CodeNotFound {
		t.Errorf("without a stream: %v", err)
	}
	for _, at := range []At{{OccurredAt: minuteOf(9), Version: 1}, {OccurredAt: minuteOf(9), Time: minuteOf(9)}} {
		if _, err := states.Load(t.Context(), tenant, "sum-1", at); code(err) != domain.CodeInvalidRequest {
			t.Errorf("with another moment: %v", err)
		}
	}
}

// Loading a state ends when its client has gone, and when it has cost too much.
func TestStatesAreLimitedByTheBudget(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, Definition{Category: "sum", On: map[string]string{
		"*": `{'n': lists.range(900).all(x, lists.range(100).all(y, x + y >= 0))}`,
	}}))
	add(t, s, states, tenant, "sum-1", 1, 1000)
	states.requests = budget.New(budget.Limits{Steps: 1 << 40, Time: time.Hour, TenantPlaces: 1})
	for range 3 { // one after the other: each gives its place back
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		_, err := states.Load(ctx, tenant, "sum-1", At{})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		cancel()
	}
	states.requests = budget.New(budget.Limits{Steps: 10_000_000, Time: time.Hour})
	for _, load := range []func() error{
		func() error { _, err := states.Load(t.Context(), tenant, "sum-1", At{}); return err },
		func() error {
			_, err := states.Load(t.Context(), tenant, "sum-1", At{OccurredAt: time.Now()})
			return err
		},
		func() error { _, err := states.TakeSnapshot(t.Context(), tenant, "sum-1", false); return err },
	} {
		if err := load(); code(err) != domain.CodeTooCostly {
			t.Errorf("more than a request may cost: %v", err)
		}
	}
}
