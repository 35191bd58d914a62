package projection_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

func (b bench) upcasters(t testing.TB) *upcasting.Upcasters {
	t.Helper()
	u, err := upcasting.New(b.store.Registry, b.store.Log, nil)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (b bench) upcast(t testing.TB, owner domain.TenantID, eventType string, version int64, expression string) {
	t.Helper()
	_, _, err := b.store.PutUpcaster(t.Context(), domain.Upcaster{Owner: owner, Type: eventType, Version: version, Expression: expression, By: "test"})
	if err != nil {
		t.Fatal(err)
	}
}

// someUpcasts are expressions for the events of someEvents. After them, every definition of someDefinition can still
// fold.
var someUpcasts = []string{
	`merge(event.data, {'n': event.data.n + 1})`,
	`merge(event.data, {'k': event.data.k == null ? 'c' : null})`,
	`{'k': event.type, 'n': event.metadata.?schemaVersion.orValue(1)}`,
}

// Documents are those of a fold from scratch after each event went through its upcasters one by one. A rebuild folds
// with the upcasters in force when it begins.
func TestUpcastEventsAreFolded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	upcasters := b.upcasters(t)
	shared := map[string]string{"A/1": someUpcasts[0], "B/1": someUpcasts[1], "B/2": someUpcasts[0], "D/2": someUpcasts[2]}
	put := func(owner domain.TenantID, all map[string]string) {
		t.Helper()
		for name, expression := range all {
			b.upcast(t, owner, name[:1], int64(name[2]-'0'), expression)
		}
	}
	put(domain.Everyone, shared)
	rapid.Check(t, func(rt *rapid.T) {
		tenant := b.tenant(t)
		definition := someDefinition(rt)
		fold, err := folding.Compile(definition)
		if err != nil {
			rt.Fatal(err)
		}
		for build := int64(1); build <= 2; build++ {
			own := make(map[string]string)
			for _, name := range []string{"A/1", "A/2", "B/2", "C/1"} {
				if rapid.Bool().Draw(rt, name) {
					own[name] = rapid.SampledFrom(someUpcasts).Draw(rt, "upcast "+name)
				}
			}
			put(tenant, own)
			kept, _, err := b.store.Upcasters(t.Context(), tenant)
			if err != nil {
				rt.Fatal(err)
			}
			inForce := maps.Clone(shared)
			for _, one := range kept {
				inForce[fmt.Sprintf("%s/%d", one.Type, one.Version)] = one.Expression
			}
			someEvents(rt, t, b, tenant)
			replay := &projection.Replay{
				Driver: b.driver, Tenant: tenant, Fold: fold.WithUpcasters(upcasters),
				Build:  domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: definition.Name}, Number: build, Database: "default"},
				Limits: projection.Limits{Events: rapid.IntRange(1, 9).Draw(rt, "limit"), Bytes: rapid.SampledFrom([]int{1, 200, 1 << 20}).Draw(rt, "bytes"), DocumentBytes: 1 << 20},
			}
			log := b.log(t, tenant)
			if err := replay.Run(t.Context(), b.store, int64(len(log))); err != nil {
				rt.Fatal(err)
			}
			for i := range log {
				oneByOne(rt, inForce, &log[i])
			}
			got := make(map[string]domain.Document)
			page, err := b.driver.Query(t.Context(), replay.Build, tenant, domain.DocumentQuery{Limit: 1000})
			if err != nil {
				rt.Fatal(err)
			}
			for _, document := range page {
				got[document.ID] = document
			}
			mustEqual(rt, got, fromScratch(rt, definition, log))
		}
	})
}

// oneByOne applies upcasters, named type/version, to an event of schema version 1.
func oneByOne(t rapid.TB, inForce map[string]string, event *domain.Event) {
	for version := 1; ; version++ {
		source, ok := inForce[fmt.Sprintf("%s/%d", event.Type, version)]
		if !ok {
			return
		}
		upcaster, err := expr.CompileUpcaster(source)
		if err != nil {
			t.Fatal(err)
		}
		data, err := upcaster.Eval(expr.NewEvent(event))
		if err != nil {
			t.Fatal(err)
		}
		event.Data, event.Metadata = data, json.RawMessage(fmt.Sprintf(`{"schemaVersion": %d}`, version+1))
	}
}

