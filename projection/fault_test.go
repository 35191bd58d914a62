package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// A map in Go stores the records that events produce, and never loads any.
func TestMapInGo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	type line struct {
		Type string `json:"type"`
		At   int64  `json:"at"`
	}
	mapping := func(key func(domain.Event) (string, error)) folding.Handler {
		return folding.MapOf(folding.MapRule[line]{Key: key, Map: func(event domain.Event) (*line, error) {
			switch event.Type {
			case "Nothing":
				return nil, nil
			case "Bad":
				panic("as bad as can be")
			}
			return &line{event.Type, event.Position}, nil
		}})
	}
	handlers := map[string]folding.Handler{
		"each":   mapping(nil),
		"latest": mapping(func(event domain.Event) (string, error) { return event.Stream, nil }),
	}
	p := b.process(options{driver: neverLoads{b.driver, t}, handlers: handlers})
	p.start(t, b)
	for name := range handlers {
		if _, err := p.catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: name, Handler: name}, "test"); err != nil {
			t.Fatal(err)
		}
	}
	each, latest := map[string]domain.Document{}, map[string]domain.Document{}
	var last int64
	for i := range 40 {
		stream, eventType := fmt.Sprintf("x-%d", i%3), "Tick"
		if i%5 == 4 || i > 36 {
			eventType = "Nothing"
		}
		last = b.append(t, tenant, stream, eventType, `{}`)
		if eventType == "Tick" {
			data := json.RawMessage(fmt.Sprintf(`{"type": "Tick", "at": %d}`, last))
			latest[stream] = domain.Document{ID: stream, Version: last, Data: data}
			id := b.log(t, tenant)[last-1].ID.String()
			each[id] = domain.Document{ID: id, Version: last, Data: data}
		}
	}
	mustEqual(t, documents(t, p.catalog, tenant, "each", last), each)
	mustEqual(t, documents(t, p.catalog, tenant, "latest", last), latest)
	// An event that makes no record, when nothing else is to be saved: a reader may wait for it all the same.
	last = b.append(t, tenant, "x-1", "Nothing", `{}`)
	mustEqual(t, documents(t, p.catalog, tenant, "each", last), each)
	bad := b.append(t, tenant, "x-1", "Bad", `{}`)
	_, err := p.catalog.Document(t.Context(), tenant, "latest", "x-1", projection.Freshness{MinPosition: bad, Wait: time.Minute})
	if !domain.IsCode(err, domain.CodeFaulted) || !strings.Contains(err.Error(), "as bad as can be") {
		t.Errorf("a map that panics: %v", err)
	}
}

