package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
)

// costly takes almost all the steps that one evaluation may take.
const costly = `{'n': lists.range(900).all(x, lists.range(100).all(y, x + y >= 0))}`

// costlyBench is a tenant with a live projection that takes a minute to fold, and a catalog with limits.
func costlyBench(t *testing.T, limits budget.Limits) (*projection.Catalog, domain.TenantID) {
	t.Helper()
	b := newBench(t)
	tenant := b.tenant(t)
	catalog := func(limits budget.Limits) *projection.Catalog {
		return projection.NewCatalog(projection.CatalogConfig{
			Store: storeOf(b.store), Drivers: map[string]drivers.Driver{"default": b.driver}, Progress: projection.NewProgress(), Requests: budget.New(limits), Log: quiet,
		})
	}
	if _, err := catalog(budget.Limits{}).Create(t.Context(), tenant, domain.Definition{Name: "alive", Mode: domain.ModeLive, On: map[string]string{"*": costly}}, "test"); err != nil {
		t.Fatal(err)
	}
	events := make([]domain.NewEvent, 1000)
	for i := range events {
		events[i] = domain.NewEvent{Type: "A", Data: json.RawMessage(`{}`)}
	}
	if _, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "x-1", Expected: domain.Any, Events: events}}}); err != nil {
		t.Fatal(err)
	}
	return catalog(limits), tenant
}

// costlyRequests is one of each kind of request to a catalog that evaluates expressions.
func costlyRequests(catalog *projection.Catalog, tenant domain.TenantID) map[string]func(context.Context) error {
	large := make(map[string]string)
	for i := range 60 {
		large[fmt.Sprintf("E%d", i)] = "{'a': [" + strings.Repeat("[[[[[[[[[[[[[[1]]]]]]]]]]]]]],", 120) + "1]}"
	}
	definition := domain.Definition{Name: "tried", On: map[string]string{"*": costly}}
	return map[string]func(context.Context) error{
		"one document": func(ctx context.Context) error {
			_, err := catalog.Document(ctx, tenant, "alive", "x-1", projection.Freshness{})
			return err
		},
		"all documents": func(ctx context.Context) error {
			_, err := catalog.Documents(ctx, tenant, "alive", projection.DocumentsQuery{PageSize: 10, Count: true, Filter: "doc.n == true", OrderBy: "n"})
			return err
		},
		"a preview": func(ctx context.Context) error {
			_, err := catalog.Preview(ctx, tenant, projection.PreviewQuery{Definition: definition, Last: 1000})
			return err
		},
		"a preview of what takes long to compile": func(ctx context.Context) error {
			_, err := catalog.Preview(ctx, tenant, projection.PreviewQuery{Definition: domain.Definition{On: large}, Last: 1})
			return err
		},
		"a plan": func(ctx context.Context) error {
			var definitions []domain.Definition
			for i := range 10 {
				definitions = append(definitions, domain.Definition{Name: fmt.Sprintf("p%d", i), On: large})
			}
			_, err := catalog.Plan(ctx, tenant, definitions, false, nil)
			return err
		},
	}
}

// A fold ends when its client no longer waits, and frees its place.
func TestFoldingRequestsEndWithTheirClients(t *testing.T) {
	t.Parallel()
	catalog, tenant := costlyBench(t, budget.Limits{TenantPlaces: 1, Steps: 1 << 40, Time: time.Hour})
	for name, request := range costlyRequests(catalog, tenant) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		err := request(ctx)
		cancel()
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
			t.Errorf("%s: after %s: %v", name, took, err)
		}
	}
}

func TestFoldingRequestsAreLimitedByTheirBudget(t *testing.T) {
	t.Parallel()
	catalog, tenant := costlyBench(t, budget.Limits{Steps: 5_000_000, Time: time.Hour})
	for name, request := range costlyRequests(catalog, tenant) {
		if err := request(t.Context()); !domain.IsCode(err, domain.CodeTooCostly) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, most := range []time.Duration{100 * time.Millisecond, time.Microsecond} { // the second ends a request while it reads
		catalog, tenant = costlyBench(t, budget.Limits{Steps: 1 << 40, Time: most})
		for name, request := range costlyRequests(catalog, tenant) {
			if err := request(t.Context()); !domain.IsCode(err, domain.CodeOverloaded) {
				t.Errorf("%s takes longer than %s: %v", name, most, err)
			}
		}
	}
}

// loadTold is a driver that reports when documents were loaded.
type loadTold struct {
	drivers.Driver
	loaded chan struct{}
}

func (d loadTold) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	documents, err := d.Driver.Load(ctx, build, tenant, ids)
	select {
	case d.loaded <- struct{}{}:
	default:
	}
	return documents, err
}

// A runner that is stopped ends at once, and does not report an interrupted fold as a fault.
func TestRunnerEndsDuringACostlyFold(t *testing.T) {
	t.Parallel()
	for _, onError := range []domain.OnError{domain.OnErrorStop, domain.OnErrorPark} {
		b := newBench(t)
		tenant := b.tenant(t)
		driver := loadTold{b.driver, make(chan struct{}, 1)}
		p := b.process(options{driver: driver})
		definition := domain.Definition{Name: "stored", OnError: onError, On: map[string]string{"*": costly}, Key: "event.id"}
		if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
			t.Fatal(err)
		}
		stop := p.start(t, b)
		documents(t, p.catalog, tenant, "stored", b.append(t, tenant, "x-1", "A", `{}`))
		events := make([]domain.NewEvent, 1000)
		for i := range events {
			events[i] = domain.NewEvent{Type: "A", Data: json.RawMessage(`{}`)}
		}
		if _, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "x-1", Expected: domain.Any, Events: events}}}); err != nil {
			t.Fatal(err)
		}
		<-driver.loaded // what comes next is the fold
		began := time.Now()
		stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("with onError %s it ends after %s", onError, took)
		}
		status, err := p.catalog.Status(t.Context(), tenant, "stored")
		if err != nil || status.Fault != nil || status.State == projection.StateFaulted {
			t.Errorf("with onError %s the status is %+v, %v", onError, status, err)
		}
		parked, err := p.catalog.Parked(t.Context(), tenant, "stored", "", 10)
		if err != nil || len(parked) > 0 {
			t.Errorf("with onError %s there are parked %+v, %v", onError, parked, err)
		}
	}
}

// An append whose events take too long to fold is refused as a whole, and other appends continue.
func TestACostlyInlineFoldIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a := newAppender(t, db, db.URL(migrations.RoleApp))
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	p := a.project(t, tenant, domain.Definition{
		Name: "inline", Database: "default", Mode: domain.ModeInline, Key: "event.data.k",
		On: map[string]string{"Add": "{'n': doc.?n.orValue(0) + 1}", "Check": costly},
	})
	if _, err := a.add(tenant, `{"k": "a"}`); err != nil {
		t.Fatal(err)
	}
	var many []string
	for range 100 {
		many = append(many, `?{"k": "b"}`)
	}
	if _, err := a.add(tenant, append([]string{`{"k": "a"}`}, many...)...); !domain.IsCode(err, domain.CodeTooCostly) || !strings.Contains(err.Error(), "append fewer at a time") {
		t.Errorf("a hundred costly events are answered %v", err)
	}
	if _, err := a.add(tenant, `{"k": "a"}`); err != nil {
		t.Fatal(err)
	}
	a.wantInline(t, p, 1)
	if got, want := a.documents(t, p, tenant), "a@2 {\"n\": 2}\n"; got != want {
		t.Errorf("the documents are %q; want %q", got, want)
	}
}
