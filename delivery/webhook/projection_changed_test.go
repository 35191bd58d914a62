package webhook_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/rebuild"
)

// Events selected by a projection's new definition are sent from its swap on, even while events keep coming.
func TestTypeIsAddedDuringAppends(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	p := start(t, db, options{})
	tenant := p.tenant(t)
	if _, err := p.catalog.Create(t.Context(), tenant, orders, "test"); err != nil {
		t.Fatal(err)
	}
	driver, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 4, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(driver.Close)
	rebuilds := rebuild.New(rebuild.Config{
		Store:   projection.Store{Log: p.store.Log, Registry: p.store.Registry, Tenants: p.store.TenantTables},
		Drivers: map[string]drivers.Driver{"default": driver}, Catalog: p.catalog, Poll: 100 * time.Millisecond, Keep: time.Minute, Log: quiet,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	busy.Go(func() {
		if err := rebuilds.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	e := newEndpoint(t, always(200))
	p.put(t, tenant, "mail", webhook.Definition{Projection: "orders", URL: e.url})
	busy.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			p.add(t, tenant, "order-busy", "Placed", `{"customer": "busy"}`)
			<-tick.C
		}
	})
	for range 3 {
		e.next(t)
	}
	changed := orders
	changed.On = maps.Clone(orders.On)
	changed.On["Praised"] = `{"n": doc.n + 100}`
	if _, err := rebuilds.Deploy(t.Context(), tenant, changed, "test", false); err != nil {
		t.Fatal(err)
	}
	await(t, "the new definition is not live", func() bool {
		now, err := p.catalog.Live(t.Context(), tenant, "orders")
		if err != nil {
			t.Fatal(err)
		}
		return now.Definition.On["Praised"] != ""
	})
	want := p.add(t, tenant, "order-1", "Praised", `{"customer": "ann"}`)[0]
	for range 20_000 {
		if e.next(t).id() == want.ID.String() {
			return
		}
	}
	t.Error("the event of the new type does not arrive")
}