// A stopped pair continues when its event is retried or skipped, whichever process received the request.
func TestRetryAndSkip(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	var broken atomic.Bool
	broken.Store(true)
	p := b.process(options{handlers: map[string]folding.Handler{"tally": addingUp(&broken)}})
	p.start(t, b)
	web := b.process(options{handlers: map[string]folding.Handler{"tally": addingUp(&broken)}}) // another process, which follows nothing
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "tally", Handler: "tally"}, "test"); err != nil {
		t.Fatal(err)
	}
	stands := func(last int64) {
		t.Helper()
		_, err := web.catalog.Document(t.Context(), tenant, "tally", "a", projection.Freshness{MinPosition: last, Wait: time.Minute})
		if !domain.IsCode(err, domain.CodeFaulted) {
			t.Fatalf("it is not stopped: %v", err)
		}
	}
	b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	first := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": "many"}`)
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 2}`)
	stands(last)
	if _, err := web.catalog.Skip(t.Context(), tenant, "tally", last, "", "test"); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("skipped another event: %v", err)
	}
	broken.Store(false)
	if _, err := web.catalog.Retry(t.Context(), tenant, "tally"); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, documents(t, web.catalog, tenant, "tally", last), addedUp(t, b.log(t, tenant), nil))
	if _, err := web.catalog.Skip(t.Context(), tenant, "tally", first, "", "test"); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("skipped an event that has taken effect: %v", err)
	}
	broken.Store(true)
	second := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": "many"}`)
	last = b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 3}`)
	stands(last)
	skipped, err := web.catalog.Skip(t.Context(), tenant, "tally", second, "old", "test")
	if err != nil || skipped.By != "test" || skipped.Version != 1 || skipped.Message != `"many" is no number` {
		t.Fatalf("skipped %+v, %v", skipped, err)
	}
	want := addedUp(t, b.log(t, tenant), map[int64][]string{second: nil})
	mustEqual(t, documents(t, web.catalog, tenant, "tally", last), want)
	// Another build by the same version passes it over, too; the first event is not skipped.
	broken.Store(false)
	if _, err := web.catalog.Reset(t.Context(), domain.Everyone, "tally", "test", false); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, documents(t, web.catalog, tenant, "tally", last), want)
}

// A document that the database refuses is parked by the event that caused this, and stays as it was before.
func TestDocumentsRefusedByTheDatabaseAreParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for i := range 40 {
		b.append(t, tenant, fmt.Sprintf("x-%d", i%3), "A", `{}`)
	}
	definition := folding.WithDefaults(domain.Definition{Name: "p", On: map[string]string{"A": "{'n': doc.?n.orValue(0) + 1}"}, OnError: domain.OnErrorPark})
	fold, err := folding.Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: 1, Database: "default"}
	replay := &projection.Replay{Driver: refusing{Driver: b.driver, document: `{"n":14}`}, Build: build, Tenant: tenant, Fold: fold, Registry: b.store.Registry, Limits: projection.CatchUpLimits}
	if err := replay.Run(t.Context(), b.store, 40); err != nil {
		t.Fatal(err)
	}
	want := fromScratch(t, definition, b.log(t, tenant)[:39])
	mustEqual(t, stored(t, t, b, build, tenant), want)
	if got, want := parkedNow(t, t, b, tenant, build, 40), (waitingEvents{"x-0": {40}}); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("parked are %v", got)
	}
	parked, _, err := b.store.ParkedDocument(t.Context(), tenant, build.ProjectionID, 1, "x-0")
	if err != nil || canonical(t, parked.Before) != `{"n":13}` || !strings.Contains(parked.Message, "too large") || parked.Where != "on.A" {
		t.Errorf("it is parked as %+v, %v", parked, err)
	}
}

// A projection parks a limited number of documents. Then it stops, and says why.
func TestParkedDocumentsAreLimited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	bad := make([]domain.NewEvent, 600)
	for i := range bad {
		bad[i] = domain.NewEvent{Type: "A", Data: json.RawMessage(`{}`)}
	}
	for i := range 2 {
		if _, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: fmt.Sprintf("x-%d", i), Expected: domain.Any, Events: bad}}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, definition := range []domain.Definition{
		{Name: "p", Key: "event.id", On: map[string]string{"A": "{'n': event.data.n}"}}, // in folds
		{Name: "p", Map: map[string]string{"A": "{'n': event.data.n}"}},
		{Name: "p", Key: "event.data.n", On: map[string]string{"A": "doc"}}, // in keys
	} {
		definition.OnError = domain.OnErrorPark
		fold, err := folding.Compile(definition)
		if err != nil {
			t.Fatal(err)
		}
		build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: int64(i + 1), Database: "default"}
		for _, events := range []int{250, 50_000} {
			replay := &projection.Replay{Driver: b.driver, Build: build, Tenant: tenant, Fold: fold, Registry: b.store.Registry, Limits: projection.Limits{Events: events, Bytes: 1 << 20, DocumentBytes: 1 << 20}}
			err = replay.Run(t.Context(), b.store, 1200)
			fault, ok := errors.AsType[*folding.EventError](err)
			if !ok || fault.Event.Position != projection.MaxParked+1 || !strings.Contains(fault.Failure().Message, "1000 documents are parked already") {
				t.Fatalf("definition %d: it ends with %v", i, err)
			}
		}
		checkpoint, err := b.driver.Checkpoint(t.Context(), build, tenant)
		if parked := parkedNow(t, t, b, tenant, build, 1200); err != nil || checkpoint != projection.MaxParked || len(parked) != projection.MaxParked {
			t.Errorf("definition %d: at %d there are %d parked, %v", i, checkpoint, len(parked), err)
		}
	}
}

// A live projection that exceeds what a request may fold says so, and what to do. Reading one of its documents may
// still be cheap.
func TestLiveProjectionsAreLimited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	if _, err := p.catalog.Create(t.Context(), tenant, domain.Definition{Name: "alive", Mode: domain.ModeLive, On: map[string]string{"A": "{'n': doc.?n.orValue(0) + 1}"}}, "test"); err != nil {
		t.Fatal(err)
	}
	events := make([]domain.NewEvent, 1000)
	for i := range events {
		events[i] = domain.NewEvent{Type: "A", Data: json.RawMessage(`{}`)}
	}
	for i := range 101 {
		if _, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: fmt.Sprintf("x-%d", i), Expected: domain.Any, Events: events}}}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.catalog.Documents(t.Context(), tenant, "alive", projection.DocumentsQuery{PageSize: 10})
	if !domain.IsCode(err, domain.CodeTooCostly) || !strings.Contains(err.Error(), "more than 100000 events") || !strings.Contains(err.Error(), "async") {
		t.Errorf("all of it: %v", err)
	}
	// Each event counts once for each of its documents.
	spread := domain.Definition{Name: "spread", Mode: domain.ModeLive, Key: "lists.range(100).map(i, string(i))", On: map[string]string{"A": "doc"}}
	if _, err := p.catalog.Create(t.Context(), tenant, spread, "test"); err != nil {
		t.Fatal(err)
	}
	_, err = p.catalog.Document(t.Context(), tenant, "spread", "7", projection.Freshness{})
	if !domain.IsCode(err, domain.CodeTooCostly) || !strings.Contains(err.Error(), "each counted once for each of its documents") {
		t.Errorf("a document of events with many: %v", err)
	}
	one, err := p.catalog.Document(t.Context(), tenant, "alive", "x-7", projection.Freshness{})
	if err != nil || canonical(t, one.Data) != `{"n":1000}` || one.Version != 8000 {
		t.Errorf("one of it is %+v, %v", one, err)
	}
	status, err := p.catalog.Status(t.Context(), tenant, "alive")
	if err != nil || status.State != projection.StateCaughtUp || status.Checkpoint != 101_000 {
		t.Errorf("the status is %+v, %v", status, err)
	}
}

// neverLoads is a driver whose documents must not be loaded.
type neverLoads struct {
	drivers.Driver
	t *testing.T
}

func (n neverLoads) Load(context.Context, domain.Build, domain.TenantID, []string) ([]domain.Document, error) {
	n.t.Error("a map loads documents")
	return nil, nil
}