// Events that upcasters make very large are folded a few at a time.
func TestUpcastEventsAreLimitedInMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	events := make([]domain.NewEvent, 1000)
	for i := range events {
		events[i] = domain.NewEvent{Type: "A", Data: json.RawMessage(fmt.Sprintf(`{"n": %d}`, i))}
	}
	_, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "x-1", Events: events}}})
	if err != nil {
		t.Fatal(err)
	}
	b.upcast(t, tenant, "A", 1, `{'n': event.data.n, 'text': '`+strings.Repeat("x", 8000)+`'}`)
	reading, err := b.store.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	fold, err := folding.Compile(domain.Definition{Name: "p", On: map[string]string{"*": `{'sum': doc.?sum.orValue(0) + event.data.n, 'length': size(event.data.text)}`}})
	if err != nil {
		t.Fatal(err)
	}
	set, err := b.upcasters(t).Now(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	const most = 100_000
	folded, readings := 0, 0
	for rest := reading; len(rest) > 0; readings++ {
		kept, bytes, upTo, more := projection.Prepared(fold, rest, most, set)
		if kept == 0 || kept > len(rest) || bytes > 4*most || more != (kept < len(rest)) || upTo != rest[kept-1].Position {
			t.Fatalf("of %d events %d are taken, with %d bytes, up to %d, more: %v", len(rest), kept, bytes, upTo, more)
		}
		folded, rest = folded+kept, reading[upTo:]
	}
	if folded != 1000 || readings < 20 {
		t.Errorf("%d events in %d readings", folded, readings)
	}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: 1, Database: "default"}
	replay := &projection.Replay{
		Driver: b.driver, Build: build, Tenant: tenant, Fold: fold.WithUpcasters(b.upcasters(t)),
		Limits: projection.Limits{Events: 1000, Bytes: most, DocumentBytes: 1 << 20},
	}
	if err := replay.Run(t.Context(), b.store, 1000); err != nil {
		t.Fatal(err)
	}
	got, err := b.driver.Load(t.Context(), build, tenant, []string{"x-1"})
	if err != nil || len(got) != 1 || canonical(t, got[0].Data) != `{"length":8000,"sum":499500}` || got[0].Version != 1000 {
		t.Errorf("the document is %+v, %v", got, err)
	}
}

// The live build uses the upcasters in force when it reads. An event that an upcaster cannot convert stops it, and the
// fault names the upcaster.
func TestTheLiveBuildFollowsUpcasters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant, other := b.tenant(t), b.tenant(t)
	faults := make(chan domain.Fault, 10)
	p := b.process(options{upcasters: b.upcasters(t), observer: projection.Observer{Fault: func(f domain.Fault) { faults <- f }}})
	p.start(t, b)
	for _, owner := range []domain.TenantID{tenant, other} {
		_, err := p.catalog.Create(t.Context(), owner, domain.Definition{Name: "last", On: map[string]string{"*": `{'n': event.data.n}`}}, "test")
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(of domain.TenantID, document string) {
		t.Helper()
		position := b.append(t, of, "x-1", "A", `{"n": 1}`)
		if got := documents(t, p.catalog, of, "last", position); canonical(t, got["x-1"].Data) != document {
			t.Errorf("the document is %s; want %s", got["x-1"].Data, document)
		}
	}
	want(tenant, `{"n":1}`)
	b.upcast(t, domain.Everyone, "A", 1, `{'n': 'shared'}`)
	want(tenant, `{"n":"shared"}`)
	b.upcast(t, tenant, "A", 1, `{'n': 'own'}`)
	want(tenant, `{"n":"own"}`)
	want(other, `{"n":"shared"}`)
	if err := b.store.DeleteUpcaster(t.Context(), tenant, "A", 1); err != nil {
		t.Fatal(err)
	}
	want(tenant, `{"n":"shared"}`)
	const broken = `{'n': event.data.nope}`
	b.upcast(t, tenant, "A", 2, broken)
	position := b.append(t, tenant, "x-1", "A", `{"n": 1}`)
	fault := <-faults
	if fault.Tenant != tenant || fault.Position != position || fault.Where != "upcaster A/2" || fault.Expression != broken ||
		!strings.Contains(fault.Message, "line 1, column 18: ") || fault.EventType != "A" {
		t.Errorf("the fault is %+v", fault)
	}
	want(other, `{"n":"shared"}`)
}

// Appends fold with the upcasters in force, even if another process has changed them while the writer had the builds
// open. The log keeps the events as appended.
func TestInlineBuildsFollowUpcasters(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a := newAppender(t, db, db.URL(migrations.RoleApp))
	b := newAppender(t, db, db.URL(migrations.RoleApp))
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	p := a.project(t, tenant, counting)
	put := func(owner domain.TenantID, expression string) {
		t.Helper()
		_, _, err := b.store.PutUpcaster(t.Context(), domain.Upcaster{Owner: owner, Type: "Add", Version: 1, Expression: expression, By: "test"})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(document string) {
		t.Helper()
		if _, err := a.add(tenant, `{"k": "a", "n": 1}`); err != nil {
			t.Fatal(err)
		}
		got, err := a.driver.Load(t.Context(), p.LiveBuild(), tenant, []string{"a"})
		if err != nil || len(got) != 1 || canonical(t, got[0].Data) != document {
			t.Errorf("the documents are %+v, %v; want %s", got, err, document)
		}
	}
	want(`{"last":1,"n":1}`)
	put(domain.Everyone, `merge(event.data, {'n': 10})`)
	want(`{"last":2,"n":11}`)
	put(tenant, `merge(event.data, {'n': event.data.n + 100})`)
	want(`{"last":3,"n":112}`)
	if err := b.store.DeleteUpcaster(t.Context(), tenant, "Add", 1); err != nil {
		t.Fatal(err)
	}
	want(`{"last":4,"n":122}`)
	put(tenant, `{'k': event.data.nope}`)
	_, err := a.add(tenant, `{"k": "a", "n": 1}`)
	if problem, ok := errors.AsType[*domain.Error](err); !ok || problem.Code != domain.CodeRefused || !strings.Contains(problem.Message, "upcaster Add/1") {
		t.Errorf("an event that does not go through is answered %v", err)
	}
	events, err := a.store.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, Limit: 10})
	if err != nil || len(events) != 4 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for _, event := range events {
		if canonical(t, event.Data) != `{"k":"a","n":1}` || event.Metadata != nil {
			t.Errorf("the log has %s with %s", event.Data, event.Metadata)
		}
	}
}
