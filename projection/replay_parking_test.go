package projection_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// parking is a definition over several streams. It cannot fold an event whose key is a number or whose n is a text, and
// the test's database refuses documents that become too large.
var parking = folding.WithDefaults(domain.Definition{
	Name: "parking",
	Key:  "event.data.k == null ? null : 'doc ' + event.data.k",
	On: map[string]string{
		"Add":    "merge(doc, {'sum': doc.?sum.orValue(0) * 3 % 1000003 + event.data.n, 'events': doc.?events.orValue(0) + 1})",
		"Remove": "null",
	},
	OnError: domain.OnErrorPark,
})

// mapParking is the same as a map.
var mapParking = folding.WithDefaults(domain.Definition{
	Name: "parking",
	Key:  parking.Key,
	Map: map[string]string{
		"Add":    "{'sum': 0 + event.data.n}",
		"Remove": "null",
	},
	OnError: domain.OnErrorPark,
})

// spreading is the same for events that belong to several documents, in an order that depends on the event. Some of
// these are parked, by an item that is a text, while the others of the event are not.
var spreading = folding.WithDefaults(domain.Definition{
	Name: "parking",
	Key: `event.data.k == null ? [null] : (event.data.n == 1 || event.data.n == 2 ? ['all', 'doc ' + event.data.k] : ['doc ' + event.data.k, 'all']) +
		[{'id': 'item', 'item': event.data.n}, event.type == 'Remove' ? null : {'id': event.stream, 'item': 1}]`,
	On: map[string]string{
		"Add": `merge(doc, {'id': key, 'events': doc.?events.orValue(0) + 1, 'sum': doc.?sum.orValue(0) * 3 % 1000003 +
			(key == 'item' ? item : key == 'all' ? event.position : event.data.n == 7 ? key : event.data.n == 'many' ? 0 : event.data.n)})`,
		"Remove": "key == 'all' ? doc : null",
	},
	OnError: domain.OnErrorPark,
})

// mapSpreading is the same as a map.
var mapSpreading = folding.WithDefaults(domain.Definition{
	Name: "parking",
	Key:  spreading.Key,
	Map: map[string]string{
		"Add":    "event.data.n == 3 && key == 'all' ? null : {'id': key, 'sum': key == 'item' ? item + 0 : 0}",
		"Remove": "null",
	},
	OnError: domain.OnErrorPark,
})

// someParkingEvents appends drawn events, some of which cannot be folded.
func someParkingEvents(t *rapid.T, tb testing.TB, b bench, tenant domain.TenantID) {
	for i := range rapid.IntRange(1, 25).Draw(t, "events") {
		eventType := rapid.SampledFrom([]string{"Add", "Add", "Add", "Remove", "Other"}).Draw(t, fmt.Sprint("type ", i))
		k := rapid.SampledFrom([]string{`"a"`, `"b"`, `"c"`, `"d"`, `"e"`, "null", "7"}).Draw(t, fmt.Sprint("k ", i))
		n := rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6", "7", `"many"`}).Draw(t, fmt.Sprint("n ", i))
		b.append(tb, tenant, rapid.SampledFrom([]string{"x-1", "x-2"}).Draw(t, fmt.Sprint("stream ", i)), eventType, fmt.Sprintf(`{"k": %s, "n": %s}`, k, n))
	}
}

// failCommits asks for a verdict at each statement that contains a text, and fails the statement or the commit after
// it. One transaction at a time may use the network.
func failCommits(network *pgtest.Network, statement string, ask func() verdict) {
	var loses atomic.Bool // the answer to the next commit
	network.Before(statement, func() bool {
		v := ask()
		loses.Store(v == failsAfter)
		return v != failsBefore
	})
	network.After("commit", func(int) bool { return !loses.Swap(false) })
}

// injected reports whether an error was caused by the test.
func injected(err error) bool {
	return errors.Is(err, errInjected) || domain.IsCode(err, domain.CodeUnavailable)
}

