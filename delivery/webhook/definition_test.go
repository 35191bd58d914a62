package webhook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

func TestInvalidWebhooks(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{idle: true})
	tenant := p.tenant(t)
	live := orders
	live.Name, live.Mode = "live-orders", domain.ModeLive
	if _, err := p.catalog.Create(t.Context(), tenant, live, "test"); err != nil {
		t.Fatal(err)
	}
	for where, change := range map[string]func(*webhook.Definition){
		"url":                  func(d *webhook.Definition) { d.URL = "ftp://example.com" },
		"format":               func(d *webhook.Definition) { d.Format = "xml" },
		"ordering":             func(d *webhook.Definition) { d.Ordering = "random" },
		"timeout":              func(d *webhook.Definition) { d.Timeout = 16 * time.Second },
		"delay":                func(d *webhook.Definition) { d.Delay = -1 },
		"from":                 func(d *webhook.Definition) { d.From = "yesterday" },
		"filter":               func(d *webhook.Definition) { d.Filter = "event." },
		"types[0]":             func(d *webhook.Definition) { d.Types = []string{""} },
		"source.categories[0]": func(d *webhook.Definition) { d.Categories = []string{"a-b"} },
		"source": func(d *webhook.Definition) {
			d.Projection, d.Categories = "live-orders", []string{"order"}
		},
		"source.projection": func(d *webhook.Definition) { d.Projection = "nothing" },
		"dedupe.id":         func(d *webhook.Definition) { d.DedupeID, d.DedupeWindow = "event.", time.Second },
		"dedupe.window":     func(d *webhook.Definition) { d.DedupeID = "event.id" },
	} {
		d := webhook.Definition{URL: "https://example.com/"}
		change(&d)
		_, _, err := p.webhooks.Put(t.Context(), tenant, "mail", d)
		if failure, ok := errors.AsType[*domain.Error](err); !ok || failure.Where != where {
			t.Errorf("%s: %v", where, err)
		}
	}
	for id, want := range map[string]string{"event.position": "this gives int; write string(...)", "[event.id]": "this gives list"} {
		d := webhook.Definition{URL: "https://example.com/", DedupeID: id, DedupeWindow: time.Second}
		_, _, err := p.webhooks.Put(t.Context(), tenant, "mail", d)
		if failure, ok := errors.AsType[*domain.Error](err); !ok || failure.Where != "dedupe.id" || !strings.Contains(failure.Message, want) {
			t.Errorf("dedupe.id %s: %v", id, err)
		}
	}
	live1 := webhook.Definition{URL: "https://example.com/", Projection: "live-orders"}
	if _, _, err := p.webhooks.Put(t.Context(), tenant, "mail", live1); !domain.IsCode(err, domain.CodeUnsupported) {
		t.Errorf("a live projection: %v", err)
	}
	if _, _, err := p.webhooks.Put(t.Context(), tenant, "webhook.mail", webhook.Definition{URL: "https://example.com/"}); !domain.IsCode(err, domain.CodeInvalidRequest) {
		t.Errorf("a name with a dot: %v", err)
	}
	if all, err := p.webhooks.List(t.Context(), tenant, "", 10); err != nil || len(all) != 0 {
		t.Errorf("there is %+v, %v", all, err)
	}
}

