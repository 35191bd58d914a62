package projection_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

const enough = 3

type tally struct {
	Sum    int64 `json:"sum"`
	Events int64 `json:"events"`
}

// addingUp adds up by data.k and data.also so that the order of events shows, removes a document at Remove after enough
// events, and while it is broken cannot fold a data.n that is a text into the document data.k: it fails after it has
// changed the document.
func addingUp(broken *atomic.Bool) folding.Handler {
	type data struct {
		K    string
		Also []string
		N    any
	}
	read := func(event domain.Event) (d data, err error) {
		return d, json.Unmarshal(event.Data, &d)
	}
	return folding.HandlerOf(folding.Rule[tally]{
		Keys: func(event domain.Event) ([]string, error) {
			d, err := read(event)
			if event.Position%2 == 0 {
				return append(d.Also, d.K), err
			}
			return append([]string{d.K}, d.Also...), err
		},
		FoldInto: func(doc *tally, id string, event domain.Event) (bool, error) {
			d, err := read(event)
			doc.Sum = doc.Sum * 3 % 1000003
			doc.Events++
			switch n := d.N.(type) {
			case float64:
				doc.Sum += int64(n)
			default:
				if broken.Load() && id == d.K {
					return false, fmt.Errorf("%q is no number", n)
				}
			}
			return event.Type != "Remove" || doc.Events < enough, err
		},
	})
}

// addedUp returns the documents that addingUp makes of events when it is not broken. skipped are the documents that
// skip an event, by its position; none: all of them.
func addedUp(t rapid.TB, events []domain.Event, skipped map[int64][]string) map[string]domain.Document {
	t.Helper()
	all := make(map[string]domain.Document)
	for _, event := range events {
		var data struct {
			K    string
			Also []string
			N    any
		}
		if err := json.Unmarshal(event.Data, &data); err != nil {
			t.Fatal(err)
		}
		for _, id := range append(data.Also, data.K) {
			if by, ok := skipped[event.Position]; ok && (len(by) == 0 || slices.Contains(by, id)) {
				continue
			}
			var doc tally
			if was, ok := all[id]; ok {
				if err := json.Unmarshal(was.Data, &doc); err != nil {
					t.Fatal(err)
				}
			}
			doc.Sum = doc.Sum * 3 % 1000003
			doc.Events++
			if n, ok := data.N.(float64); ok {
				doc.Sum += int64(n)
			}
			if event.Type == "Remove" && doc.Events >= enough {
				delete(all, id)
				continue
			}
			text, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			all[id] = domain.Document{ID: id, Version: event.Position, Data: text}
		}
	}
	return all
}

const (
	lockParked = "select coalesce(d.removed_at, 0) from parked_documents d"
	unpark     = "and (e.position = any($6)"
)

