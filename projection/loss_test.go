package projection_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// losses waits until a projection has caught up, and returns what its documents lack.
func losses(t *testing.T, p process, tenant domain.TenantID, name string) []domain.Loss {
	t.Helper()
	status, err := p.catalog.CatchUp(t.Context(), tenant, name, 20*time.Second)
	// One that is to be inline has caught up a little before the appends take over.
	for late := time.Now().Add(time.Minute); err == nil && status.State == projection.StateRunning && time.Now().Before(late); {
		status, err = p.catalog.CatchUp(t.Context(), tenant, name, 20*time.Second)
	}
	if err != nil {
		t.Fatal(err)
	}
	if status.State != projection.StateCaughtUp || status.LagEvents != 0 {
		t.Fatalf("it is %+v", status)
	}
	return status.Loss
}

func numbering(name string, categories ...string) domain.Definition {
	return folding.WithDefaults(domain.Definition{
		Name: name, Source: domain.Source{Categories: categories}, On: map[string]string{"Added": `{"n": doc.?n.orValue(0) + 1}`},
	})
}

// A projection that starts after a removal folds the remaining events, and reports the loss. One that has seen all
// events reports none, even after a restart. Forced removals are reported.
func TestProjectionsReportLosses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process(options{})
	stop := p.start(t, b)
	tenant := b.tenant(t)
	create := func(definition domain.Definition, owner domain.TenantID) {
		t.Helper()
		if _, err := p.catalog.Create(t.Context(), owner, definition, "test"); err != nil {
			t.Fatal(err)
		}
	}
	wantLoss := func(name string, want ...domain.Loss) {
		t.Helper()
		if got := losses(t, p, tenant, name); !slices.Equal(got, want) {
			t.Errorf("%s lacks %v; want %v", name, got, want)
		}
	}
	create(numbering("early", "order"), domain.Everyone)
	create(numbering("others", "user"), tenant)
	b.append(t, tenant, "user-1", "Added", `1`)
	for i := range 10 {
		b.append(t, tenant, fmt.Sprintf("order-%d", i%3), "Added", `1`)
	}
	wantLoss("early")
	wantLoss("others")
	before := documents(t, p.catalog, tenant, "early", 11)
	b.db.Remove(t, tenant, "order", 8)
	create(numbering("late", "order", "user"), tenant)
	create(numbering("whole"), domain.Everyone)
	live := numbering("alive", "order")
	live.Mode = domain.ModeLive
	create(live, tenant)
	gone := domain.Loss{Category: "order", RemovedTo: 8}
	wantLoss("early")
	wantLoss("others")
	wantLoss("late", gone)
	wantLoss("whole", gone)
	wantLoss("alive", gone)
	mustEqual(t, documents(t, p.catalog, tenant, "early", 11), before)
	left := b.log(t, tenant)
	for _, name := range []string{"late", "whole", "alive"} {
		definition := numbering(name)
		if name != "whole" {
			definition.Source.Categories = []string{"order", "user"}[:map[string]int{"late": 2, "alive": 1}[name]]
		}
		mustEqual(t, documents(t, p.catalog, tenant, name, 0), fromScratch(t, definition, left))
	}

	// The others continue, and so does whoever comes after them; what comes is lacked by nobody.
	stop()
	b.append(t, tenant, "order-1", "Added", `1`)
	p = b.process(options{})
	p.start(t, b)
	wantLoss("early")
	wantLoss("late", gone)

	// Nor is it another tenant's.
	other := b.tenant(t)
	b.append(t, other, "order-1", "Added", `1`)
	if got := losses(t, p, other, "whole"); got != nil {
		t.Errorf("for another tenant it lacks %v", got)
	}
}

// If events are removed by force before they are folded, the loss is reported before any later event takes effect.
func TestProjectionsReportForcedLosses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process(options{})
	stop := p.start(t, b)
	tenant := b.tenant(t)
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, numbering("c"), "test"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.append(t, tenant, "order-1", "Added", `1`)
	}
	if got := losses(t, p, tenant, "c"); got != nil {
		t.Fatalf("it lacks %v", got)
	}
	stop()
	for range 3 {
		b.append(t, tenant, "order-1", "Added", `1`)
	}
	b.db.Remove(t, tenant, "order", 5)
	p = b.process(options{})
	p.start(t, b)
	if got := losses(t, p, tenant, "c"); !slices.Equal(got, []domain.Loss{{Category: "order", RemovedTo: 5}}) {
		t.Errorf("it lacks %v", got)
	}
	if got := documents(t, p.catalog, tenant, "c", 6)["order-1"]; string(got.Data) != `{"n":4}` && string(got.Data) != `{"n": 4}` {
		t.Errorf("the document is %s", got.Data)
	}
}

