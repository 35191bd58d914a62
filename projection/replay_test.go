package projection_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

var (
	someKeys = []string{
		"event.stream",
		"event.data.k",
		"event.data.k == null ? null : event.key + '/' + event.data.k",
		"event.type == 'A' ? null : 'one for all'",
		"[event.stream, event.data.k, 'all']",
		"event.data.n % 2 == 0 ? ['l', event.data.k, {'id': 'r', 'item': event.data.n}] : [{'id': 'r', 'item': {'n': 1}}, {'id': 'l'}]",
		"event.data.k == null ? [] : lists.range(event.data.n).map(i, {'id': 'd' + string((i + event.version) % 9), 'item': i})",
	}
	someFolds = []string{
		"doc",
		"null",
		"merge(doc, {'n': doc.?n.orValue(0) + event.data.n, 'at': event.position})",
		"{'list': (doc.?list.orValue([]) + [event.version]), 'n': event.data.n}",
		"event.data.n > 5 ? null : merge(doc, {event.type: event.data.n})",
		"key == 'all' && event.data.n > 5 ? null : merge(doc, {'key': key, 'items': doc.?items.orValue([]) + [item]})",
	}
	someTypes = []string{"A", "B", "C", "D"}
)

// someDefinition draws a definition whose folds never fail.
func someDefinition(t *rapid.T) domain.Definition {
	on := make(map[string]string)
	for _, eventType := range append([]string{"*"}, someTypes...) {
		if rapid.Bool().Draw(t, "folds "+eventType) {
			on[eventType] = rapid.SampledFrom(someFolds).Draw(t, eventType)
		}
	}
	if len(on) == 0 {
		on["A"] = someFolds[2]
	}
	d := domain.Definition{Name: "p", Key: rapid.SampledFrom(someKeys).Draw(t, "key"), On: on}
	d.Source.Categories = rapid.SampledFrom([][]string{nil, {"x"}, {"x!", "x"}}).Draw(t, "categories")
	d.Source.Query.Items = rapid.SampledFrom([]domain.Query{nil, nil, {{Tags: []string{"t:1"}}}, {{Types: []string{"A", "B"}, Tags: []string{"t:2"}}, {Types: []string{"C"}}}}).Draw(t, "query")
	return folding.WithDefaults(d)
}

// someEvents appends drawn events to a tenant's log.
func someEvents(t *rapid.T, tb testing.TB, b bench, tenant domain.TenantID) {
	for i := range rapid.IntRange(1, 25).Draw(t, "events") {
		stream := rapid.SampledFrom([]string{"x", "x-1", "x-2", "x-3", "x!-1", "y-1"}).Draw(t, fmt.Sprint("stream ", i))
		eventType := rapid.SampledFrom(someTypes).Draw(t, fmt.Sprint("type ", i))
		k := rapid.SampledFrom([]string{`"a"`, `"b"`, "null"}).Draw(t, fmt.Sprint("k ", i))
		b.append(tb, tenant, stream, eventType, fmt.Sprintf(`{"k": %s, "n": %d}`, k, rapid.IntRange(0, 7).Draw(t, fmt.Sprint("n ", i))),
			rapid.SampledFrom([][]string{nil, {"t:1"}, {strings.Repeat("t", 90), "t:1", "t:2"}}).Draw(t, fmt.Sprint("tags ", i))...)
	}
}