// A webhook can be changed in place. The settings that it keeps from its creation cannot be changed, and may be
// omitted.
func TestWebhookIsChanged(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	old, e := newEndpoint(t, always(500)), newEndpoint(t, always(200))
	first := webhook.Definition{URL: old.url, From: "start", Ordering: domain.OrderingStream}
	p.put(t, tenant, "mail", first)
	for _, change := range []func(*webhook.Definition){
		func(d *webhook.Definition) { d.From = "7" },
		func(d *webhook.Definition) { d.Ordering = domain.OrderingNone },
	} {
		d := first
		change(&d)
		if _, _, err := p.webhooks.Put(t.Context(), tenant, "mail", d); !domain.IsCode(err, domain.CodeConflict) {
			t.Errorf("%+v: %v", d, err)
		}
	}
	w, created, err := p.webhooks.Put(t.Context(), tenant, "mail", webhook.Definition{URL: e.url, Selection: domain.Selection{Types: []string{"OrderPaid"}, Query: domain.Query{{Types: []string{"OrderPaid"}, Tags: []string{}}}}})
	if err != nil || created || w.From != "start" || w.Ordering != domain.OrderingStream || len(w.Secrets) != 1 {
		t.Fatalf("%v: created %t, %+v", err, created, w)
	}
	w.Query[0].Tags = []string{}
	again, created, err := p.webhooks.Put(t.Context(), tenant, "mail", w.Definition)
	if err != nil || created || again.Revision != w.Revision {
		t.Errorf("%v: putting it again gives the revision %d behind %d", err, again.Revision, w.Revision)
	}
	// Soon all events go to the new URL, including those that the old URL refuses.
	for n, changed := 0, false; !changed; n++ {
		p.add(t, tenant, fmt.Sprint("order-soon", n), "OrderPaid", `{}`)
		select {
		case <-old.requests:
		case <-e.requests:
			changed = true
		case <-time.After(time.Minute):
			t.Fatal("nothing arrives")
		}
	}
	for len(old.requests) > 0 {
		<-old.requests // from before: who sent to it has ended by now
	}
	p.add(t, tenant, "order-1", "OrderPlaced", `{}`)
	want := p.add(t, tenant, "order-1", "OrderPaid", `{}`)[0]
	for r := e.next(t); r.id() != want.ID.String(); r = e.next(t) {
		if !strings.Contains(string(r.body), `"stream":"order-soon`) {
			t.Errorf("%s arrives", r.body)
		}
	}
	if len(old.requests) > 0 {
		t.Error("something arrives at the old URL")
	}
	if err := p.webhooks.Delete(t.Context(), tenant, "mail"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.groups.Get(t.Context(), tenant, domain.ServiceGroup(domain.ServiceWebhook, "mail")); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("its group is there: %v", err)
	}
}

func TestSecretsSignUntilTheyExpire(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	e := newEndpoint(t, always(200))
	one := p.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	two, err := p.webhooks.AddSecret(t.Context(), tenant, "mail", -1)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(times int) { // soon: requests that are running are signed with the old secrets
		t.Helper()
		await(t, fmt.Sprintf("there are not %d signatures", times), func() bool {
			p.add(t, tenant, "order-1", "OrderPlaced", `{}`)
			return len(strings.Fields(e.next(t).header.Get("Webhook-Signature"))) == times
		})
	}
	signed(2)
	if _, err := p.webhooks.RemoveSecret(t.Context(), tenant, "mail", one.Secrets[0].ID); err != nil {
		t.Fatal(err)
	}
	signed(1)
	if _, err := p.webhooks.RemoveSecret(t.Context(), tenant, "mail", two.Secrets[1].ID); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("the last one is removed: %v", err)
	}
	// The others expire at once.
	if _, err := p.webhooks.AddSecret(t.Context(), tenant, "mail", 0); err != nil {
		t.Fatal(err)
	}
	signed(1)
}

func TestEventsArriveAsCloudEvents(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	if _, err := p.catalog.Create(t.Context(), tenant, orders, "test"); err != nil {
		t.Fatal(err)
	}
	plain, e := newEndpoint(t, always(200)), newEndpoint(t, always(200))
	p.put(t, tenant, "plain", webhook.Definition{URL: plain.url, Format: webhook.FormatCloudEvents})
	p.put(t, tenant, "documents", webhook.Definition{URL: e.url, Format: webhook.FormatCloudEvents, Projection: "orders"})
	want := p.add(t, tenant, "order-1", "Placed", `{"customer": "ann \"é"}`)[0]
	for _, r := range []request{plain.next(t), e.next(t)} {
		var got map[string]any
		if err := json.Unmarshal(r.body, &got); err != nil {
			t.Fatalf("%v: %s", err, r.body)
		}
		if r.header.Get("Content-Type") != cloudevents.StructuredType || got["id"] != want.ID.String() || r.id() != want.ID.String() || got["type"] != "Placed" || got["specversion"] != "1.0" || got["dataschema"] != "schema:Placed" {
			t.Errorf("%v: %s", r.header, r.body)
		}
		if text, ok := got["manifolddocument"].(string); ok {
			var document struct {
				ID   string
				Data json.RawMessage
			}
			if err := json.Unmarshal([]byte(text), &document); err != nil || document.ID != `ann "é` || string(document.Data) != `{"n": 1}` {
				t.Errorf("%v: %s", err, text)
			}
		}
	}
}