// Forced removals in two categories at different times are both reported, even if the second position is the lower.
func TestLossesAreReportedByCategory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process(options{})
	p.start(t, b)
	tenant := b.tenant(t)
	b.append(t, tenant, "order-1", "Added", `1`)
	bad := b.append(t, tenant, "user-1", "Bad", `1`)
	for range 3 {
		b.append(t, tenant, "user-1", "Added", `1`)
	}
	b.append(t, tenant, "order-1", "Added", `1`)
	b.append(t, tenant, "order-1", "Added", `1`)
	b.db.Remove(t, tenant, "order", 6)
	definition := numbering("c", "order", "user")
	definition.On["Bad"] = `{"n": doc.nothing}`
	if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.catalog.CatchUp(t.Context(), tenant, "c", time.Minute); !domain.IsCode(err, domain.CodeFaulted) {
		t.Fatal(err)
	}
	status, err := p.catalog.Status(t.Context(), tenant, "c")
	if err != nil || status.State != projection.StateFaulted || !slices.Equal(status.Loss, []domain.Loss{{Category: "order", RemovedTo: 6}}) {
		t.Fatalf("it is %+v, %v", status, err)
	}
	b.db.Remove(t, tenant, "user", bad+1)
	if _, err := p.catalog.Retry(t.Context(), tenant, "c"); err != nil {
		t.Fatal(err)
	}
	if got := losses(t, p, tenant, "c"); !slices.Equal(got, []domain.Loss{{Category: "order", RemovedTo: 6}, {Category: "user", RemovedTo: bad + 1}}) {
		t.Errorf("it lacks %v", got)
	}
}

// A reset folds the remaining events if the loss is accepted.
func TestResetAfterRemovedEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process(options{})
	p.start(t, b)
	tenant, other := b.tenant(t), b.tenant(t)
	for _, owner := range []domain.TenantID{domain.Everyone, other} {
		if _, err := p.catalog.Create(t.Context(), owner, numbering(map[bool]string{true: "all", false: "own"}[owner == domain.Everyone], "order"), "test"); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		b.append(t, tenant, "order-1", "Added", `1`)
		b.append(t, other, "order-1", "Added", `1`)
	}
	losses(t, p, tenant, "all")
	b.db.Remove(t, tenant, "order", 2)
	if _, err := p.catalog.Reset(t.Context(), other, "own", "test", false); err != nil {
		t.Errorf("a tenant of which nothing is gone: %v", err)
	}
	_, err := p.catalog.Reset(t.Context(), domain.Everyone, "all", "test", false)
	if !domain.IsCode(err, domain.CodeEventsRemoved) {
		t.Fatalf("without accepting the loss: %v", err)
	}
	if got := losses(t, p, tenant, "all"); got != nil {
		t.Errorf("what was refused lacks %v", got)
	}
	if _, err := p.catalog.Reset(t.Context(), domain.Everyone, "all", "test", true); err != nil {
		t.Fatal(err)
	}
	if got := losses(t, p, tenant, "all"); !slices.Equal(got, []domain.Loss{{Category: "order", RemovedTo: 2}}) {
		t.Errorf("it lacks %v", got)
	}
	if got := losses(t, p, other, "all"); got != nil {
		t.Errorf("for another tenant it lacks %v", got)
	}
	mustEqual(t, documents(t, p.catalog, tenant, "all", 0), fromScratch(t, numbering("all"), b.log(t, tenant)))
}

