package group

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// openLog opens the log of a separate database.
func openLog(t *testing.T) *eventlog.Log {
	t.Helper()
	db := pgtest.Database(t)
	sessions, err := pg.Open(t.Context(), pg.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	log := eventlog.New(sessions, eventlog.Config{})
	t.Cleanup(func() {
		log.Close()
		sessions.Close()
	})
	return log
}

// However it is read and wherever one continues, the next event is the next that is selected, and none is left out.
func TestLookaheadGivesTheSelectedEvents(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	rapid.Check(t, func(t *rapid.T) {
		tenant := domain.NewTenantID()
		var events []domain.Event
		versions := make(map[string]int64)
		add := func(n int) {
			var request domain.Append
			for range n {
				stream := rapid.SampledFrom([]string{"a-1", "a-2", "b-1", "c-1"}).Draw(t, "stream")
				versions[stream]++
				e := domain.Event{
					Position: int64(len(events) + 1), Stream: stream, Version: versions[stream], Type: rapid.SampledFrom([]string{"T", "U"}).Draw(t, "type"),
					Data: []byte(`"` + strings.Repeat("x", rapid.IntRange(0, 100).Draw(t, "size")) + `"`),
					Tags: rapid.SampledFrom([][]string{nil, {"x"}, {"x", "y"}, {"z"}}).Draw(t, "tags"),
				}
				events = append(events, e)
				request.Streams = append(request.Streams, domain.StreamAppend{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{{Type: e.Type, Data: e.Data, Tags: slices.Clone(e.Tags)}}})
			}
			if n == 0 {
				return
			}
			if _, err := log.Append(t.Context(), tenant, request); err != nil {
				t.Fatal(err)
			}
		}
		add(rapid.IntRange(0, 60).Draw(t, "events"))
		sel, err := selection.New(rapid.SampledFrom([]domain.Selection{
			{}, {Stream: "a-1"}, {Stream: "a-1", Types: []string{"T"}}, {Categories: []string{"a", "c"}}, {Types: []string{"U"}}, {Filter: "event.version % 2 == 0"},
			{Query: domain.Query{{Tags: []string{"x"}}}}, {Categories: []string{"a"}, Query: domain.Query{{Tags: []string{"x", "y"}}, {Types: []string{"U"}, Tags: []string{"z"}}}},
			{Query: slices.Repeat(domain.Query{{Tags: []string{"x", "y"}}}, 20)}, {Query: domain.Query{{Types: []string{"T"}}}, Filter: "event.version % 2 == 0"}, {Stream: "a-1", Filter: "event.version % 3 == 0"},
		}).Draw(t, "selection"))
		if err != nil {
			t.Fatal(err)
		}
		sel.IndexedFrom = rapid.Int64Range(0, 50).Draw(t, "distance from which the index is used")
		inUse := rapid.SampledFrom([]int{1, sharedFromGroups}).Draw(t, "groups")
		shared := &sharedReads{
			log: log, groups: func() int { return inUse }, memory: &memoryBudget{bound: rapid.Int64Range(-1, 5000).Draw(t, "memory")}, events: rapid.IntRange(1, 30).Draw(t, "events per shared read"),
			kept: rapid.IntRange(0, 9000).Draw(t, "bytes kept"), held: rapid.IntRange(0, 9000).Draw(t, "bytes held"),
		}
		a := &lookahead{
			log: shared, tenant: tenant, selection: sel, version: -1, maxBytes: rapid.IntRange(1, 400).Draw(t, "bytes"),
			filterTurn: make(chan struct{}, 1), filterTime: time.Duration(rapid.SampledFrom([]int64{0, 1000, 1e9}).Draw(t, "time for the filter")),
		}
		if rapid.Bool().Draw(t, "partitioned") {
			a.partitions, a.partition = 2, rapid.IntRange(0, 1).Draw(t, "partition")
		}
		another := *a
		another.partition = max(0, a.partitions-1)
		readTo, saved := int64(0), int64(0)
		var running sync.WaitGroup
		want := func() *domain.Event {
			for i := range events[min(readTo, int64(len(events))):] {
				if e := &events[int(readTo)+i]; a.inPartition(e) && sel.Matches(e) {
					return e
				}
			}
			return nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				for a.next() == nil {
					if readTo = max(readTo, a.scanned); readTo > a.scanned {
						t.Fatalf("it was read up to %d, and scanned up to %d", readTo, a.scanned)
					}
					more, err := a.readMore(t.Context(), int64(len(events)))
					if err != nil {
						t.Fatal(err)
					}
					if !more {
						if e := want(); e != nil {
							t.Fatalf("behind %d there is nothing more; want the event at %d", readTo, e.Position)
						}
						return
					}
				}
				e := want()
				if got := a.next(); e == nil || got.Position != e.Position {
					t.Fatalf("behind %d comes the event at %d; want %v", readTo, got.Position, e)
				}
				a.advance()
				readTo = e.Position
			},
			"begin": func(*rapid.T) { a.startRead(&running, int64(len(events))) },
			"another reads": func(t *rapid.T) {
				elsewhere := another
				elsewhere.seekTo(rapid.Int64Range(0, int64(len(events))).Draw(t, "position"))
				if _, err := elsewhere.readMore(t.Context(), int64(len(events))); err != nil {
					t.Fatal(err)
				}
			},
			"append": func(t *rapid.T) { add(rapid.IntRange(1, 5).Draw(t, "more")) },
			"save": func(*rapid.T) {
				a.saved(readTo)
				saved = readTo
			},
			"lose": func(*rapid.T) {
				readTo = saved
				a.seekTo(readTo)
			},
			"go elsewhere": func(t *rapid.T) {
				readTo = rapid.Int64Range(0, int64(len(events))).Draw(t, "position")
				saved = readTo
				a.seekTo(readTo)
			},
			"": func(t *rapid.T) {
				held := 0
				for i := a.taken; i < len(a.events); i++ {
					held += eventBytes(&a.events[i])
				}
				if held != a.bytes {
					t.Fatalf("%d bytes are waiting; it counts %d", held, a.bytes)
				}
			},
		})
		if _, err := a.awaitRead(); err != nil {
			t.Fatal(err)
		}
		running.Wait()
		kept := 0
		for _, read := range shared.reads {
			kept += read.bytes
		}
		if used := shared.memory.used.Load(); kept != shared.bytes || int64(kept) != used {
			t.Fatalf("shared reads have %d bytes; they count %d and, for the process, %d", kept, shared.bytes, used)
		}
		shared.close()
		if used := shared.memory.used.Load(); used != 0 {
			t.Fatalf("after closing, %d bytes are counted", used)
		}
	})
}

func TestStreamsAheadAreBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s streamsAhead
		s.clear()
		s.maxBytes = rapid.IntRange(1, 300).Draw(t, "bytes")
		behind := make(map[string][]int64) // versions that were left behind
		next := make(map[string]int64)
		stream := func(t *rapid.T) string {
			return fmt.Sprintf("s-%d", rapid.IntRange(1, 4).Draw(t, "stream"))
		}
		event := func(name string, version int64) domain.Event {
			return domain.Event{Stream: name, Version: version, Data: []byte(strings.Repeat("1", int(version%7)+10))}
		}
		t.Repeat(map[string]func(*rapid.T){
			"left": func(t *rapid.T) {
				name := stream(t)
				next[name]++
				e := event(name, next[name])
				s.addLeftBehind(&e, len(behind[name]) == 0)
				behind[name] = append(behind[name], e.Version)
			},
			"take": func(t *rapid.T) {
				name := stream(t)
				if len(behind[name]) == 0 {
					return
				}
				e, last := s.next(name)
				if e == nil {
					var found []domain.Event
					for _, version := range behind[name][:min(3, len(behind[name]))] {
						found = append(found, event(name, version))
					}
					s.addRead(name, found, len(behind[name]) < 3)
					e, last = s.next(name)
				}
				if e == nil || e.Version != behind[name][0] {
					t.Fatalf("the next of %s is %v; want version %d", name, e, behind[name][0])
				}
				if last && len(behind[name]) > 1 {
					t.Fatalf("version %d of %s is said to be the last; there are %d more", e.Version, name, len(behind[name])-1)
				}
				s.advance(name)
				if behind[name] = behind[name][1:]; last {
					s.remove(name)
				} else if len(behind[name]) == 0 {
					s.remove(name) // it is found by reading
				}
			},
			"": func(t *rapid.T) {
				events, bytes := 0, 0
				for _, a := range s.of {
					events += len(a.events)
					for i := range a.events {
						bytes += eventBytes(&a.events[i])
					}
				}
				if events != s.events || bytes != s.bytes {
					t.Fatalf("it has %d events of %d bytes, and counts %d of %d", events, bytes, s.events, s.bytes)
				}
				if bytes > s.maxBytes+4*20 {
					t.Fatalf("it has %d bytes; at most %d are allowed, and one event of each stream", bytes, s.maxBytes)
				}
			},
		})
	})
}

// A read that was running when a person's data was erased has the data, and is dropped.
func TestErasureDropsTheRunningRead(t *testing.T) {
	t.Parallel()
	log, tenant := openLog(t), domain.NewTenantID()
	some := domain.StreamAppend{Stream: "a-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "T", Data: []byte("1")}}}
	if _, err := log.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{some}}); err != nil {
		t.Fatal(err)
	}
	all, err := selection.New(domain.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	shared := &sharedReads{log: log, groups: func() int { return 1 }, memory: &memoryBudget{}}
	a := &lookahead{log: shared, tenant: tenant, selection: all, version: -1, maxBytes: aheadBytes, filterTurn: make(chan struct{}, 1), filterTime: time.Second}
	var running sync.WaitGroup
	a.startRead(&running, 1)
	running.Wait() // it has the event
	none := func(pgx.Tx) error { return nil }
	if err := log.Erase(t.Context(), tenant, eventlog.Erasing{Erasure: domain.NewUUID()}, []int64{1}, none, none); err != nil {
		t.Fatal(err)
	}
	a.forget()
	a.seekTo(0)
	if _, err := a.readMore(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if e := a.next(); e == nil || e.Gap == nil {
		t.Errorf("the event after the erasure is %+v", e)
	}
}
