package projection_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

func TestFollowsAnExample(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{true, false} {
		b := newBench(t)
		tenant := b.tenant(t)
		p := b.process(options{})
		p.start(t, b)
		owner := tenant
		if shared {
			owner = domain.Everyone
		}
		b.append(t, tenant, "order-1", "OrderPlaced", `{"customer": "ann"}`)
		if _, err := p.catalog.Create(t.Context(), owner, orders, "test"); err != nil {
			t.Fatal(err)
		}
		b.append(t, tenant, "order-1", "ItemAdded", `{"sku": "a", "price": 2.5, "qty": 2}`)
		b.append(t, tenant, "order-2", "OrderPlaced", `{"customer": "bob"}`)
		b.append(t, tenant, "invoice-2", "OrderPlaced", `{"customer": "bob"}`)
		last := b.append(t, tenant, "order-2", "OrderCancelled", `{}`)
		got := documents(t, p.catalog, tenant, orders.Name, last)
		mustEqual(t, got, fromScratch(t, orders, b.log(t, tenant)))
		if len(got) != 1 || canonical(t, got["order-1"].Data) != `{"customer":"ann","items":["a"],"status":"placed","total":5}` {
			t.Errorf("documents are %v", got)
		}
		document, err := p.catalog.Document(t.Context(), tenant, orders.Name, "order-1", projection.Freshness{})
		if err != nil || document.Version != 2 {
			t.Errorf("order-1 is %+v, %v", document, err)
		}
		if _, err := p.catalog.Document(t.Context(), tenant, orders.Name, "order-2", projection.Freshness{}); !domain.IsCode(err, domain.CodeNotFound) {
			t.Errorf("a removed document: %v", err)
		}
		if other := documents(t, p.catalogFor(t, b, shared), b.tenant(t), orders.Name, 0); len(other) > 0 {
			t.Errorf("another tenant sees %v", other)
		}
	}
}

// catalogFor returns a catalog in which every tenant has the example, as a shared projection or as its own.
func (p process) catalogFor(t *testing.T, b bench, shared bool) *projection.Catalog {
	if !shared {
		if _, err := p.catalog.Create(t.Context(), domain.Everyone, sums("unrelated"), "test"); err != nil {
			t.Fatal(err)
		}
		definition := orders
		if _, err := p.catalog.Create(t.Context(), domain.Everyone, definition, "test"); err != nil {
			t.Fatal(err)
		}
	}
	return p.catalog
}

