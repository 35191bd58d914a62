package aggregate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/upcasting"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// watched is the store; it counts the events that it returns, and reports the snapshots that are put.
type watched struct {
	*Tables
	db        pgtest.DB
	events    atomic.Int64
	snapshots chan domain.Snapshot
	broken    string // the store cannot keep snapshots of this stream
}

func (w *watched) StreamSlice(ctx context.Context, tenant domain.TenantID, stream string, query domain.StreamQuery) (domain.StreamSlice, error) {
	slice, err := w.Tables.StreamSlice(ctx, tenant, stream, query)
	w.events.Add(int64(len(slice.Events)))
	return slice, err
}

func (w *watched) PutSnapshot(ctx context.Context, tenant domain.TenantID, snapshot domain.Snapshot) error {
	if snapshot.Stream == w.broken {
		return errors.New("it is broken")
	}
	if err := w.Tables.PutSnapshot(ctx, tenant, snapshot); err != nil {
		return err
	}
	select {
	case w.snapshots <- snapshot:
	default:
	}
	return nil
}

func code(err error) domain.Code {
	if problem, ok := errors.AsType[*domain.Error](err); ok {
		return problem.Code
	}
	return ""
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begin opens a store with one tenant and States over it. With run, snapshots are taken in the background.
func begin(t testing.TB, run bool) (*watched, *States, domain.TenantID) {
	t.Helper()
	db := pgtest.Database(t)
	ctx := context.Background()
	s, err := openTables(ctx, pg.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns: 8, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	t.Cleanup(s.Close)
	w := &watched{Tables: s, db: db, snapshots: make(chan domain.Snapshot, 1000)}
	upcasters, err := upcasting.New(s)
	must(t, err)
	states, err := New(Config{Store: w, Upcasters: upcasters, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	tenant := domain.NewTenantID()
	must(t, s.CreateTenant(ctx, domain.Tenant{ID: tenant, Name: tenant.String()}))
	if run {
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() {
			if err := states.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { cancel(); running.Wait() })
	}
	return w, states, tenant
}

// add appends events with the numbers from to upTo as data, and tells States.
func add(t rapid.TB, s *watched, states *States, tenant domain.TenantID, stream string, from, upTo int) {
	t.Helper()
	for from <= upTo {
		last := min(upTo, from+domain.MaxRequestEvents-1)
		var events []domain.NewEvent
		for n := from; n <= last; n++ {
			events = append(events, domain.NewEvent{Type: "Added", Data: json.RawMessage(fmt.Sprintf(`{"n": %d}`, n))})
		}
		appended, err := s.Append(context.Background(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: events}}})
		must(t, err)
		states.Appended(tenant, appended)
		from = last + 1
	}
}

// adding sums the numbers up, and counts.
func adding(category string) domain.Aggregate {
	return domain.Aggregate{
		Category: category, Initial: json.RawMessage(`{"sum": 0, "count": 0}`),
		On: map[string]string{"Added": `{"sum": state.sum + event.data.n, "count": state.count + 1}`},
	}
}

// sumTo is the state after the events 1 to n.
func sumTo(n int) string { return fmt.Sprintf(`{"count":%d,"sum":%d}`, n, n*(n+1)/2) }

func wantState(t rapid.TB, got State, version int64, want string) {
	t.Helper()
	if got.Version != version || string(got.Data) != want {
		t.Fatalf("got version %d, %s; want version %d, %s", got.Version, got.Data, version, want)
	}
}

// waitForRenewals waits until no category has its snapshots taken again, which a new definition causes.
func waitForRenewals(t *testing.T, states *States) {
	t.Helper()
	l := states.renewals
	idle := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.tenants) == 0
	}
	for late := time.After(time.Minute); !idle(); {
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatal("categories still have their snapshots taken again")
		}
	}
}

func waitFor(t *testing.T, s *watched, stream string) domain.Snapshot {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case snapshot := <-s.snapshots:
			if snapshot.Stream == stream {
				return snapshot
			}
		case <-timeout:
			t.Fatalf("no snapshot of %s was taken", stream)
		}
	}
}