// Events that a projection does not fold do not delay it, and their removal is not reported as a loss: the checkpoint
// passes them first.
func TestEventsNotFoldedAreNoLoss(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process(options{})
	stop := p.start(t, b)
	tenant := b.tenant(t)
	if _, err := p.catalog.Create(t.Context(), tenant, numbering("c", "order", "user"), "test"); err != nil {
		t.Fatal(err)
	}
	b.append(t, tenant, "order-1", "Added", `1`)
	losses(t, p, tenant, "c")
	for range 5 {
		b.append(t, tenant, "order-1", "Other", `1`)
	}
	losses(t, p, tenant, "c")
	stop()
	holds, err := p.catalog.RetentionHolds(t.Context(), tenant, "order")
	if err != nil || len(holds) > 0 {
		t.Fatalf("it holds %v, %v", holds, err)
	}
	b.db.Remove(t, tenant, "order", 6)
	// While it is still to fold events of another category, it holds those as well.
	b.append(t, tenant, "user-1", "Added", `1`)
	b.append(t, tenant, "order-1", "Other", `1`)
	if holds, err = p.catalog.RetentionHolds(t.Context(), tenant, "order"); err != nil || len(holds) != 1 || holds[0].Position != 6 {
		t.Errorf("with something to fold it holds %v, %v", holds, err)
	}
	p = b.process(options{})
	p.start(t, b)
	if got := losses(t, p, tenant, "c"); got != nil {
		t.Errorf("it lacks %v", got)
	}
}

// Inline folds continue after events were removed. A projection that is to become inline catches up past the gap, and
// reports the loss.
func TestInlineAfterRemovedEvents(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a := newAppender(t, db, db.URL(migrations.RoleApp))
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	add := func(texts ...string) {
		t.Helper()
		if _, err := a.add(tenant, texts...); err != nil {
			t.Fatal(err)
		}
	}
	add(`{"k": "a", "n": 1}`, `{"k": "a", "n": 2}`, `{"k": "a", "n": 4}`, `{"k": "b", "n": 8}`)
	db.Remove(t, tenant, "x", 3, 2)
	p := a.project(t, domain.Everyone, counting)
	b := bench{db: db, store: a.store}
	byName := map[string]drivers.Driver{"default": a.driver}
	proc := process{progress: projection.NewProgress()}
	proc.catalog = projection.NewCatalog(projection.CatalogConfig{Store: storeOf(a.store), Drivers: byName, Progress: proc.progress, Log: quiet, LogDatabase: "default"})
	proc.runner = projection.NewRunner(projection.RunnerConfig{
		Store: storeOf(a.store), Drivers: byName, Progress: proc.progress, Poll: 100 * time.Millisecond, Log: quiet, Inline: a.inline,
	})
	proc.start(t, b)
	lacks := []domain.Loss{{Category: "x", RemovedTo: 3}}
	if got := losses(t, proc, tenant, "counting"); !slices.Equal(got, lacks) {
		t.Errorf("it lacks %v", got)
	}
	a.wantInline(t, p, 1)
	add(`{"k": "a", "n": 16}`)
	db.Remove(t, tenant, "x", 5)
	add(`{"k": "b", "n": 32}`)
	if got, want := a.documents(t, p, tenant), "a@5 {\"n\": 18, \"last\": 5}\nb@6 {\"n\": 40, \"last\": 6}\n"; got != want {
		t.Errorf("the documents are\n%s, want\n%s", got, want)
	}
	a.wantInline(t, p, 1)
	if got := losses(t, proc, tenant, "counting"); !slices.Equal(got, lacks) {
		t.Errorf("what was folded is lacked: %v", got)
	}
}

// A preview uses the remaining events.
func TestPreviewAfterRemovedEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process(options{})
	tenant := b.tenant(t)
	for range 6 {
		b.append(t, tenant, "order-1", "Added", `1`)
	}
	b.db.Remove(t, tenant, "order", 4, 2)
	preview, err := p.catalog.Preview(t.Context(), tenant, projection.PreviewQuery{Definition: numbering("i"), Stream: "order-1"})
	if err != nil || len(preview.Steps) != 3 || len(preview.Documents) != 1 || preview.Documents[0].Version != 6 {
		t.Errorf("a preview of a stream: %+v, %v", preview, err)
	}
	preview, err = p.catalog.Preview(t.Context(), tenant, projection.PreviewQuery{Definition: numbering("i"), Last: 2})
	if err != nil || len(preview.Steps) != 2 || preview.Steps[0].Event.Position != 5 {
		t.Errorf("a preview of the last two: %+v, %v", preview, err)
	}
}