func TestProjectionNamesOfTenants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, two := b.tenant(t), b.tenant(t)
	c := b.process(options{}).catalog
	for _, owner := range []domain.TenantID{domain.Everyone, one} {
		name := "own"
		if owner == domain.Everyone {
			name = "shared"
		}
		if _, err := c.Create(t.Context(), owner, sums(name), "test"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Create(t.Context(), one, sums("shared"), "test"); !domain.IsCode(err, domain.CodeAlreadyExists) || !strings.Contains(err.Error(), "shared") {
		t.Errorf("a tenant's with the name of a shared one: %v", err)
	}
	if _, err := c.Create(t.Context(), one, sums("own"), "test"); !domain.IsCode(err, domain.CodeAlreadyExists) {
		t.Errorf("twice: %v", err)
	}
	if _, err := c.Create(t.Context(), two, sums("own"), "test"); err != nil {
		t.Errorf("another tenant's: %v", err)
	}
	if _, err := c.Create(t.Context(), two, sums("Bad Name"), "test"); !domain.IsCode(err, domain.CodeInvalidDefinition) {
		t.Errorf("a bad name: %v", err)
	}
	// A shared one that comes later does not take a tenant's own away from it.
	if _, err := c.Create(t.Context(), domain.Everyone, sums("own"), "test"); err != nil {
		t.Fatal(err)
	}
	p, err := c.Get(t.Context(), one, "own")
	if err != nil || p.Owner != one {
		t.Errorf("it gets %+v, %v", p, err)
	}
	for tenant, want := range map[domain.TenantID]string{one: "own (private), shared", two: "own (private), shared", b.tenant(t): "own, shared", domain.Everyone: "own (private), shared (private)"} {
		all, err := c.List(t.Context(), tenant)
		var names []string
		for _, p := range all {
			if p.Owner == tenant {
				p.Name += " (private)"
			}
			names = append(names, p.Name)
		}
		if got := strings.Join(names, ", "); err != nil || got != want {
			t.Errorf("the list is %q, %v; want %q", got, err, want)
		}
	}
	for name, do := range map[string]func(domain.TenantID, string) error{
		"delete": func(owner domain.TenantID, name string) error { return c.Delete(t.Context(), owner, name, "test") },
		"reset": func(owner domain.TenantID, name string) error {
			_, err := c.Reset(t.Context(), owner, name, "test", false)
			return err
		},
	} {
		if err := do(one, "shared"); !domain.IsCode(err, domain.CodeForbidden) {
			t.Errorf("a tenant may %s a shared one: %v", name, err)
		}
		if err := do(one, "none"); !domain.IsCode(err, domain.CodeNotFound) {
			t.Errorf("%s what does not exist: %v", name, err)
		}
	}
	if err := c.Delete(t.Context(), one, "own", "test"); err != nil {
		t.Fatal(err)
	}
	if p, err := c.Get(t.Context(), one, "own"); err != nil || !p.Shared() {
		t.Errorf("after its own is deleted it gets %+v, %v", p, err)
	}
}

func TestDocumentPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	p.start(t, b)
	definition := sums("sums")
	definition.Key = "event.stream"
	if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	var last int64
	for _, id := range []string{"x-4", "x-1", "x-3", "x-2"} {
		last = b.append(t, tenant, id, "Add", `{"k": "a", "n": 1}`)
	}
	first, err := p.catalog.Documents(t.Context(), tenant, "sums", projection.DocumentsQuery{PageSize: 2, Freshness: projection.Freshness{MinPosition: last}})
	if err != nil || len(first.Documents) != 2 || first.Next == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := p.catalog.Documents(t.Context(), tenant, "sums", projection.DocumentsQuery{PageSize: 2, PageToken: first.Next})
	if err != nil || len(second.Documents) != 2 || second.Documents[0].ID != "x-3" || second.Next != "" {
		t.Errorf("%+v, %v", second, err)
	}
	for _, token := range []string{"x", "!!!", first.Next[:1], strings.Repeat("A", 2000)} {
		if _, err := p.catalog.Documents(t.Context(), tenant, "sums", projection.DocumentsQuery{PageSize: 2, PageToken: token}); !domain.IsCode(err, domain.CodeInvalidRequest) {
			t.Errorf("page %.20q: %v", token, err)
		}
	}
	if _, err := p.catalog.Documents(t.Context(), tenant, "sums", projection.DocumentsQuery{}); !domain.IsCode(err, domain.CodeInvalidRequest) {
		t.Errorf("no limit: %v", err)
	}
	if _, err := p.catalog.Reset(t.Context(), tenant, "sums", "test", false); err != nil {
		t.Fatal(err)
	}
	if _, err := p.catalog.Documents(t.Context(), tenant, "sums", projection.DocumentsQuery{PageSize: 2, PageToken: first.Next}); !domain.IsCode(err, domain.CodeGone) {
		t.Errorf("a page of a build that is gone: %v", err)
	}
	if got := documents(t, p.catalog, tenant, "sums", last); len(got) != 4 {
		t.Errorf("after the reset it follows to %v", got)
	}
}