// Documents are parked, replayed, discarded and parked again, while a worker follows the log and both are interrupted
// anywhere. In the end, when everything works and all is replayed, every event has taken effect exactly once and in
// order, except the discarded ones.
func TestParkedDocumentsAreReplayed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var broken atomic.Bool
	handlers := map[string]folding.Handler{"tally": addingUp(&broken)}
	driver := &faulty{Driver: b.driver}
	through, network := b.throughNetwork(t)
	failCommits(network, unpark, func() verdict { return driver.ask("unpark") })
	// What happens once, if anything, when all that waits for a held document has been read and its lock is lost. The
	// replay notices the loss only after it has saved.
	var meanwhile atomic.Pointer[func()]
	var locked atomic.Bool
	super := b.db.Pool(t, pgtest.RoleSuperuser, 1)
	network.After(lockParked, func(int) bool { locked.Store(true); return true })
	for _, end := range []string{"commit", "rollback"} {
		network.Before(end, func() bool { locked.Store(false); return true })
	}
	network.After("from parked_events p\n\t\tjoin events e", func(rows int) bool {
		if rows > 0 || !locked.Load() {
			return true
		}
		if do := meanwhile.Swap(nil); do != nil {
			var ended int
			err := super.QueryRow(t.Context(), `select count(*) filter (where pg_terminate_backend(pid, 60000)) from pg_stat_activity
				where datname = current_database() and state = 'idle in transaction' and query like '%from parked_events p%'`).Scan(&ended)
			if err != nil || ended != 1 {
				t.Errorf("%d locks are lost: %v", ended, err)
			}
			(*do)()
		}
		return true
	})
	catalog := projection.NewCatalog(projection.CatalogConfig{
		Store: storeOf(through), Drivers: map[string]drivers.Driver{"default": driver},
		Handlers: handlers, Progress: projection.NewProgress(), Log: quiet,
	})
	other := b.process(options{handlers: handlers}).catalog
	p, err := catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "tally", Handler: "tally", OnError: domain.OnErrorPark}, "test")
	if err != nil {
		t.Fatal(err)
	}
	fold, err := folding.CompileWith(p.Definition, handlers)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		tenant := b.tenant(t)
		fresh := func() *projection.Replay {
			return &projection.Replay{Driver: driver, Build: p.LiveBuild(), Tenant: tenant, Fold: fold, Version: p.Version, Registry: b.store.Registry,
				Limits: projection.Limits{Events: rapid.IntRange(1, 9).Draw(rt, "limit"), Bytes: 1 << 20, DocumentBytes: 1 << 20}}
		}
		worker := fresh()
		meanwhile.Store(nil)
		cutOff := func() {
			calls, last := 0, rapid.IntRange(1, 30).Draw(rt, "calls that work")
			how := rapid.SampledFrom([]verdict{failsBefore, failsAfter}).Draw(rt, "then")
			driver.rule(func(string) verdict {
				if calls++; calls > last {
					return how
				}
				return works
			})
		}
		head := func() int64 { return int64(len(b.log(t, tenant))) }
		for range rapid.IntRange(2, 10).Draw(rt, "steps") {
			broken.Store(rapid.Bool().Draw(rt, "broken"))
			driver.rule(nil)
			var err error
			switch rapid.SampledFrom([]string{"append", "append", "follow", "follow", "replay", "replay held", "replay held", "replay one", "discard"}).Draw(rt, "step") {
			case "append":
				for i := range rapid.IntRange(1, 20).Draw(rt, "events") {
					eventType := rapid.SampledFrom([]string{"Add", "Add", "Add", "Remove"}).Draw(rt, fmt.Sprint("type ", i))
					k := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, fmt.Sprint("k ", i))
					n := rapid.SampledFrom([]string{"1", "2", "3", "4", `"many"`}).Draw(rt, fmt.Sprint("n ", i))
					also := rapid.SampledFrom([]string{"", "", `"d"`, `"e", "d"`, `"d", "f", "e"`}).Draw(rt, fmt.Sprint("also ", i))
					b.append(t, tenant, "x-1", eventType, fmt.Sprintf(`{"k": %q, "n": %s, "also": [%s]}`, k, n, also))
				}
			case "follow":
				if rapid.Bool().Draw(rt, "a new worker") {
					worker = fresh()
				}
				cutOff()
				err = worker.Run(t.Context(), b.store, rapid.Int64Range(0, head()).Draw(rt, "to"))
			case "replay held":
				// The first save comes too late, so that documents are held from then on; and maybe the lock is lost,
				// while others get ahead.
				cutOff()
				saves, then := 0, driver.verdict
				driver.rule(func(call string) verdict {
					if call == "save" {
						if saves++; saves == 1 {
							return overtaken
						}
					}
					return then(call)
				})
				if rapid.Bool().Draw(rt, "the lock is lost") {
					rival := fresh()
					rival.Driver = b.driver
					again := []bool{rapid.Bool().Draw(rt, "it is replayed meanwhile"), rapid.Bool().Draw(rt, "and once more")}
					meanwhile.Store(new(func() {
						b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 5}`)
						for _, replayed := range again {
							if err := rival.Run(t.Context(), b.store, head()); err != nil {
								t.Error(err)
							}
							if replayed {
								if _, err := other.ReplayAllParked(t.Context(), tenant, "tally"); err != nil {
									t.Error(err)
								}
							}
						}
					}))
				}
				_, err = catalog.ReplayAllParked(t.Context(), tenant, "tally")
				meanwhile.Store(nil)
			case "replay":
				cutOff()
				_, err = catalog.ReplayAllParked(t.Context(), tenant, "tally")
			case "replay one":
				cutOff()
				_, err = catalog.ReplayParked(t.Context(), tenant, "tally", "a")
			case "discard":
				err = catalog.DiscardParked(t.Context(), tenant, "tally", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "document"), "test")
			}
			if err != nil && !injected(err) && !domain.IsCode(err, domain.CodeNotFound) {
				rt.Fatal(err)
			}
		}
		broken.Store(false)
		driver.rule(nil)
		if err := worker.Run(t.Context(), b.store, head()); err != nil {
			rt.Fatal(err)
		}
		sum, err := catalog.ReplayAllParked(t.Context(), tenant, "tally")
		if err != nil || sum.StillParked != 0 {
			rt.Fatalf("replayed %+v, %v", sum, err)
		}
		if err := worker.Run(t.Context(), b.store, head()); err != nil {
			rt.Fatal(err)
		}
		if left, err := catalog.Parked(t.Context(), tenant, "tally", "", 10); err != nil || len(left) != 0 {
			rt.Fatalf("still parked: %+v, %v", left, err)
		}
		events, err := catalog.Skipped(t.Context(), tenant, "tally")
		if err != nil {
			rt.Fatal(err)
		}
		skipped := make(map[int64][]string)
		for _, event := range events {
			skipped[event.Position] = event.Documents
		}
		mustEqual(rt, stored(rt, t, b, p.LiveBuild(), tenant), addedUp(rt, b.log(t, tenant), skipped))
	})
}

// A replay removes a document, and dies before it removes the waiting events. The next replay does not fold them again,
// although the document whose version would show that no longer exists.
func TestInterruptedReplayThatRemovesADocument(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var broken atomic.Bool
	handlers := map[string]folding.Handler{"tally": addingUp(&broken)}
	driver := &faulty{Driver: b.driver}
	through, network := b.throughNetwork(t)
	failCommits(network, unpark, func() verdict { return driver.ask("unpark") })
	catalog := projection.NewCatalog(projection.CatalogConfig{
		Store: storeOf(through), Drivers: map[string]drivers.Driver{"default": driver},
		Handlers: handlers, Progress: projection.NewProgress(), Log: quiet,
	})
	p, err := catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "tally", Handler: "tally", OnError: domain.OnErrorPark}, "test")
	if err != nil {
		t.Fatal(err)
	}
	fold, err := folding.CompileWith(p.Definition, handlers)
	if err != nil {
		t.Fatal(err)
	}
	// fails has unpark fail, or not, and with late the first save of a replay come too late, so that the next go would
	// hold the document: a removal is not for that.
	fails := func(unpark verdict, late bool) {
		driver.rule(func(call string) verdict {
			switch {
			case call == "unpark":
				return unpark
			case call == "save" && late:
				late = false
				return overtaken
			}
			return works
		})
	}
	for _, late := range []bool{false, true} {
		for _, then := range []string{"Add", "Remove"} {
			tenant := b.tenant(t)
			worker := &projection.Replay{Driver: b.driver, Build: p.LiveBuild(), Tenant: tenant, Fold: fold, Version: p.Version, Registry: b.store.Registry, Limits: projection.CatchUpLimits}
			add := func(eventType, n string) {
				last := b.append(t, tenant, "x-1", eventType, fmt.Sprintf(`{"k": "a", "n": %s}`, n))
				if err := worker.Run(t.Context(), b.store, last); err != nil {
					t.Fatal(err)
				}
			}
			broken.Store(true)
			add("Add", "1")
			add("Add", "1")
			add("Add", `"many"`)
			add("Remove", "1")
			broken.Store(false)
			fails(failsBefore, late)
			if _, err := catalog.ReplayAllParked(t.Context(), tenant, "tally"); !injected(err) {
				t.Fatalf("the replay does not die: %v", err)
			}
			if there := documents(t, catalog, tenant, "tally", 0); len(there) != 0 {
				t.Fatalf("it does not remove: %v", there)
			}
			for range enough - 1 {
				add("Add", "7")
			}
			add(then, "7")
			// Where nothing comes of these, it dies once more.
			for _, unpark := range []verdict{failsBefore, works} {
				fails(unpark, late)
				if sum, err := catalog.ReplayAllParked(t.Context(), tenant, "tally"); (err != nil || sum.StillParked != 0) && unpark == works {
					t.Fatalf("replayed %+v, %v", sum, err)
				}
			}
			mustEqual(t, documents(t, catalog, tenant, "tally", 0), addedUp(t, b.log(t, tenant), nil))
			if left, err := catalog.Parked(t.Context(), tenant, "tally", "", 10); err != nil || len(left) != 0 {
				t.Fatalf("still parked: %+v, %v", left, err)
			}
		}
	}
}

// A runner parks a document, and a replay unparks it while events keep arriving: all events take effect. A document
// that still cannot be folded stays parked with its current fault, and the events before the fault are folded.
func TestParkedReplayDuringFollowing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	var broken atomic.Bool
	broken.Store(true)
	p := b.process(options{handlers: map[string]folding.Handler{"tally": addingUp(&broken)}})
	p.start(t, b)
	made, err := p.catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "tally", Handler: "tally", OnError: domain.OnErrorPark}, "test")
	if err != nil {
		t.Fatal(err)
	}
	b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	bad := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": "many"}`)
	b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 2}`)
	last := b.append(t, tenant, "x-1", "Add", `{"k": "b", "n": 3}`)
	got := documents(t, p.catalog, tenant, "tally", last)
	mustEqual(t, got, map[string]domain.Document{
		"a": {ID: "a", Version: 1, Data: json.RawMessage(`{"sum": 1, "events": 1}`)},
		"b": {ID: "b", Version: 4, Data: json.RawMessage(`{"sum": 3, "events": 1}`)},
	})
	if status, err := p.catalog.Status(t.Context(), tenant, "tally"); err != nil || status.State != projection.StateCaughtUp {
		t.Errorf("the status is %+v, %v", status, err)
	}
	parked, err := p.catalog.Parked(t.Context(), tenant, "tally", "", 10)
	if err != nil || len(parked) != 1 || parked[0].ID != "a" || parked[0].Position != bad || parked[0].Events != 2 ||
		parked[0].Where != "handler tally" || parked[0].Message != `"many" is no number` || canonical(t, parked[0].Before) != `{"events":1,"sum":1}` {
		t.Fatalf("parked are %+v, %v", parked, err)
	}
	if sum, err := p.catalog.ReplayParked(t.Context(), tenant, "tally", "a"); err != nil || sum != (projection.Replayed{StillParked: 1}) {
		t.Errorf("replayed while it is broken: %+v, %v", sum, err)
	}
	if _, err := p.catalog.ReplayParked(t.Context(), tenant, "tally", "b"); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("replayed what is not parked: %v", err)
	}
	stop := make(chan struct{})
	var appending sync.WaitGroup
	for _, k := range []string{"a", "a", "a", "c"} {
		appending.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					b.append(t, tenant, "x-"+k, "Add", fmt.Sprintf(`{"k": %q, "n": 4}`, k))
				}
			}
		})
	}
	broken.Store(false)
	for deadline := time.Now().Add(time.Minute); ; {
		sum, err := p.catalog.ReplayAllParked(t.Context(), tenant, "tally")
		if err != nil {
			t.Fatal(err)
		}
		if sum.StillParked == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it stays parked while events keep arriving")
		}
	}
	close(stop)
	appending.Wait()
	log := b.log(t, tenant)
	if _, err := p.catalog.ReplayAllParked(t.Context(), tenant, "tally"); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, documents(t, p.catalog, tenant, "tally", int64(len(log))), addedUp(t, log, nil))
	if parked, err := b.store.ParkedIDs(t.Context(), made.ProjectionID, made.Build); err != nil || len(parked) != 0 {
		t.Errorf("still parked: %v, %v", parked, err)
	}
}

// A replay that has locked a document waits for a worker that has made events wait, and is about to save the checkpoint
// after them.
func TestLockedReplayWaitsForTheWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	var broken atomic.Bool
	broken.Store(true)
	handlers := map[string]folding.Handler{"tally": addingUp(&broken)}
	driver := &faulty{Driver: b.driver}
	var held atomic.Bool
	looked, goOn := 0, make(chan struct{})
	save := sync.OnceFunc(func() { close(goOn) })
	defer save()
	driver.rule(func(call string) verdict {
		if call == "checkpoint" && held.Load() {
			if looked++; looked == 2 {
				save()
			}
		}
		return works
	})
	through, network := b.throughNetwork(t)
	network.After(lockParked, func(int) bool { held.Store(true); return true })
	catalog := projection.NewCatalog(projection.CatalogConfig{
		Store:   storeOf(through),
		Drivers: map[string]drivers.Driver{"default": driver}, Handlers: handlers, Progress: projection.NewProgress(), Log: quiet,
	})
	p, err := catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "tally", Handler: "tally", OnError: domain.OnErrorPark}, "test")
	if err != nil {
		t.Fatal(err)
	}
	fold, err := folding.CompileWith(p.Definition, handlers)
	if err != nil {
		t.Fatal(err)
	}
	slow := &faulty{Driver: b.driver}
	worker := &projection.Replay{Driver: slow, Build: p.LiveBuild(), Tenant: tenant, Fold: fold, Version: p.Version, Registry: b.store.Registry, Limits: projection.CatchUpLimits}
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": "many"}`)
	if err := worker.Run(t.Context(), b.store, last); err != nil {
		t.Fatal(err)
	}
	broken.Store(false)
	last = b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 2}`)
	saves := make(chan struct{})
	slow.check = func(drivers.Batch) {
		close(saves)
		<-goOn
	}
	followed := make(chan error, 1)
	go func() { followed <- worker.Run(t.Context(), b.store, last) }()
	<-saves // so the event waits, beyond the checkpoint
	if sum, err := catalog.ReplayAllParked(t.Context(), tenant, "tally"); err != nil || sum != (projection.Replayed{Documents: 1, Events: 2}) || looked < 2 {
		t.Fatalf("replayed %+v, %v; it has looked %d times", sum, err, looked)
	}
	if err := <-followed; err != nil {
		t.Fatal(err)
	}
	mustEqual(t, documents(t, catalog, tenant, "tally", last), addedUp(t, b.log(t, tenant), nil))
}

// Connections break and locks are lost while a runner parks, events keep arriving, and two processes replay. Every
// event still takes effect once and in order.
func TestReplayThatLosesItsLock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	super := b.db.Pool(t, pgtest.RoleSuperuser, 1)
	var broken atomic.Bool
	handlers := map[string]folding.Handler{"tally": addingUp(&broken)}
	p := b.process(options{handlers: handlers})
	p.start(t, b)
	catalogs := []*projection.Catalog{p.catalog, b.process(options{handlers: handlers}).catalog}
	made, err := p.catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "tally", Handler: "tally", OnError: domain.OnErrorPark}, "test")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	keepOn := func(do func(i int)) {
		others.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					do(i)
				}
			}
		})
	}
	keepOn(func(i int) {
		eventType := "Add"
		if i%7 == 6 {
			eventType = "Remove"
		}
		b.append(t, tenant, "x-1", eventType, `{"k": "a", "n": 4}`)
		b.append(t, tenant, "x-1", "Add", `{"k": "b", "n": 4}`)
	})
	var lost atomic.Int64
	keepOn(func(int) {
		var n int64
		err := super.QueryRow(t.Context(), `
			select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
			where datname = current_database() and state = 'idle in transaction' and query like '%from parked_events p%' and random() < 0.3`).Scan(&n)
		if err != nil {
			t.Error(err)
		}
		lost.Add(n)
	})
	for range 5 {
		broken.Store(true)
		parked := false
		for bad := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": "many"}`); !parked; {
			documents(t, p.catalog, tenant, "tally", bad)
			found, err := p.catalog.Parked(t.Context(), tenant, "tally", "", 10)
			if err != nil {
				t.Fatal(err)
			}
			parked = len(found) > 0
		}
		broken.Store(false)
		var replays sync.WaitGroup
		for _, catalog := range catalogs {
			replays.Go(func() {
				for deadline := time.Now().Add(time.Minute); ; {
					sum, err := catalog.ReplayAllParked(t.Context(), tenant, "tally")
					if err == nil && sum.StillParked == 0 {
						return
					}
					if err != nil && !domain.IsCode(err, domain.CodeUnavailable) {
						t.Error(err)
						return
					}
					if time.Now().After(deadline) {
						t.Error("it stays parked")
						return
					}
				}
			})
		}
		replays.Wait()
	}
	close(stop)
	others.Wait()
	if _, err := p.catalog.ReplayAllParked(t.Context(), tenant, "tally"); err != nil {
		t.Fatal(err)
	}
	log := b.log(t, tenant)
	mustEqual(t, documents(t, p.catalog, tenant, "tally", int64(len(log))), addedUp(t, log, nil))
	if parked, err := b.store.ParkedIDs(t.Context(), made.ProjectionID, made.Build); err != nil || len(parked) != 0 {
		t.Errorf("still parked: %v, %v", parked, err)
	}
	t.Logf("%d locks were lost, of %d events", lost.Load(), len(log))
}