// If an event belongs to several documents, its message has all of them, with as much of their data as one document may
// have.
func TestAnEventArrivesWithAllOfItsDocuments(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	definition := orders
	definition.Key = `[event.data.customer, {"id": "gone"}, {"id": "all", "item": 1}]`
	definition.On = map[string]string{"Placed": `key == "gone" ? null : {"n": doc.n + 1, "item": item}`}
	if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	plain, cloud := newEndpoint(t, always(200)), newEndpoint(t, always(200))
	p.put(t, tenant, "plain", webhook.Definition{URL: plain.url, Projection: "orders"})
	p.put(t, tenant, "cloud", webhook.Definition{URL: cloud.url, Format: webhook.FormatCloudEvents, Projection: "orders"})
	p.add(t, tenant, "order-1", "Placed", `{"customer": "ann"}`)
	const want = `[{"id":"ann","version":1,"data":{"n":1,"item":null}},{"id":"gone","data":null},{"id":"all","version":1,"data":{"n":1,"item":1}}]`
	var standard struct {
		Data struct{ Documents json.RawMessage }
	}
	body := plain.next(t).body
	if err := json.Unmarshal(body, &standard); err != nil || !folding.SameValue(standard.Data.Documents, json.RawMessage(want)) {
		t.Errorf("%v: %s", err, body)
	}
	var event struct{ ManifoldDocuments string }
	body = cloud.next(t).body
	if err := json.Unmarshal(body, &event); err != nil || !folding.SameValue(json.RawMessage(event.ManifoldDocuments), json.RawMessage(want)) {
		t.Errorf("%v: %s", err, body)
	}

	large := json.RawMessage(`{"text": "` + strings.Repeat("x", domain.MaxDocumentBytes/2) + `"}`)
	var documents []projection.EventDocument
	for _, id := range []string{"a", "b", "c"} {
		documents = append(documents, projection.EventDocument{ID: id, Document: &domain.Document{ID: id, Version: 7, Data: large}})
	}
	text := string(webhook.AppendDocuments(nil, documents))
	if !json.Valid([]byte(text)) || strings.Count(text, `"data":`) != 1 || !strings.HasSuffix(text, `{"id":"b","version":7,"omitted":true},{"id":"c","version":7,"omitted":true}]`) {
		t.Errorf("large documents are in %d bytes, which end with %s", len(text), text[len(text)-100:])
	}
}

// Tenants without webhooks cost no query, however many there are. Tenants with webhooks cost one per change.
func TestTenantsWithoutWebhooksCostNothing(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	p := start(t, pgtest.Database(t), options{idle: true})
	p.network.Before("t.state <> 'active'", func() bool { asked.Add(1); return true })
	for range 50 {
		found, err := p.webhooks.Consumers(t.Context(), domain.NewTenantID())
		if err != nil || len(found) > 0 {
			t.Fatalf("%v, %v", found, err)
		}
	}
	if asked.Load() > 0 {
		t.Errorf("%d tenants were asked", asked.Load())
	}
	tenant := p.tenant(t)
	p.put(t, tenant, "mail", webhook.Definition{URL: "https://example.com"})
	await(t, "the webhook is not listed", func() bool {
		found, err := p.webhooks.Consumers(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		return len(found) == 1 && found[0].Name == "webhook.mail"
	})
	before := asked.Load()
	for range 50 {
		if _, err := p.webhooks.Consumers(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	if now := asked.Load(); now-before > 2 { // notices of the change may come late
		t.Errorf("it was asked %d times", now-before)
	}
}
