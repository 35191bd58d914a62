package service_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/service"
)

// A program's reactor is called after a projection has stored what an event changes, from the reactor's creation on.
// The tenant can see its dead letters. Its metrics use only names chosen by the program.
func TestReactorOfAProgram(t *testing.T) {
	t.Parallel()
	called := make(chan reactor.Event, 10)
	fail := errors.New("no such mailbox")
	watch := func(_ context.Context, _ domain.TenantID, event reactor.Event) error {
		called <- event
		if strings.Contains(string(event.Data), "bad") {
			return fail
		}
		return nil
	}
	p := startWith(t, configuration(pgtest.Database(t)), withReactor(reactor.Definition{
		Name: "mail", Projection: "orders.seen", Types: []string{"Placed", "Other"}, MaxAttempts: 1,
	}, watch))
	key := newTenant(t, p, "acme")
	u := as(t, p, key)
	call := func(method, path, body string, status int) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.Address()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != status {
			t.Fatalf("%s %s: %s, %s, %v", method, path, response.Status, answer, err)
		}
		return string(answer)
	}
	take := func() reactor.Event {
		t.Helper()
		select {
		case event := <-called:
			return event
		case <-time.After(time.Minute):
			t.Fatal("the reactor is not called")
			return reactor.Event{}
		}
	}
	u.add("order-1", "Placed", `{"n": 1}`) // before there is such a projection: the reactor's place is in the log
	call(http.MethodPost, "/v1/projections", `{"name": "orders.seen", "source": {"categories": ["order"]}, "on": {"Placed": "{'n': event.data.n}", "Dropped": "null"}}`, 201)
	if event := take(); event.Position != 1 || event.DocumentID != "order-1" || event.Document == nil || event.Document.Version != 1 {
		t.Errorf("it is called with %+v", event)
	}
	u.put(`{"name": "orders.seen", "source": {"categories": ["order"]}, "publishChanges": true, "on": {"Placed": "{'n': event.data.n}", "Dropped": "null"}}`)
	u.add("order-2", "Placed", `{"n": "bad"}`)
	for event := take(); event.Stream != "order-2"; event = take() {
		t.Errorf("it is called with %+v", event)
	}
	deadline := time.Now().Add(time.Minute)
	for letters := ""; !strings.Contains(letters, "no such mailbox"); letters = call(http.MethodGet, "/v1/subscriptions/reactor.mail/dead-letters", "", 200) {
		if time.Now().After(deadline) {
			t.Fatalf("the dead letters are %s", letters)
		}
	}
	for metrics := ""; !strings.Contains(metrics, `changes_published_total{projection="(own)"} 1`); _, metrics = get(t, p, "/metrics") {
		if time.Now().After(deadline) {
			t.Fatalf("the metrics are %s", metrics)
		}
	}
	if _, metrics := get(t, p, "/metrics"); !strings.Contains(metrics, `reactor_calls_total{outcome="failed",reactor="mail"} 1`) || !strings.Contains(metrics, `reactor_calls_total{outcome="ok",reactor="mail"} 1`) {
		t.Errorf("the metrics are %s", metrics)
	}
}

func TestAReactorThatCannotWork(t *testing.T) {
	t.Parallel()
	for want, definition := range map[string]reactor.Definition{
		`reactor "Mail": name: `: {Name: "Mail"},
		`filter`:                 {Name: "mail", Filter: "event.strem"},
	} {
		_, err := service.Start(t.Context(), configuration(pgtest.Database(t)), slog.New(slog.DiscardHandler), withReactor(definition,
			func(context.Context, domain.TenantID, reactor.Event) error { return nil }))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", definition, err)
		}
	}
}