func TestSnapshotEvery100Events(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, true)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	waitForRenewals(t, states)
	add(t, s, states, tenant, "sum-1", 1, 99)
	got, err := states.Load(t.Context(), tenant, "sum-1", At{})
	must(t, err)
	wantState(t, got, 99, sumTo(99))
	if got.Snapshot != 0 || got.EventsRead != 99 {
		t.Errorf("before the 100th event, %d were read behind a snapshot at %d", got.EventsRead, got.Snapshot)
	}
	for n := 100; n <= 1000; n += 100 {
		add(t, s, states, tenant, "sum-1", n, n)
		if taken := waitFor(t, s, "sum-1"); taken.Version != int64(n) {
			t.Fatalf("a snapshot at version %d was taken at version %d", taken.Version, n)
		}
		add(t, s, states, tenant, "sum-1", n+1, n+99)
		before := s.events.Load()
		got, err := states.Load(t.Context(), tenant, "sum-1", At{})
		must(t, err)
		wantState(t, got, int64(n+99), sumTo(n+99))
		if read := s.events.Load() - before; read != 99 || got.EventsRead != 99 || got.Snapshot != int64(n) {
			t.Errorf("at version %d, %d events were read (%d by its own word) behind a snapshot at %d", n+99, read, got.EventsRead, got.Snapshot)
		}
	}
	select {
	case more := <-s.snapshots:
		t.Errorf("one more snapshot was taken, at version %d", more.Version)
	default:
	}
}

// However a state is loaded, with whatever snapshots there are, it is the fold of the events up to its version.
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
			r.Fatalf("a version that is not there yet: %v", err)
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
	must(t, states.Put(t.Context(), tenant, domain.Aggregate{Category: "big", On: map[string]string{"*": `{"bytes": state.?bytes.orValue(0) + size(event.data.text)}`}}))
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