// parkedNow returns the waiting events up to a position.
func parkedNow(t rapid.TB, tb testing.TB, b bench, tenant domain.TenantID, build domain.Build, upTo int64) waitingEvents {
	t.Helper()
	documents, err := b.store.ParkedDocuments(tb.Context(), tenant, build.ProjectionID, build.Number, "", 10_000)
	if err != nil {
		t.Fatal(err)
	}
	parked := make(waitingEvents)
	for _, document := range documents {
		events, err := b.store.ParkedEvents(tb.Context(), tenant, build.ProjectionID, build.Number, document.ID, 0, 10_000)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events {
			if event.Position <= upTo {
				parked[document.ID] = append(parked[document.ID], event.Position)
			}
		}
	}
	return parked
}

// Workers race and are interrupted anywhere. At any moment, the documents are those of a model of parking up to the
// checkpoint, and every event at or below the checkpoint that has not taken effect waits for its document.
func TestParkedEventsAreNeverLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	through, network := b.throughNetwork(t)
	driver := &faulty{Driver: b.driver}
	network.Before("from parked_documents d\n\t\t\twhere d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4\n\t\t\tunion all", func() bool {
		return driver.ask("exclusions") == works
	})
	failCommits(network, "order by d.document_id for share", func() verdict { return driver.ask("park") })
	rapid.Check(t, func(rt *rapid.T) {
		tenant := b.tenant(t)
		definition := rapid.SampledFrom([]domain.Definition{parking, mapParking, spreading, mapSpreading}).Draw(rt, "definition")
		fold, err := folding.Compile(definition)
		if err != nil {
			rt.Fatal(err)
		}
		build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: definition.Name}, Number: 1, Database: "default"}
		driver.rule(nil)
		fresh := func() *projection.Replay {
			return &projection.Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Version: 1, Unread: rapid.Bool().Draw(rt, "unread"),
				Registry: through.Registry,
				Limits: projection.Limits{
					Events: rapid.IntRange(1, 9).Draw(rt, "limit"), Bytes: 1 << 20, DocumentBytes: rapid.SampledFrom([]int{1, 1 << 20}).Draw(rt, "document bytes"),
				}}
		}
		skipped := make(map[int64]bool)
		check := func() {
			checkpoint, err := b.driver.Checkpoint(t.Context(), build, tenant)
			if err != nil {
				rt.Fatal(err)
			}
			documents, parked := parkedFromScratch(rt, definition, b.log(t, tenant)[:checkpoint], skipped)
			mustEqual(rt, stored(rt, t, b, build, tenant), documents)
			if got := parkedNow(rt, t, b, tenant, build, checkpoint); !maps.EqualFunc(got, parked, slices.Equal) {
				rt.Fatalf("at %d there wait %v; want %v", checkpoint, got, parked)
			}
		}
		replay := fresh()
		for range rapid.IntRange(1, 5).Draw(rt, "steps") {
			someParkingEvents(rt, t, b, tenant)
			if rapid.IntRange(0, 4).Draw(rt, "skip") == 0 {
				// Somebody told it beforehand to pass some event over that comes later.
				position := int64(len(b.log(t, tenant))) + 1
				someParkingEvents(rt, t, b, tenant)
				_, err := b.store.PutSkipped(t.Context(), domain.SkippedEvent{ProjectionID: build.ProjectionID, Tenant: tenant, Version: 1, Position: position})
				if err != nil {
					rt.Fatal(err)
				}
				skipped[position] = true
				replay = fresh()
			}
			if rapid.Bool().Draw(rt, "a new worker") {
				replay = fresh()
			}
			if rapid.Bool().Draw(rt, "a rival was faster") {
				driver.rule(nil)
				if err := fresh().Run(t.Context(), b.store, rapid.Int64Range(0, int64(len(b.log(t, tenant)))).Draw(rt, "rival to")); err != nil {
					rt.Fatal(err)
				}
			}
			calls, last := 0, rapid.IntRange(1, 20).Draw(rt, "calls that work")
			how := rapid.SampledFrom([]verdict{failsBefore, failsAfter}).Draw(rt, "then")
			driver.rule(func(string) verdict {
				if calls++; calls > last {
					return how
				}
				return works
			})
			if err := replay.Run(t.Context(), b.store, int64(len(b.log(t, tenant)))); err != nil && !injected(err) {
				rt.Fatal(err)
			}
			check()
		}
		driver.rule(nil)
		if err := replay.Run(t.Context(), b.store, int64(len(b.log(t, tenant)))); err != nil {
			rt.Fatal(err)
		}
		check()
	})
}

