package aggregate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

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
			t.Fatal("snapshots of categories are still being renewed")
		}
	}
}

func waitFor(t *testing.T, s *watched, stream string) Snapshot {
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
		t.Errorf("before the 100th event, %d were read after a snapshot at %d", got.EventsRead, got.Snapshot)
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
			t.Errorf("at version %d, %d events were read (%d as reported) after a snapshot at %d", n+99, read, got.EventsRead, got.Snapshot)
		}
	}
	select {
	case more := <-s.snapshots:
		t.Errorf("one more snapshot was taken, at version %d", more.Version)
	default:
	}
}

func TestANewDefinitionDoesNotUseOldSnapshots(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	definition := adding("sum")
	must(t, states.Put(t.Context(), tenant, definition))
	add(t, s, states, tenant, "sum-1", 1, 20)
	old, err := states.TakeSnapshot(t.Context(), tenant, "sum-1", false)
	must(t, err)
	_, err = states.PutSnapshot(t.Context(), tenant, Snapshot{Stream: "sum-1", Version: 20, Tag: "go-v1", State: json.RawMessage(`"mine"`)})
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
	latest, err := states.LatestSnapshot(t.Context(), tenant, "sum-1", 0, "")
	must(t, err)
	if latest.Tag != "go-v1" {
		t.Errorf("the latest snapshot is %+v", latest)
	}
}

func TestClientsSnapshotsAreChecked(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	add(t, s, states, tenant, "sum-1", 1, 3)
	good := Snapshot{Stream: "sum-1", Version: 3, Tag: "go-v1", State: json.RawMessage(`{"n": 3}`)}
	kept, err := states.PutSnapshot(t.Context(), tenant, good)
	must(t, err)
	if kept.TakenAt.IsZero() || kept.Version != 3 || string(kept.State) != `{"n": 3}` {
		t.Errorf("kept %+v", kept)
	}
	for want, change := range map[domain.Code]func(*Snapshot){
		domain.CodeVersionConflict: func(s *Snapshot) { s.Version = 4 },
		domain.CodeNotFound:        func(s *Snapshot) { s.Stream = "sum-2" },
		domain.CodeInvalidJSON:     func(s *Snapshot) { s.State = json.RawMessage(`{"a": "\u0000"}`) },
		domain.CodeInvalidRequest:  func(s *Snapshot) { s.Tag = DefinitionTag("x") },
		domain.CodeTooLarge: func(s *Snapshot) {
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

// Streams that existed before their category had a definition get snapshots soon after it has one.
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

// A stream whose state costs more than a request may cost is folded in the background, part by part. After that, the
// state can be loaded.
func TestACostlyStateIsFoldedInTheBackground(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, true)
	add(t, s, states, tenant, "sum-1", 1, 90)
	must(t, s.PutAggregate(t.Context(), tenant, Definition{Category: "sum", On: map[string]string{
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

// A failover may lose events whose state a process remembers, while others have followed. No snapshot has that state.
func TestSnapshotNeverStartsFromLostEvents(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	c := NewCommands(states, s.Log, nil)
	must(t, states.Put(t.Context(), tenant, account()))
	_, err := send(t, c, tenant, Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(`{"amounts": [1, 2, 3, 4]}`)})
	must(t, err)
	f, err := states.fold(t.Context(), tenant, "account")
	must(t, err)
	key := streamKey{tenant, "account-1"}
	lost, ok := states.hot.get(key, f.tag)
	if !ok || lost.last.IsZero() {
		t.Fatalf("the state in memory is %+v", lost)
	}
	lost.last, lost.state = domain.NewEventID(), expr.NewObject(map[string]expr.Value{"balance": expr.Int(1_000)})
	states.hot.put(key, lost)
	must(t, states.takeNewest(t.Context(), key, f))
	got, err := states.Load(t.Context(), tenant, "account-1", At{})
	must(t, err)
	if _, remembered := states.hot.get(key, f.tag); remembered || got.Snapshot != lost.version || string(got.Data) != `{"balance":10,"open":true}` {
		t.Errorf("after a snapshot at version %d the state is %s, and the lost one is remembered: %t", got.Snapshot, got.Data, remembered)
	}
}

// A snapshot of a stream that commands are sent to starts from the state that they have left: it reads only what others
// have appended since.
func TestSnapshotStartsFromTheStateOfCommands(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	c := NewCommands(states, s.Log, nil)
	must(t, states.Put(t.Context(), tenant, account()))
	for range 5 {
		_, err := send(t, c, tenant, Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(`{"amounts": [1, 2, 3, 4]}`)})
		must(t, err)
	}
	f, err := states.fold(t.Context(), tenant, "account")
	must(t, err)
	for foreign := range 2 {
		before := s.events.Load()
		must(t, states.takeNewest(t.Context(), streamKey{tenant, "account-1"}, f))
		if read := s.events.Load() - before; read != int64(1+foreign) { // the last one that the commands appended, too
			t.Errorf("%d events were read for a snapshot, want %d", read, 1+foreign)
		}
		taken, _, err := s.LatestSnapshot(t.Context(), tenant, "account-1", 0, "")
		must(t, err)
		got, err := states.Load(t.Context(), tenant, "account-1", At{})
		must(t, err)
		if taken.Version != int64(20+foreign) || got.EventsRead != 0 || string(got.Data) != fmt.Sprintf(`{"balance":%d,"open":true}`, 50+100*foreign) {
			t.Errorf("the snapshot is at version %d, and the state is %s", taken.Version, got.Data)
		}
		_, err = s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "account-1", Expected: domain.Any, Events: []domain.NewEvent{
			{Type: "Deposited", Data: json.RawMessage(`{"amount": 100}`)},
		}}}})
		must(t, err)
	}
}
