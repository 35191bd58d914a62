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

// someParkingEvents appends drawn events, some of which cannot be folded.
func someParkingEvents(t *rapid.T, tb testing.TB, b bench, tenant domain.TenantID) {
	for i := range rapid.IntRange(1, 25).Draw(t, "events") {
		eventType := rapid.SampledFrom([]string{"Add", "Add", "Add", "Remove", "Other"}).Draw(t, fmt.Sprint("type ", i))
		k := rapid.SampledFrom([]string{`"a"`, `"b"`, `"c"`, `"d"`, `"e"`, "null", "7"}).Draw(t, fmt.Sprint("k ", i))
		n := rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6", "7", `"many"`}).Draw(t, fmt.Sprint("n ", i))
		b.append(tb, tenant, rapid.SampledFrom([]string{"x-1", "x-2"}).Draw(t, fmt.Sprint("stream ", i)), eventType, fmt.Sprintf(`{"k": %s, "n": %s}`, k, n))
	}
}

// waitingEvents are the positions of waiting events, by the id that is parked.
type waitingEvents map[string][]int64

// parkedFromScratch folds events one by one, parks what cannot be folded, and omits skipped events. It uses only
// expressions of the package, through fromScratch for each document.
func parkedFromScratch(t rapid.TB, definition domain.Definition, events []domain.Event, skipped map[int64]bool) (map[string]domain.Document, waitingEvents) {
	t.Helper()
	parked := make(waitingEvents)
	chains := make(map[string][]domain.Event)
	for _, event := range events {
		if event.Type == "Other" || skipped[event.Position] {
			continue
		}
		data := canonical(t, event.Data)
		switch k := data[len(`{"k":`)]; k {
		case 'n':
			continue
		case '7':
			id := " " + event.ID.String()
			parked[id] = append(parked[id], event.Position)
		default:
			id := "doc " + data[len(`{"k":"`):len(`{"k":"a`)]
			switch {
			case parked[id] != nil:
				parked[id] = append(parked[id], event.Position)
			case event.Type == "Add" && data[len(data)-2] == '"':
				parked[id] = []int64{event.Position}
			default:
				chains[id] = append(chains[id], event)
			}
		}
	}
	documents := make(map[string]domain.Document)
	for id, chain := range chains {
		if definition.Map != nil {
			for _, event := range chain {
				if event.Type == "Add" {
					data := canonical(t, event.Data)
					documents[id] = domain.Document{ID: id, Version: event.Position, Data: fmt.Appendf(nil, `{"sum": %c}`, data[len(data)-2])}
				}
			}
			continue
		}
		maps.Copy(documents, fromScratch(t, definition, chain))
	}
	return documents, parked
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
		definition := rapid.SampledFrom([]domain.Definition{parking, mapParking}).Draw(rt, "definition")
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