// The database refuses one of the documents of an event. That document is parked, and the event takes effect on the
// others; without park, it takes effect on none. If the database does not say which document it is, larger ones are
// parked first, and a replay brings them back.
func TestOneDocumentOfAnEventIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, unnamed := range []bool{false, true} {
		definition := domain.Definition{
			Name: "refused", Key: "event.data.ids", OnError: domain.OnErrorPark,
			On: map[string]string{"Add": "{'n': doc.?n.orValue(0) + 1, 'id': key, 'pad': key == 'b' ? 'long' : ''}"},
		}
		driver := &refusing{Driver: b.driver, document: `{"id":"a","n":3,"pad":""}`, unnamed: unnamed}
		p := b.process(options{driver: driver})
		tenant := b.tenant(t)
		for _, ids := range []string{`"a", "b", "c"`, `"c", "a"`, `"c", "a", "b"`, `"b", "a"`} {
			b.append(t, tenant, "x-1", "Add", `{"ids": [`+ids+`]}`)
		}
		created, err := p.catalog.Create(t.Context(), tenant, definition, "")
		if err != nil {
			t.Fatal(err)
		}
		fold, err := folding.Compile(definition)
		if err != nil {
			t.Fatal(err)
		}
		replay := &projection.Replay{Driver: driver, Build: created.LiveBuild(), Tenant: tenant, Fold: fold, Version: 1, Registry: b.store.Registry, Limits: projection.CatchUpLimits}
		for to := range int64(4) { // one by one, so that each state is saved
			if err := replay.Run(t.Context(), b.store, to+1); err != nil {
				t.Fatal(err)
			}
		}
		log := b.log(t, tenant)
		all := fromScratch(t, definition, log)
		all["a"] = fromScratch(t, definition, log[:2])["a"]
		waiting := waitingEvents{"a": {3, 4}}
		if unnamed {
			all["b"] = fromScratch(t, definition, log[:1])["b"]
			waiting["b"] = []int64{3, 4}
		}
		mustEqual(t, stored(t, t, b, replay.Build, tenant), all)
		if got := parkedNow(t, t, b, tenant, replay.Build, 4); !maps.EqualFunc(got, waiting, slices.Equal) {
			t.Errorf("unnamed %t: there wait %v", unnamed, got)
		}
		if sum, err := p.catalog.ReplayAllParked(t.Context(), tenant, "refused"); err != nil || sum.StillParked != 0 {
			t.Errorf("unnamed %t: replayed %+v, %v", unnamed, sum, err) // the fourth state of a is not refused
		}
		mustEqual(t, stored(t, t, b, replay.Build, tenant), fromScratch(t, definition, log))

		definition.OnError = domain.OnErrorStop
		if fold, err = folding.Compile(definition); err != nil {
			t.Fatal(err)
		}
		build := replay.Build
		build.Number += 1000
		replay = &projection.Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Limits: projection.Limits{Events: 1, Bytes: 1 << 20, DocumentBytes: 1}}
		err = replay.Run(t.Context(), b.store, 3)
		fault, ok := errors.AsType[*folding.EventError](err)
		want := "a"
		if unnamed {
			want = "b"
		}
		if !ok || fault.Event.Position != 3 || fault.DocumentID != want {
			t.Fatalf("unnamed %t: the fault is %v", unnamed, err)
		}
		mustEqual(t, stored(t, t, b, build, tenant), fromScratch(t, definition, log[:2]))
	}
}