func TestMinPosition(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	definition := sums("sums")
	definition.Source.Categories = []string{"x"}
	if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	read := func(position int64, wait time.Duration) error {
		_, err := p.catalog.Documents(t.Context(), tenant, "sums", projection.DocumentsQuery{PageSize: 1, Freshness: projection.Freshness{MinPosition: position, Wait: wait}})
		return err
	}
	// Nobody follows. What is not of the source does not have to be waited for.
	other := b.append(t, tenant, "y-1", "Add", `{"k": "a", "n": 1}`)
	unfolded := b.append(t, tenant, "x-1", "Unfolded", `{}`)
	if err := read(unfolded, time.Minute); err != nil {
		t.Errorf("after events %d and %d, which it does not fold: %v", other, unfolded, err)
	}
	added := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	if err := read(unfolded, time.Minute); err != nil {
		t.Errorf("before the first event that it folds: %v", err)
	}
	for _, position := range []int64{added, added + 1} {
		if err := read(position, time.Millisecond); !domain.IsCode(err, domain.CodeNotCaughtUp) {
			t.Errorf("position %d: %v", position, err)
		}
	}
	if s, err := p.catalog.Status(t.Context(), tenant, "sums"); err != nil || s.State != projection.StateRunning || s.LagEvents != 1 || s.Head != added || s.Checkpoint != added-1 || s.Lag <= 0 {
		t.Errorf("the status is %+v, %v", s, err)
	}
	answer := make(chan error, 1)
	go func() { answer <- read(added, time.Minute) }()
	p.start(t, b)
	if err := <-answer; err != nil {
		t.Errorf("a read that waits: %v", err)
	}
}

// If a table is dropped after the lookup of the live build and before the read, the lookup is repeated.
func TestReadWhileATableIsDropped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	setup := b.process(options{})
	created, err := setup.catalog.Create(t.Context(), domain.Everyone, sums("sums"), "test")
	if err != nil {
		t.Fatal(err)
	}
	c := b.process(options{driver: beforeReads{b.driver, new(sync.Once), func() {
		if _, err := setup.catalog.Reset(t.Context(), domain.Everyone, "sums", "test", false); err != nil {
			t.Error(err)
		}
		if err := b.driver.DropTable(t.Context(), created.LiveBuild()); err != nil {
			t.Error(err)
		}
	}}}).catalog
	if page, err := c.Documents(t.Context(), tenant, "sums", projection.DocumentsQuery{PageSize: 1}); err != nil || len(page.Documents) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
	// Where the live build itself has no table, that is an error and no endless search.
	live, err := c.Get(t.Context(), tenant, "sums")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.driver.DropTable(t.Context(), live.LiveBuild()); err != nil {
		t.Fatal(err)
	}
	if _, err := setup.catalog.Document(t.Context(), tenant, "sums", "a", projection.Freshness{}); !domain.IsCode(err, domain.CodeUnavailable) || !strings.Contains(err.Error(), "rebuild") {
		t.Errorf("without a table: %v", err)
	}
	if s, err := setup.catalog.Status(t.Context(), tenant, "sums"); err != nil || s.State != projection.StateLost || !strings.Contains(s.Error, "rebuild") {
		t.Errorf("the status without a table is %+v, %v", s, err)
	}
	if all, err := setup.catalog.Positions(t.Context(), tenant); err != nil || len(all) != 1 || !strings.Contains(all[0].Unknown, "rebuild") {
		t.Errorf("the positions without a table are %+v, %v", all, err)
	}
}

// Progress wakes every waiting reader, and keeps nothing of readers that have stopped waiting.
func TestProgressWakesWaitingReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := projection.NewProgress()
		id := domain.ProjectionID{Name: "p"}
		woken := make(chan int, 3)
		for i := range 3 {
			go func() {
				p.Await(id, domain.Everyone)
				woken <- i
			}()
		}
		synctest.Wait()
		p.Moved(domain.ProjectionID{Name: "q"}, domain.Everyone)
		synctest.Wait()
		if len(woken) != 0 {
			t.Error("woken by another projection")
		}
		p.Moved(id, domain.Everyone)
		synctest.Wait()
		if len(woken) != 3 {
			t.Errorf("%d of 3 were woken", len(woken))
		}
		if n := p.Waiting(); n != 0 {
			t.Errorf("%d are still kept", n)
		}
	})
}