// However often a replay is interrupted, the documents and the checkpoint are at any moment those of a fold from
// scratch up to the checkpoint. If nobody reads the build, some documents may be ahead of the checkpoint: each is as it
// was at its version. A worker that continues a fill may know an older state of it.
func TestReplayEqualsFoldFromScratch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pacing := alwaysAppending(time.Microsecond)
	rapid.Check(t, func(rt *rapid.T) {
		tenant := b.tenant(t)
		definition := someDefinition(rt)
		fold, err := folding.Compile(definition)
		if err != nil {
			rt.Fatal(err)
		}
		build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: definition.Name}, Number: 1, Database: "default"}
		driver := &faulty{Driver: b.driver}
		all := new(counts)
		unread, fills := rapid.Bool().Draw(rt, "unread"), []domain.Fill{{}} // from the last that was stored at once
		fresh := func() *projection.Replay {
			return all.of(&projection.Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Unread: unread,
				Pacing: rapid.SampledFrom([]*projection.Pacing{nil, pacing}).Draw(rt, "pacing"),
				Fill:   rapid.SampledFrom(fills).Draw(rt, "fill"), Filled: func(_ context.Context, fill domain.Fill) error {
					switch {
					case fill.Document != "" && !fills[0].Abandoned:
						fills = append(fills, fill)
					case fill.Document == "" && fills[0].To != 0 && fills[0] != fill && !fill.Abandoned:
						return errInjected // the build belongs to another worker
					case fill.Document == "":
						fills = []domain.Fill{fill}
					}
					return nil
				}, Limits: projection.Limits{
					Events: rapid.IntRange(1, 9).Draw(rt, "limit"), Bytes: rapid.SampledFrom([]int{200, 1 << 20}).Draw(rt, "bytes"),
					// From one document a save, over a few, which then drop out of memory as well, to all of them.
					DocumentBytes: rapid.SampledFrom([]int{1, 1000, 2500, 1 << 20}).Draw(rt, "document bytes"),
				}})
		}
		replay, reached := fresh(), int64(0)
		check := func() {
			checkpoint, err := b.driver.Checkpoint(t.Context(), build, tenant)
			if err != nil {
				rt.Fatal(err)
			}
			if checkpoint < reached {
				rt.Fatalf("the checkpoint went back from %d to %d", reached, checkpoint)
			}
			reached = checkpoint
			if counted, folded := all.counted.Load(), all.folded.Load(); counted != folded {
				rt.Fatalf("%d events count, and %d have taken effect", counted, folded)
			}
			log, got := b.log(t, tenant), stored(rt, t, b, build, tenant)
			for id, document := range got {
				if want := fromScratch(rt, definition, log[:document.Version])[id]; want.Version != document.Version || canonical(rt, document.Data) != canonical(rt, want.Data) {
					rt.Fatalf("%q is %s at %d, want %s at %d", id, document.Data, document.Version, want.Data, want.Version)
				}
			}
			if !unread {
				mustEqual(rt, got, fromScratch(rt, definition, log[:checkpoint]))
			}
		}
		for range rapid.IntRange(1, 5).Draw(rt, "steps") {
			someEvents(rt, t, b, tenant)
			if rapid.Bool().Draw(rt, "a new worker") {
				replay = fresh()
			}
			if rapid.Bool().Draw(rt, "a rival was faster") {
				driver.verdict = nil
				if err := fresh().Run(t.Context(), b.store, rapid.Int64Range(0, int64(len(b.log(t, tenant)))).Draw(rt, "rival to")); err != nil && !errors.Is(err, errInjected) {
					rt.Fatal(err)
				}
			}
			calls, last := 0, rapid.IntRange(1, 20).Draw(rt, "calls that work")
			how := rapid.SampledFrom([]verdict{failsBefore, failsAfter}).Draw(rt, "then")
			overtaken := rapid.IntRange(0, 6).Draw(rt, "the save that a rival gets ahead of")
			rival, rivalTo := fresh(), rapid.Int64Range(0, int64(len(b.log(t, tenant)))).Draw(rt, "it goes to")
			rival.Driver = b.driver
			driver.verdict = func(call string) verdict {
				if call == "save" {
					if overtaken--; overtaken == 0 {
						if err := rival.Run(t.Context(), b.store, rivalTo); err != nil && !errors.Is(err, errInjected) {
							t.Error(err)
						}
					}
				}
				if calls++; calls > last {
					return how
				}
				return works
			}
			if err := replay.Run(t.Context(), b.store, int64(len(b.log(t, tenant)))); err != nil && !errors.Is(err, errInjected) {
				rt.Fatal(err)
			}
			check()
		}
		driver.verdict = nil
		log := b.log(t, tenant)
		err = replay.Run(t.Context(), b.store, int64(len(log)))
		if errors.Is(err, errInjected) { // another worker has begun a fill
			replay = fresh()
			err = replay.Run(t.Context(), b.store, int64(len(log)))
		}
		if err != nil {
			rt.Fatal(err)
		}
		check()
		if replay.Position() < int64(len(log)) {
			rt.Fatalf("it says that it is at %d of %d", replay.Position(), len(log))
		}
		mustEqual(rt, stored(rt, t, b, build, tenant), fromScratch(rt, definition, log))
	})
}

