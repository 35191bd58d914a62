package webhook_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Of events with the same id within the window, only the first arrives, however many attempts it takes. Events without
// an id all arrive.
func TestDuplicatesAreNotSent(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	e := newEndpoint(t, func(n int, _ request) int { return []int{500, 200}[min(n, 1)] })
	p.put(t, tenant, "mail", webhook.Definition{URL: e.url, DedupeID: `event.type == "Note" ? null : event.data.order`, DedupeWindow: time.Hour})
	want := make(map[string]int)
	for i := range 3 {
		for range 4 {
			id := p.add(t, tenant, fmt.Sprintf("order-%d", i), "Placed", fmt.Sprintf(`{"order": "o%d"}`, i))[0].ID.String()
			if _, known := want[fmt.Sprint(i)]; !known {
				want[fmt.Sprint(i)] = 1
				want[id]++
			}
			want[p.add(t, tenant, "note-1", "Note", `{"order": "o1"}`)[0].ID.String()]++ // null
			want[p.add(t, tenant, "note-1", "Other", `{}`)[0].ID.String()]++             // the expression fails
		}
	}
	const sent, duplicates = 3 + 3*4*2, 3 * 3
	got := make(map[string]bool)
	for range sent + 1 { // the first one was sent twice
		got[e.next(t).id()] = true
	}
	if len(got) != sent {
		t.Errorf("%d events have arrived, not %d", len(got), sent)
	}
	for id := range got {
		if want[id] == 0 {
			t.Errorf("%s has arrived", id)
		}
	}
	await(t, "not all is noted", func() bool { return len(p.attempts(t, tenant, "mail")) == sent+1+duplicates })
	noted := 0
	for _, a := range p.attempts(t, tenant, "mail") {
		if a.Outcome == webhook.OutcomeDuplicate {
			noted++
			if a.Status != 0 || !a.NextAt.IsZero() {
				t.Errorf("a duplicate is noted as %+v", a)
			}
		}
	}
	if noted != duplicates || len(e.requests) > 0 {
		t.Errorf("%d duplicates are noted, and %d requests more have arrived", noted, len(e.requests))
	}
	await(t, "not all is settled", func() bool { return p.group(t, tenant, domain.ServiceWebhook, "mail").Checkpoint == 36 })

	// A replay deduplicates separately, with the same result.
	if _, err := p.webhooks.Replay(t.Context(), tenant, "mail", 1, 0); err != nil {
		t.Fatal(err)
	}
	for range sent {
		if id := e.next(t).id(); want[id] == 0 {
			t.Errorf("%s is replayed", id)
		}
	}
	await(t, "the replay does not end", func() bool {
		w, err := p.webhooks.Get(t.Context(), tenant, "mail")
		return err == nil && !w.Replay.DoneAt.IsZero()
	})
	if len(e.requests) > 0 {
		t.Errorf("%d requests more have arrived", len(e.requests))
	}
}
