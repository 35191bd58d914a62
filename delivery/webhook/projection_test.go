package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// orders is a projection that counts each customer's orders. It ignores returns, and removes a customer who leaves.
var orders = domain.Definition{
	Name: "orders", Source: domain.Source{Categories: []string{"order"}},
	Key: `event.type == "Returned" ? null : event.data.customer`, Initial: []byte(`{"n": 0}`),
	On: map[string]string{"Placed": `{"n": doc.n + 1}`, "Returned": "doc", "Left": "null"},
}

// The source may be a projection: an event arrives when its document is stored, together with the document.
func TestEventsArriveWithTheirDocuments(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	if _, err := p.catalog.Create(t.Context(), tenant, orders, "test"); err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t, always(200))
	p.put(t, tenant, "mail", webhook.Definition{Projection: "orders", URL: e.url})
	p.add(t, tenant, "parcel-1", "Placed", `{"customer": "ann"}`)
	p.add(t, tenant, "order-1", "Returned", `{"customer": "ann"}`)
	p.add(t, tenant, "order-1", "Unknown", `{"customer": "ann"}`)
	for i := range 20 {
		want := p.add(t, tenant, fmt.Sprintf("order-%d", i), "Placed", `{"customer": "ann"}`)[0]
		got := e.next(t).read(t)
		if got.Data.Event.ID != want.ID.String() || got.Data.Document == nil || got.Data.Document.ID != "ann" ||
			got.Data.Document.Version < want.Position || string(got.Data.Document.Data) != fmt.Sprintf(`{"n": %d}`, i+1) {
			t.Fatalf("event %d arrived as %+v with %+v", i, got.Data.Event, got.Data.Document)
		}
	}
	left := p.add(t, tenant, "order-1", "Left", `{"customer": "ann"}`)[0]
	got := e.next(t).read(t)
	if got.Data.Event.ID != left.ID.String() || got.Data.Document == nil || got.Data.Document.ID != "ann" || string(got.Data.Document.Data) != "null" {
		t.Errorf("a document that was removed arrived as %+v", got.Data.Document)
	}
	await(t, "not all is settled", func() bool { return p.group(t, tenant, domain.ServiceWebhook, "mail").Checkpoint == left.Position })

	// Rebuilt documents are no reason to send anything again.
	if _, err := p.catalog.Reset(t.Context(), tenant, "orders", "test", false); err != nil {
		t.Fatal(err)
	}
	next := p.add(t, tenant, "order-1", "Placed", `{"customer": "bob"}`)[0]
	if got := e.next(t).read(t); got.Data.Event.ID != next.ID.String() || got.Data.Document == nil || got.Data.Document.ID != "bob" {
		t.Errorf("behind a reset %+v arrives with %+v", got.Data.Event, got.Data.Document)
	}
	if len(e.requests) > 0 {
		t.Errorf("more arrives: %s", e.next(t).body)
	}
}

// A webhook has no lag if its projection has nothing left to fold, even if the newest events do not belong to the
// projection.
func TestUnselectedEventsLeaveNoLag(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	if _, err := p.catalog.Create(t.Context(), tenant, orders, "test"); err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t, always(200))
	p.put(t, tenant, "mail", webhook.Definition{Projection: "orders", URL: e.url})
	p.add(t, tenant, "order-1", "Placed", `{"customer": "ann"}`)
	e.next(t)
	p.add(t, tenant, "order-1", "Unknown", `{"customer": "ann"}`)
	others := p.add(t, tenant, "parcel-1", "Placed", `{"customer": "ann"}`)[0]
	await(t, "it lags behind events that it is not to send", func() bool {
		return p.group(t, tenant, domain.ServiceWebhook, "mail").Checkpoint == others.Position
	})
}

// The webhook's types and filter narrow the projection's selection.
func TestSomeEventsOfAProjection(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	if _, err := p.catalog.Create(t.Context(), tenant, orders, "test"); err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t, always(200))
	p.put(t, tenant, "mail", webhook.Definition{Projection: "orders", Selection: domain.Selection{Types: []string{"Placed"}, Filter: `event.data.customer == "ann"`}, URL: e.url})
	p.add(t, tenant, "order-1", "Placed", `{"customer": "bob"}`)
	p.add(t, tenant, "order-1", "Left", `{"customer": "ann"}`)
	want := p.add(t, tenant, "order-1", "Placed", `{"customer": "ann"}`)[0]
	if r := e.next(t); r.id() != want.ID.String() {
		t.Errorf("%s arrives", r.body)
	}
}

// A webhook whose projection is gone reports this, and continues when the projection is back.
func TestProjectionIsGone(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	if _, err := p.catalog.Create(t.Context(), tenant, orders, "test"); err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t, always(200))
	p.put(t, tenant, "mail", webhook.Definition{Projection: "orders", URL: e.url})
	if err := p.catalog.Delete(t.Context(), tenant, "orders", "test"); err != nil {
		t.Fatal(err)
	}
	want := p.add(t, tenant, "order-1", "Placed", `{"customer": "ann"}`)[0]
	await(t, "the webhook does not say so", func() bool {
		w, err := p.webhooks.Get(t.Context(), tenant, "mail")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(w.DisabledReason, `there is no projection "orders"`)
	})
	if _, err := p.catalog.Create(t.Context(), tenant, orders, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.webhooks.Pause(t.Context(), tenant, "mail", false); err != nil {
		t.Fatal(err)
	}
	if r := e.next(t); r.id() != want.ID.String() {
		t.Errorf("%s arrives", r.body)
	}
}

// An event with a parked document waits, and arrives when the document is stored.
func TestEventsOfParkedDocumentsWait(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{schedule: manyTries()})
	tenant := p.tenant(t)
	faulty := orders
	faulty.On = map[string]string{"Placed": `{"n": doc.n + event.data.n}`}
	faulty.OnError = domain.OnErrorPark
	if _, err := p.catalog.Create(t.Context(), tenant, faulty, "test"); err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t, always(200))
	p.put(t, tenant, "mail", webhook.Definition{Projection: "orders", URL: e.url})
	p.add(t, tenant, "order-1", "Placed", `{"customer": "ann", "n": "many"}`)
	good := p.add(t, tenant, "order-2", "Placed", `{"customer": "bob", "n": 1}`)[0]
	if r := e.next(t); r.id() != good.ID.String() {
		t.Errorf("%s arrives, whose document is parked", r.body)
	}
	await(t, "the event of the parked document does not wait", func() bool {
		status := p.group(t, tenant, domain.ServiceWebhook, "mail")
		return status.Retrying+status.InFlight+status.Parked > 0
	})
	if len(e.requests) > 0 {
		t.Errorf("more arrives: %s", e.next(t).body)
	}
}