// stored returns what a build has.
func stored(fail rapid.TB, t testing.TB, b bench, build domain.Build, tenant domain.TenantID) map[string]domain.Document {
	documents, err := b.driver.Query(t.Context(), build, tenant, domain.DocumentQuery{Limit: 1_000_000})
	if err != nil {
		fail.Fatal(err)
	}
	all := make(map[string]domain.Document)
	for _, document := range documents {
		all[document.ID] = document
	}
	return all
}

// After a fault, everything before the event is saved, and the error names the event, whatever the size of batches and
// the number of processors.
func TestReplayStopsBeforeAFault(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	good := `{"k": "a", "n": 1}`
	for i := range 1300 {
		data := good
		if i == 1234 || i == 1240 {
			data = `{"k": "a"}` // has no n
		}
		b.append(t, tenant, fmt.Sprintf("x-%d", i%7), "A", data)
	}
	for name, definition := range map[string]domain.Definition{
		"in a fold": {Name: "p", On: map[string]string{"A": "merge(doc, {'n': doc.?n.orValue(0) + event.data.n})"}},
		"in a key":  {Name: "p", Key: "string(event.data.n)", On: map[string]string{"A": "merge(doc, {'n': doc.?n.orValue(0) + 1})"}},
	} {
		fold, err := folding.Compile(definition)
		if err != nil {
			t.Fatal(err)
		}
		for i, events := range []int{1, 7, 1000, 50_000} {
			build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: int64(10*len(name) + i), Database: "default"}
			replay := &projection.Replay{Driver: b.driver, Build: build, Tenant: tenant, Fold: fold, Limits: projection.Limits{Events: events, Bytes: 1 << 20, DocumentBytes: 1 << 20}}
			err := replay.Run(t.Context(), b.store, 1300)
			fault, ok := errors.AsType[*folding.EventError](err)
			if !ok || fault.Event.Position != 1235 || fault.Event.Type != "A" {
				t.Fatalf("%s, %d events at a time: %v", name, events, err)
			}
			checkpoint, err := b.driver.Checkpoint(t.Context(), build, tenant)
			if err != nil || checkpoint != 1234 {
				t.Errorf("%s, %d events at a time: the checkpoint is %d, %v", name, events, checkpoint, err)
			}
			mustEqual(t, stored(t, t, b, build, tenant), fromScratch(t, definition, b.log(t, tenant)[:1234]))
		}
	}
}

// If the database refuses a document for its size, the fault names the event that made it too large.
func TestReplayReportsTheEventThatMakesADocumentTooLarge(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for i := range 40 {
		b.append(t, tenant, fmt.Sprintf("x-%d", i%3), "A", `{}`)
	}
	definition := domain.Definition{Name: "p", On: map[string]string{"A": "{'n': doc.?n.orValue(0) + 1}"}}
	fold, err := folding.Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: 1, Database: "default"}
	for _, events := range []int{1, 7, 50_000} {
		limits := projection.CatchUpLimits
		limits.Events = events
		build.Number++
		replay := &projection.Replay{Driver: refusing{Driver: b.driver, document: `{"n":9}`}, Build: build, Tenant: tenant, Fold: fold, Limits: limits}
		// x-0 has events 1, 4, 7, ... : its ninth is 25. What is read one by one is saved together, and continues to n
		// = 14 unseen.
		if err = replay.Run(t.Context(), b.store, 40); err != nil {
			t.Fatalf("%d events at a time: documents whose last state is small enough are refused: %v", events, err)
		}
		for _, code := range []domain.Code{domain.CodeTooLarge, domain.CodeInvalidJSON} {
			build.Number++
			replay = &projection.Replay{Driver: refusing{Driver: b.driver, document: `{"n":14}`, code: code}, Build: build, Tenant: tenant, Fold: fold, Limits: limits}
			err = replay.Run(t.Context(), b.store, 40)
			if fault, ok := errors.AsType[*folding.EventError](err); !ok || fault.Event.Position != 40 {
				t.Fatalf("%s, %d events at a time: the fault is %v", code, events, err)
			}
			mustEqual(t, stored(t, t, b, build, tenant), fromScratch(t, definition, b.log(t, tenant)[:39]))
		}
	}
}

