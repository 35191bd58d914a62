package projection_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/upcasting"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bench is the test's own database, with a store and a driver, as one process has them.
type bench struct {
	db     pgtest.DB
	store  *tables.Tables
	driver *postgres.Driver
}

func newBench(t testing.TB) bench {
	t.Helper()
	db := pgtest.Database(t)
	s := openTables(t, db.URL)
	d, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 8, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return bench{db, s, d}
}

func openTables(t testing.TB, url func(migrations.Role) string) *tables.Tables {
	t.Helper()
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: url(migrations.RoleApp), SystemURL: url(migrations.RoleSystem), RetentionURL: url(migrations.RoleRetention), MaxConns: 8, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// throughNetwork opens the same database for another process, behind a network.
func (b bench) throughNetwork(t testing.TB) (*tables.Tables, *pgtest.Network) {
	t.Helper()
	network := pgtest.NewNetwork(t, b.db)
	return openTables(t, func(role migrations.Role) string { return network.URL(t, b.db, role) }), network
}

// storeOf returns the tables that projections use.
func storeOf(s *tables.Tables) projection.Store {
	return projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}
}

var quiet = slog.New(slog.DiscardHandler)

func (b bench) tenant(t testing.TB) domain.TenantID {
	t.Helper()
	id := domain.NewTenantID()
	if err := b.store.CreateTenant(t.Context(), domain.Tenant{ID: id, Name: id.String()}); err != nil {
		t.Fatal(err)
	}
	return id
}

// process is what one process runs.
type process struct {
	catalog  *projection.Catalog
	runner   *projection.Runner
	progress *projection.Progress
}

// options change how a process is set up.
type options struct {
	driver   drivers.Driver // in the place of the bench's
	handlers map[string]folding.Handler
	observer projection.Observer
	catchUp  projection.Limits
	folds    int
	workers  int
	retries  domain.RetrySchedule

	upcasters *upcasting.Upcasters
	pacing    *projection.Pacing
	nodes     func(tenant domain.TenantID, database string) [2]int32
}

func (b bench) process(o options) process {
	if o.driver == nil {
		o.driver = b.driver
	}
	byName := map[string]drivers.Driver{"default": o.driver}
	p := process{progress: projection.NewProgress()}
	p.catalog = projection.NewCatalog(projection.CatalogConfig{
		Store: storeOf(b.store), Drivers: byName, Handlers: o.handlers, Progress: p.progress, Log: quiet,
	})
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Store: storeOf(b.store), Drivers: byName, Handlers: o.handlers, Progress: p.progress, Observer: o.observer, CatchUp: o.catchUp, Folds: o.folds,
		Poll: 100 * time.Millisecond, Log: quiet, Upcasters: o.upcasters, Workers: o.workers, Pacing: o.pacing, Retries: o.retries, Nodes: o.nodes,
	})
	return p
}

// start runs the process's runner, woken by the store, until the test ends or stop is called.
func (p process) start(t testing.TB, b bench) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 4)
	run := func(do func() error) {
		go func() {
			defer func() { done <- struct{}{} }()
			if err := do(); err != nil {
				t.Error(err)
			}
		}()
	}
	run(func() error { return p.runner.Run(ctx) })
	run(func() error { return b.store.Listen(ctx, p.runner.Wake) })
	run(func() error { return b.store.ListenProjections(ctx, p.runner.Refresh) })
	run(func() error { return b.store.ListenRetries(ctx, p.runner.Retry) })
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		for range cap(done) {
			<-done
		}
	}
	t.Cleanup(stop)
	return stop
}

// append appends one event and returns its position.
func (b bench) append(t testing.TB, tenant domain.TenantID, stream, eventType, data string, tags ...string) int64 {
	t.Helper()
	appended, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
		Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{{Type: eventType, Data: json.RawMessage(data), Tags: tags}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return appended.Position
}

// log returns all events of a tenant.
func (b bench) log(t testing.TB, tenant domain.TenantID) []domain.Event {
	t.Helper()
	events, err := b.store.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, Limit: 10_000_000})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// documents returns all documents of the live build, in pages of an odd size.
func documents(t testing.TB, c *projection.Catalog, tenant domain.TenantID, name string, minPosition int64) map[string]domain.Document {
	t.Helper()
	all := make(map[string]domain.Document)
	query := projection.DocumentsQuery{PageSize: 97, Freshness: projection.Freshness{MinPosition: minPosition, Wait: time.Minute}}
	last := ""
	for {
		page, err := c.Documents(t.Context(), tenant, name, query)
		if err != nil {
			t.Fatalf("documents of %s: %v", name, err)
		}
		for _, document := range page.Documents {
			if document.ID <= last {
				t.Fatalf("document %q follows %q", document.ID, last)
			}
			last = document.ID
			all[document.ID] = document
		}
		if query.PageToken = page.Next; query.PageToken == "" {
			return all
		}
	}
}

