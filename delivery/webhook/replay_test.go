package webhook_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A replay sends a range again with the same ids, and sends no other events.
func TestReplayOfARange(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	e := newEndpoint(t, always(200))
	p.put(t, tenant, "mail", webhook.Definition{Selection: domain.Selection{Categories: []string{"order"}}, URL: e.url})
	all := p.add(t, tenant, "order-1", "OrderPlaced", `{}`, `{}`, `{}`, `{}`, `{}`)
	p.add(t, tenant, "parcel-1", "ParcelSent", `{}`, `{}`)
	for range all {
		e.next(t)
	}
	w, err := p.webhooks.Replay(t.Context(), tenant, "mail", 2, 6)
	if err != nil || w.Replay == nil || w.Replay.From != 2 || w.Replay.To != 6 {
		t.Fatalf("%v: %+v", err, w.Replay)
	}
	got := make(map[string]int)
	for range 4 {
		got[e.next(t).id()]++
	}
	for _, a := range all[1:] {
		if got[a.ID.String()] != 1 {
			t.Errorf("the event at %d arrives %d times", a.Position, got[a.ID.String()])
		}
	}
	done := func() bool {
		w, err := p.webhooks.Get(t.Context(), tenant, "mail")
		if err != nil {
			t.Fatal(err)
		}
		return !w.Replay.DoneAt.IsZero()
	}
	await(t, "the replay does not end", done)
	await(t, "not all is noted", func() bool { return len(p.attempts(t, tenant, "mail")) == 9 })
	replays := 0
	for _, a := range p.attempts(t, tenant, "mail") {
		if a.Replay {
			replays++
		}
	}
	if replays != 4 || len(e.requests) > 0 {
		t.Errorf("%d attempts were of the replay, and %d requests more have arrived", replays, len(e.requests))
	}

	// Another replay replaces it, also up to the head. The webhook itself continues as before.
	if _, err := p.webhooks.Replay(t.Context(), tenant, "mail", 5, 0); err != nil {
		t.Fatal(err)
	}
	if r := e.next(t); r.id() != all[4].ID.String() {
		t.Errorf("%s arrives", r.body)
	}
	await(t, "the second replay does not end", done)
	next := p.add(t, tenant, "order-1", "OrderPlaced", `{}`)[0]
	if r := e.next(t); r.id() != next.ID.String() {
		t.Errorf("%s arrives", r.body)
	}
}

// A running replay can be cancelled, and then nothing is left of it.
func TestReplayIsCancelled(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{schedule: []time.Duration{time.Hour}})
	tenant := p.tenant(t)
	e := newEndpoint(t, func(n int, _ request) int { return []int{200, 200, 500, 500}[min(n, 3)] })
	p.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	p.add(t, tenant, "order-1", "OrderPlaced", `{}`, `{}`)
	e.next(t)
	e.next(t)
	if _, err := p.webhooks.Replay(t.Context(), tenant, "mail", 1, 2); err != nil {
		t.Fatal(err)
	}
	e.next(t)
	e.next(t)
	if _, err := p.webhooks.Replay(t.Context(), tenant, "mail", 1, 2); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("a second replay: %v", err)
	}
	await(t, "its events wait for no retry", func() bool { return p.group(t, tenant, domain.ServiceReplay, "mail").Retrying == 2 })
	if w, err := p.webhooks.CancelReplay(t.Context(), tenant, "mail"); err != nil || w.Replay != nil {
		t.Errorf("%v: %+v", err, w.Replay)
	}
	if _, err := p.groups.Get(t.Context(), tenant, domain.ServiceGroup(domain.ServiceReplay, "mail")); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("its group is there: %v", err)
	}
	if _, err := p.webhooks.CancelReplay(t.Context(), tenant, "mail"); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("cancelling none: %v", err)
	}
}

func TestInvalidReplays(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{idle: true})
	tenant := p.tenant(t)
	p.put(t, tenant, "mail", webhook.Definition{URL: "http://127.0.0.1:8080"})
	p.add(t, tenant, "order-1", "OrderPlaced", `{}`, `{}`)
	for _, wrong := range [][2]int64{{0, 1}, {-1, 1}, {1, 3}, {2, 1}, {3, 0}, {1, -1}} {
		if _, err := p.webhooks.Replay(t.Context(), tenant, "mail", wrong[0], wrong[1]); !domain.IsCode(err, domain.CodeInvalidRequest) {
			t.Errorf("from %d to %d: %v", wrong[0], wrong[1], err)
		}
	}
	if _, err := p.webhooks.Replay(t.Context(), tenant, "other", 1, 2); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("of a webhook that does not exist: %v", err)
	}
}