// A batch that timed out is saved in smaller parts, down to what the database finishes in time.
func TestReplaySavesSmallerBatchesAfterATimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for i := range 40 {
		b.append(t, tenant, fmt.Sprintf("x-%d", i%3), "A", `{}`)
	}
	definition := domain.Definition{Name: "p", On: map[string]string{"A": "{'n': doc.?n.orValue(0) + 1}"}}
	fold, err := folding.Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: 1, Database: "default"}
	for _, most := range []int64{1, 5} {
		driver := &limited{Driver: b.driver, most: most}
		build.Number++
		replay := &projection.Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Limits: projection.CatchUpLimits}
		if err := replay.Run(t.Context(), b.store, 40); err != nil {
			t.Fatalf("a database that saves %d events in time: %v", most, err)
		}
		if driver.timedOut.Load() == 0 {
			t.Errorf("no save of more than %d events was tried", most)
		}
		mustEqual(t, stored(t, t, b, build, tenant), fromScratch(t, definition, b.log(t, tenant)))
	}
	// One event alone that cannot be saved in time is the database's fault, and not the event's.
	build.Number++
	replay := &projection.Replay{Driver: &limited{Driver: b.driver}, Build: build, Tenant: tenant, Fold: fold, Limits: projection.CatchUpLimits}
	err = replay.Run(t.Context(), b.store, 40)
	if _, fault := errors.AsType[*folding.EventError](err); fault || !errors.Is(err, drivers.ErrTimedOut) {
		t.Errorf("a database that finishes nothing in time gives %v", err)
	}
}

// A runner whose save is refused continues in smaller parts, and stops before the event that is refused alone.
func TestRunnerStopsBeforeADocumentThatIsTooLarge(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for range 30 {
		b.append(t, tenant, "x-1", "A", `{}`)
		b.append(t, tenant, "x-2", "A", `{}`)
	}
	faults := make(chan domain.Fault, 1)
	p := b.process(options{
		driver: refusing{Driver: b.driver, document: `{"n":30}`}, catchUp: projection.Limits{Events: 7, Bytes: 1 << 20, DocumentBytes: 1 << 20},
		observer: projection.Observer{Fault: func(fault domain.Fault) {
			select {
			case faults <- fault:
			default:
			}
		}},
	})
	definition := domain.Definition{Name: "p", On: map[string]string{"A": "{'n': doc.?n.orValue(0) + 1}"}}
	if _, err := p.catalog.Create(t.Context(), tenant, definition, ""); err != nil {
		t.Fatal(err)
	}
	p.start(t, b)
	if fault := <-faults; fault.Position != 59 {
		t.Fatalf("the fault is at %d: %s", fault.Position, fault.Message)
	}
	mustEqual(t, documents(t, p.catalog, tenant, "p", 0), fromScratch(t, definition, b.log(t, tenant)[:58]))
}

// Checkpoints that nothing else requires are saved rarely.
func TestReplaySavesFewCheckpointsForOtherTypes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for range 50 {
		b.append(t, tenant, "x-1", "Other", `{}`)
	}
	fold, err := folding.Compile(domain.Definition{Name: "p", On: map[string]string{"A": "doc"}})
	if err != nil {
		t.Fatal(err)
	}
	saves := 0
	driver := &faulty{Driver: b.driver, check: func(drivers.Batch) { saves++ }}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: 1, Database: "default"}
	replay := &projection.Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Limits: projection.CatchUpLimits}
	for to := range int64(50) {
		if err := replay.Run(t.Context(), b.store, to+1); err != nil {
			t.Fatal(err)
		}
	}
	if saves != 0 || replay.Position() != 50 {
		t.Errorf("%d saves, position %d", saves, replay.Position())
	}
}