// fromScratch folds events one by one with the expressions alone, independently of the package's batches. It returns
// the expected documents.
func fromScratch(t rapid.TB, definition domain.Definition, events []domain.Event) map[string]domain.Document {
	t.Helper()
	all, parked := parkedFromScratch(t, definition, events, nil)
	if len(parked) > 0 {
		t.Fatalf("events cannot be folded: %v", parked)
	}
	return all
}

// waitingEvents are the positions of waiting events, by the id that is parked.
type waitingEvents map[string][]int64

// parkedFromScratch is fromScratch for a definition that parks what cannot be folded. It omits skipped events.
func parkedFromScratch(t rapid.TB, definition domain.Definition, events []domain.Event, skipped map[int64]bool) (map[string]domain.Document, waitingEvents) {
	t.Helper()
	definition = folding.WithDefaults(definition)
	key, err := expr.CompileKey(definition.Key)
	if err != nil {
		t.Fatal(err)
	}
	scope := expr.ScopeProjection
	if definition.Aggregate != "" {
		scope = expr.ScopeAggregate
		definition.Initial = json.RawMessage(cmp.Or(string(definition.Initial), "{}"))
	}
	folds, maps := make(map[string]*expr.Fold), make(map[string]*expr.Map)
	for eventType, source := range definition.On {
		if folds[eventType], err = expr.CompileFold(scope, source); err != nil {
			t.Fatal(err)
		}
	}
	for eventType, source := range definition.Map {
		if maps[eventType], err = expr.CompileMap(source); err != nil {
			t.Fatal(err)
		}
	}
	all, parked := make(map[string]domain.Document), make(waitingEvents)
	for _, event := range events {
		if c := definition.Source.Categories; len(c) > 0 && !slices.Contains(c, domain.Category(event.Stream)) || skipped[event.Position] || event.Gap != nil {
			continue
		}
		if q := definition.Source.Query.Items; len(q) > 0 && !q.Matches(event.Type, event.Tags) {
			continue
		}
		fold, record := cmp.Or(folds[event.Type], folds["*"]), cmp.Or(maps[event.Type], maps["*"])
		if fold == nil && record == nil {
			continue
		}
		targets, err := key.Targets(nil, expr.NewEvent(&event))
		if err != nil {
			id := domain.ParkedEventID(event.ID)
			parked[id] = append(parked[id], event.Position)
		}
		for _, target := range targets {
			if parked[target.ID] != nil {
				parked[target.ID] = append(parked[target.ID], event.Position)
				continue
			}
			before, there := all[target.ID]
			var after *expr.Object
			if record != nil {
				after, err = record.Eval(expr.NewEvent(&event).WithTarget(target))
			} else {
				if !there {
					before.Data = definition.Initial
				}
				doc, problem := expr.ParseDocument(before.Data)
				if problem != nil {
					t.Fatal(problem)
				}
				after, err = fold.Eval(doc, expr.NewEvent(&event).WithTarget(target))
			}
			switch {
			case err != nil:
				parked[target.ID] = []int64{event.Position}
			case after == nil && record == nil:
				delete(all, target.ID)
			case after != nil:
				text, err := expr.AppendJSON(nil, after)
				if err != nil {
					t.Fatal(err)
				}
				all[target.ID] = domain.Document{ID: target.ID, Version: event.Position, Data: text}
			}
		}
	}
	return all, parked
}

// mustEqual compares documents by id, version and content.
func mustEqual(t rapid.TB, got, want map[string]domain.Document) {
	t.Helper()
	var wrong []string
	for id, w := range want {
		g, ok := got[id]
		switch {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("%q is missing: want %s", id, w.Data))
		case g.Version != w.Version || canonical(t, g.Data) != canonical(t, w.Data):
			wrong = append(wrong, fmt.Sprintf("%q is %s at %d; want %s at %d", id, g.Data, g.Version, w.Data, w.Version))
		}
	}
	for id, g := range got {
		if _, ok := want[id]; !ok {
			wrong = append(wrong, fmt.Sprintf("%q should not be there: %s at %d", id, g.Data, g.Version))
		}
	}
	if len(wrong) > 0 {
		t.Fatalf("%d documents of %d differ from a fold from scratch:\n%s", len(wrong), len(want), strings.Join(wrong[:min(5, len(wrong))], "\n"))
	}
}

func canonical(t rapid.TB, data []byte) string {
	t.Helper()
	v, err := expr.ParseJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	text, err := expr.AppendJSON(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// orders is the definition of the guide's example.
var orders = folding.WithDefaults(domain.Definition{
	Name:    "order-summary",
	Source:  domain.Source{Categories: []string{"order"}},
	Initial: json.RawMessage(`{"total": 0, "items": []}`),
	On: map[string]string{
		"OrderPlaced":    `{"status": "placed", "customer": event.data.customer, "total": 0, "items": []}`,
		"ItemAdded":      `merge(doc, {"total": doc.total + event.data.price * event.data.qty, "items": doc.items + [event.data.sku]})`,
		"OrderCancelled": `null`,
	},
	Indexes: []string{"status", "customer"},
})