func TestANewDefinitionDoesNotUseOldSnapshots(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	definition := adding("sum")
	must(t, states.Put(t.Context(), tenant, definition))
	add(t, s, states, tenant, "sum-1", 1, 20)
	old, err := states.TakeSnapshot(t.Context(), tenant, "sum-1", false)
	must(t, err)
	_, err = states.PutSnapshot(t.Context(), tenant, domain.Snapshot{Stream: "sum-1", Version: 20, Tag: "go-v1", State: json.RawMessage(`"mine"`)})
	must(t, err)

	// How often snapshots are taken is no part of what they are.
	definition.SnapshotEvery = 50
	must(t, states.Put(t.Context(), tenant, definition))
	got, err := states.Load(t.Context(), tenant, "sum-1", At{})
	must(t, err)
	if got.Snapshot != 20 || got.EventsRead != 0 {
		t.Errorf("the snapshot was not used: %+v", got)
	}
	definition.On["Added"] = `{"sum": state.sum - event.data.n, "count": state.count + 1}`
	must(t, states.Put(t.Context(), tenant, definition))
	if got, err = states.Load(t.Context(), tenant, "sum-1", At{}); err != nil {
		t.Fatal(err)
	}
	wantState(t, got, 20, `{"count":20,"sum":-210}`)
	if got.Snapshot != 0 {
		t.Errorf("a snapshot of the old definition was used")
	}
	fresh, err := states.TakeSnapshot(t.Context(), tenant, "sum-1", false)
	must(t, err)
	if _, there, err := s.Snapshot(t.Context(), tenant, "sum-1", old.Tag, 0, false); err != nil || there || fresh.Tag == old.Tag {
		t.Errorf("the old definition's snapshot is there: %v, %v", there, err)
	}
	if mine, there, err := s.Snapshot(t.Context(), tenant, "sum-1", "go-v1", 0, false); err != nil || !there || string(mine.State) != `"mine"` {
		t.Errorf("the client's snapshot: %+v, %v, %v", mine, there, err)
	}
	must(t, states.Delete(t.Context(), tenant, "sum"))
	if _, err := states.Load(t.Context(), tenant, "sum-1", At{}); code(err) != domain.CodeNotFound {
		t.Errorf("without a definition: %v", err)
	}
	latest, err := states.LatestSnapshot(t.Context(), tenant, "sum-1")
	must(t, err)
	if latest.Tag != "go-v1" {
		t.Errorf("the latest snapshot is %+v", latest)
	}
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

func TestNullBeginsAnew(t *testing.T) {
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

func TestClientsSnapshotsAreChecked(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	add(t, s, states, tenant, "sum-1", 1, 3)
	good := domain.Snapshot{Stream: "sum-1", Version: 3, Tag: "go-v1", State: json.RawMessage(`{"n": 3}`)}
	kept, err := states.PutSnapshot(t.Context(), tenant, good)
	must(t, err)
	if kept.TakenAt.IsZero() || kept.Version != 3 || string(kept.State) != `{"n": 3}` {
		t.Errorf("kept %+v", kept)
	}
	for want, change := range map[domain.Code]func(*domain.Snapshot){
		domain.CodeVersionConflict: func(s *domain.Snapshot) { s.Version = 4 },
		domain.CodeNotFound:        func(s *domain.Snapshot) { s.Stream = "sum-2" },
		domain.CodeInvalidJSON:     func(s *domain.Snapshot) { s.State = json.RawMessage(`{"a": "\u0000"}`) },
		domain.CodeInvalidRequest:  func(s *domain.Snapshot) { s.Tag = domain.DefinitionTag("x") },
		domain.CodeTooLarge: func(s *domain.Snapshot) {
			s.State = json.RawMessage(`"` + strings.Repeat("x", domain.MaxDocumentBytes) + `"`)
		},
	} {
		bad := good
		change(&bad)
		_, err := states.PutSnapshot(t.Context(), tenant, bad)
		if code(err) != want {
			t.Errorf("want %s, got %v", want, err)
		}
		if problem, _ := errors.AsType[*domain.Error](err); want == domain.CodeVersionConflict && (problem.CurrentVersion == nil || *problem.CurrentVersion != 3) {
			t.Errorf("the conflict does not say where the stream is: %+v", problem)
		}
	}
	for _, version := range []int64{0, -1} {
		bad := good
		bad.Version = version
		if _, err := states.PutSnapshot(t.Context(), tenant, bad); code(err) != domain.CodeInvalidRequest {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

func TestDefinitionsAreChecked(t *testing.T) {
	t.Parallel()
	_, states, tenant := begin(t, false)
	for name, test := range map[string]struct {
		change func(*domain.Aggregate)
		where  string
		says   string
	}{
		"expression": {func(d *domain.Aggregate) { d.On["Added"] = "{'a': state.b +}" }, "on.Added", "line 1, column"},
		"variable":   {func(d *domain.Aggregate) { d.On["Added"] = "doc" }, "on.Added", "doc"},
		"type":       {func(d *domain.Aggregate) { d.On["No Type"] = "state" }, "on.No Type", "event type"},
		"nothing":    {func(d *domain.Aggregate) { d.On = nil }, "on", "no event type"},
		"initial":    {func(d *domain.Aggregate) { d.Initial = json.RawMessage(`[1]`) }, "initial", "object"},
		"not JSON":   {func(d *domain.Aggregate) { d.Initial = json.RawMessage(`{"a": "\u0000"}`) }, "initial", "U+0000"},
		"category":   {func(d *domain.Aggregate) { d.Category = "a-b" }, "category", "category"},
		"often":      {func(d *domain.Aggregate) { d.SnapshotEvery = 1 }, "snapshotEvery", "10 to 100000"},
		"long":       {func(d *domain.Aggregate) { d.On["Added"] = strings.Repeat(" ", MaxDefinitionBytes) + "state" }, "", "at most"},
		"two":        {func(d *domain.Aggregate) { d.SnapshotEvery, d.On["Added"] = -1, "" }, "", "2 problems"},
	} {
		t.Run(name, func(t *testing.T) {
			definition := adding("sum")
			test.change(&definition)
			problem, ok := errors.AsType[*domain.Error](states.Put(t.Context(), tenant, definition))
			if !ok || problem.Code != domain.CodeInvalidDefinition || problem.Where != test.where || !strings.Contains(problem.Message, test.says) {
				t.Errorf("got %+v", problem)
			}
		})
	}
	if all, err := states.Definitions(t.Context(), tenant); err != nil || len(all) != 0 {
		t.Errorf("something was kept: %v, %v", all, err)
	}
}

func TestTenantsWithEqualNamesAreApart(t *testing.T) {
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

func TestSweepTakesWhatMoved(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	add(t, s, states, tenant, "sum-long", 1, 40)
	add(t, s, states, tenant, "sum-short", 1, 9)
	add(t, s, states, tenant, "other-1", 1, 40)
	add(t, s, states, tenant, "sum-faulty", 1, 20)
	add(t, s, states, tenant, "sum-broken", 1, 20)
	s.broken = "sum-broken"
	_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
		Stream: "sum-faulty", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Added", Data: json.RawMessage(`{}`)}},
	}}})
	must(t, err)
	for _, want := range []int{1, 0} {
		taken, err := states.Sweep(t.Context())
		must(t, err)
		if taken != want {
			t.Errorf("took %d snapshots, want %d", taken, want)
		}
	}
	got, err := states.Load(t.Context(), tenant, "sum-long", At{})
	must(t, err)
	wantState(t, got, 40, sumTo(40))
	if got.EventsRead != 0 {
		t.Errorf("%d events were read", got.EventsRead)
	}
}

// A tenant with much to sweep does not delay another one's snapshots.
func TestSweepTakesTenantsInTurn(t *testing.T) {
	t.Parallel()
	s, states, large := begin(t, false)
	states.turn = 0
	small := domain.NewTenantID()
	must(t, s.CreateTenant(t.Context(), domain.Tenant{ID: small, Name: small.String()}))
	if bytes.Compare(large[:], small[:]) > 0 {
		large, small = small, large // the sweep begins with the first one
	}
	for _, tenant := range []domain.TenantID{large, small} {
		must(t, states.Put(t.Context(), tenant, adding("sum")))
		must(t, states.Put(t.Context(), tenant, adding("count")))
	}
	for n := range 20 {
		add(t, s, states, large, fmt.Sprintf("sum-large%d", n), 1, 11)
		add(t, s, states, large, fmt.Sprintf("count-large%d", n), 1, 11)
	}
	add(t, s, states, small, "sum-small", 1, 11)
	add(t, s, states, small, "count-small", 1, 11)
	taken, err := states.Sweep(t.Context())
	must(t, err)
	if taken != 42 {
		t.Errorf("took %d snapshots, want 42", taken)
	}
	for n := range 42 {
		if stream := (<-s.snapshots).Stream; strings.HasSuffix(stream, "small") && n > 3 {
			t.Errorf("%s got its snapshot after %d others", stream, n)
		}
	}
}

func TestTheLineIsBoundedAndHoldsAStreamOnce(t *testing.T) {
	t.Parallel()
	line, err := newTaker(1, 30) // three of one tenant
	must(t, err)
	tenant := domain.NewTenantID()
	line.every.Add(categoryKey{tenant, "sum"}, cadence{every: 100, until: time.Now().Add(time.Hour)})
	line.every.Add(categoryKey{tenant, "none"}, cadence{until: time.Now().Add(time.Hour)})
	line.add(tenant, "sum-1", span{0, 99})
	line.add(tenant, "none-1", span{0, 100})
	if line.line.waiting() != 0 {
		t.Fatal("a stream that is not due came into the line")
	}
	line.add(tenant, "sum-1", span{99, 100})
	line.add(tenant, "sum-1", span{199, 201})
	if line.line.waiting() != 1 {
		t.Fatalf("a stream stands in the line %d times", line.line.waiting())
	}
	for n := range 10 {
		line.add(tenant, fmt.Sprintf("unknown-%d", n), span{0, 1})
	}
	if line.line.waiting() != 3 || len(line.moved) != 3 {
		t.Errorf("%d streams of a tenant are in a line of 30, and %d remembered", line.line.waiting(), len(line.moved))
	}
	if moved := line.take(nextOf(t, line)); moved != (span{99, 201}) {
		t.Errorf("the stream moved by %v", moved)
	}
	line.add(tenant, "sum-1", span{299, 300})
	if line.line.waiting() != 3 {
		t.Error("a stream that was taken out cannot be added again")
	}
}

// BenchmarkLoad is the state of a stream of 10,000 events, with the snapshots that it has, and without any.
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

// occurred appends events that have happened at some minutes of an hour, with their numbers as data.
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

// The state at a moment of business time is that of the events that had happened, whenever they were recorded and whatever
// snapshot there is.
func TestStateByWhenEventsHappened(t *testing.T) {
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

// However much a state takes, it ends when its client has gone, and when it has cost too much.
func TestAStateCostsNoMoreThanARequestMay(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, domain.Aggregate{Category: "sum", On: map[string]string{
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

// nextOf is the next stream in a taker's line.
func nextOf(t *testing.T, of *taker) streamKey {
	t.Helper()
	key, done, ok := of.line.next(t.Context())
	if !ok {
		t.Fatal("nothing waits")
	}
	done()
	return key
}

// Streams that were there before their category had a definition have snapshots soon after it has one.
func TestStreamsImportedBeforeTheirAggregateGetSnapshots(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, true)
	for _, stream := range []string{"sum-1", "sum-2"} {
		occurred(t, s, tenant, stream, make([]int, 250)...)
	}
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	for _, stream := range []string{"sum-1", "sum-2"} {
		if taken := waitFor(t, s, stream); taken.Version != 250 || string(taken.State) == "" {
			t.Errorf("%s has a snapshot at version %d", stream, taken.Version)
		}
	}
}

// A stream whose state costs more than a request may is folded in the background, part by part, and can be asked for then.
func TestACostlyStateIsFoldedInTheBackground(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, true)
	add(t, s, states, tenant, "sum-1", 1, 90)
	must(t, s.PutAggregate(t.Context(), tenant, domain.Aggregate{Category: "sum", On: map[string]string{
		"*": `{'n': state.?n.orValue(0) + 1, 'done': lists.range(900).all(x, lists.range(100).all(y, x + y >= 0))}`,
	}}))
	states.requests = budget.New(budget.Limits{Steps: 2_000_000, Time: time.Hour})
	if _, err := states.Load(t.Context(), tenant, "sum-1", At{}); code(err) != domain.CodeTooCostly {
		t.Fatalf("at first: %v", err)
	}
	for waitFor(t, s, "sum-1").Version < 90 {
	}
	got, err := states.Load(t.Context(), tenant, "sum-1", At{})
	must(t, err)
	wantState(t, got, 90, `{"done":true,"n":90}`)
}

// Tenants take turns, and none has all workers.
func TestALineGoesRoundByTenant(t *testing.T) {
	t.Parallel()
	l := newTenantQueue[streamKey](90, 1) // nine of one tenant
	busy, quiet := domain.NewTenantID(), domain.NewTenantID()
	for n := range 9 {
		l.push(busy, streamKey{busy, fmt.Sprint(n)})
		l.push(busy, streamKey{busy, fmt.Sprint(n)}) // waits already
	}
	l.push(quiet, streamKey{quiet, "one"})
	if l.push(busy, streamKey{busy, "too many"}) {
		t.Error("one tenant has more than a tenth of the line")
	}
	next := func() (streamKey, func()) {
		key, done, ok := l.pop()
		if !ok {
			t.Fatal("nobody may have a turn")
		}
		return key, done
	}
	first, firstDone := next()
	second, secondDone := next()
	if first != (streamKey{busy, "0"}) || second != (streamKey{quiet, "one"}) {
		t.Errorf("the first two are %v and %v", first, second)
	}
	if key, _, ok := l.pop(); ok {
		t.Errorf("%v is worked on beside another of its tenant", key)
	}
	firstDone()
	secondDone()
	for n := 1; n < 9; n++ {
		key, done := next()
		if key != (streamKey{busy, fmt.Sprint(n)}) {
			t.Errorf("%v is the next; want stream %d", key, n)
		}
		done()
	}
	if l.waiting() != 0 || len(l.tenants) != 0 {
		t.Errorf("%d wait, of %d tenants", l.waiting(), len(l.tenants))
	}
}