// In a database without transactions, a batch may be saved in part: documents without the checkpoint. Saving it again
// completes it, and no event takes effect twice.
func TestReplaySkipsEventsUpToADocumentsVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for i := range 20 {
		b.append(t, tenant, fmt.Sprintf("x-%d", i%4), "A", `{}`)
	}
	fold, err := folding.Compile(domain.Definition{Name: "p", On: map[string]string{"A": "event.key == '3' ? null : {'n': doc.?n.orValue(0) + 1}"}})
	if err != nil {
		t.Fatal(err)
	}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: 1, Database: "default"}
	whole := &projection.Replay{Driver: b.driver, Build: build, Tenant: tenant, Fold: fold, Limits: projection.CatchUpLimits}
	if err := whole.Run(t.Context(), b.store, 20); err != nil {
		t.Fatal(err)
	}
	partial := &withoutCheckpoint{Driver: b.driver, at: 5}
	again := &projection.Replay{Driver: partial, Build: build, Tenant: tenant, Fold: fold, Limits: projection.CatchUpLimits}
	if err := again.Run(t.Context(), b.store, 20); err != nil {
		t.Fatal(err)
	}
	saved := partial.saved
	if len(saved) != 1 || saved[0].From != 5 || saved[0].To != 20 || len(saved[0].Upserts) != 0 || len(saved[0].Deletes) != 1 || saved[0].Deletes[0].Version != 20 {
		t.Errorf("saved once more: %+v", saved)
	}
}

// A save whose answer is lost may have been committed, and then be lost as well when the database crashes, since it
// need not be on disk. Events that the loaded documents contain must not be taken for saved.
func TestASaveMayBeLostAfterItWasRead(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]int64{"alone": 3, "beside another document": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			tenant := b.tenant(t)
			for _, stream := range []string{"x-1", "x-1", "x-1", "x-2"} {
				b.append(t, tenant, stream, "A", `{}`)
			}
			definition, fold, build := countingBuild(t, tenant)
			before := build
			before.Number = 2 // what the database has until it crashes
			for at, of := range map[int64]domain.Build{2: build, 3: before} {
				replay := &projection.Replay{Driver: b.driver, Build: of, Tenant: tenant, Fold: fold, Limits: projection.CatchUpLimits}
				if err := replay.Run(t.Context(), b.store, at); err != nil {
					t.Fatal(err)
				}
			}
			replay := &projection.Replay{Driver: &crashing{Driver: b.driver, before: before}, Build: build, Tenant: tenant, Fold: fold, Limits: projection.CatchUpLimits}
			if err := replay.Run(t.Context(), b.store, to); err != nil {
				t.Fatal(err)
			}
			mustEqual(t, stored(t, t, b, build, tenant), fromScratch(t, definition, b.log(t, tenant)[:to]))
		})
	}
}

// countingBuild returns a projection that counts the events of each stream, and its first build.
func countingBuild(t *testing.T, owner domain.TenantID) (domain.Definition, *folding.Fold, domain.Build) {
	t.Helper()
	definition := folding.WithDefaults(domain.Definition{
		Name: "p", On: map[string]string{"A": "{'n': doc.?n.orValue(0) + 1}"},
	})
	fold, err := folding.Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	id := domain.ProjectionID{Owner: owner, Name: definition.Name}
	return definition, fold, domain.Build{ProjectionID: id, Number: 1, Database: "default"}
}

// crashing is a driver whose database loses its last saves after documents were loaded: they are those of another
// build.
type crashing struct {
	drivers.Driver
	before  domain.Build
	crashed bool
}

func (c *crashing) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	if !c.crashed {
		c.crashed, build.Number = true, c.before.Number
	}
	return c.Driver.Load(ctx, build, tenant, ids)
}

// If a crash loses the documents of a build that catches up, the checkpoint does not pass over their events.
func TestCatchUpToAfterACrash(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for range 3 {
		b.append(t, tenant, "x-1", "A", `{}`)
	}
	definition, fold, build := countingBuild(t, tenant)
	replay := &projection.Replay{Driver: b.driver, Build: build, Tenant: tenant, Fold: fold, Limits: projection.CatchUpLimits}
	if err := replay.Run(t.Context(), b.store, 2); err != nil {
		t.Fatal(err)
	}
	if err := projection.CatchUpTo(t.Context(), b.store, &losing{Driver: b.driver}, build, tenant, fold, 3); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, stored(t, t, b, build, tenant), fromScratch(t, definition, b.log(t, tenant)))
}

// losing is a driver whose database loses its first save just after it has acknowledged it.
type losing struct {
	drivers.Driver
	saves int
}

func (l *losing) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if l.saves++; l.saves == 1 {
		return nil
	}
	return l.Driver.Save(ctx, build, tenant, batch)
}
