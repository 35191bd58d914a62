package webhook_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// If a process dies before it has recorded a delivery, another process delivers the event again with the same id.
// Recorded deliveries are not repeated, and nothing is missing.
func TestProcessDiesBetweenDeliveryAndAcknowledgement(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	first := start(t, db, options{lease: 5 * time.Second})
	tenant := first.tenant(t)
	e := newEndpoint(t, always(0))
	first.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	settled := first.add(t, tenant, "order-1", "OrderPlaced", `{}`)[0]
	e.next(t).answer <- 200
	await(t, "the first is not settled", func() bool {
		return first.group(t, tenant, domain.ServiceWebhook, "mail").Checkpoint == settled.Position
	})

	want := make(map[string]int)
	for _, a := range first.add(t, tenant, "order-1", "OrderPlaced", `{}`, `{}`, `{}`) {
		want[a.ID.String()] = 0
	}
	var taken []request
	for range want {
		taken = append(taken, e.next(t))
	}
	first.network.Cut()
	for _, r := range taken {
		want[r.id()]++
		r.answer <- 200 // and the process dies
	}

	second := start(t, db, options{lease: 5 * time.Second})
	for range want {
		r := e.next(t)
		want[r.id()]++
		r.answer <- 200
	}
	for id, times := range want {
		if times != 2 {
			t.Errorf("%s has arrived %d times", id, times)
		}
	}
	await(t, "not all is settled", func() bool {
		return second.group(t, tenant, domain.ServiceWebhook, "mail").Checkpoint == settled.Position+3
	})
	if len(e.requests) > 0 {
		t.Errorf("%s arrives besides", e.next(t).body)
	}
}

// Leases are short, so that an event of a killed process is soon sent again. A lease is extended while its request is
// running, and while its event waits for others.
func TestLeasesAreExtendedWhileRequestsLast(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	db := pgtest.Database(t)
	first := start(t, db, options{lease: lease})
	start(t, db, options{lease: lease}) // takes what is due again
	tenant := first.tenant(t)
	e := newEndpoint(t, always(0))
	first.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	data := make([]string, 12)
	for i := range data {
		data[i] = `{}`
	}
	want := make(map[string]int)
	last := int64(0)
	for _, a := range first.add(t, tenant, "order-1", "OrderPlaced", data...) {
		want[a.ID.String()], last = 0, a.Position
	}
	r, began := e.next(t), time.Now()
	await(t, "time does not go by", func() bool { return time.Since(began) > 2*lease })
	want[r.id()]++
	r.answer <- 200
	for range len(want) - 1 {
		r = e.next(t)
		want[r.id()]++
		r.answer <- 200
	}
	await(t, "not all is settled", func() bool {
		return first.group(t, tenant, domain.ServiceWebhook, "mail").Checkpoint == last
	})
	for id, times := range want {
		if times != 1 {
			t.Errorf("%s has arrived %d times", id, times)
		}
	}
	if len(e.requests) > 0 {
		t.Errorf("%s arrives besides", e.next(t).body)
	}
}

// A process that stops gracefully lets running requests finish, and leaves the rest to the others at once.
func TestGracefulShutdown(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	first := start(t, db, options{})
	tenant := first.tenant(t)
	e := newEndpoint(t, always(0))
	first.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	data := make([]string, 40)
	for i := range data {
		data[i] = `{}`
	}
	want := make(map[string]int)
	for _, a := range first.add(t, tenant, "order-1", "OrderPlaced", data...) {
		want[a.ID.String()] = 0
	}
	var taken []request
	for range 4 {
		taken = append(taken, e.next(t))
	}
	stopped := make(chan struct{})
	go func() { first.stop(); close(stopped) }()
	for _, r := range taken {
		want[r.id()]++
		r.answer <- 200
	}
	for more := true; more; {
		select {
		case r := <-e.requests: // started before it had to stop
			want[r.id()]++
			r.answer <- 200
		case <-stopped:
			more = len(e.requests) > 0
		}
	}
	start(t, db, options{}) // if it had to wait for leases, these would last a minute
	for left := len(want); left > 0; {
		left = 0
		for _, times := range want {
			if times == 0 {
				left++
			}
		}
		if left > 0 {
			r := e.next(t)
			want[r.id()]++
			r.answer <- 200
		}
	}
	for id, times := range want {
		if times != 1 {
			t.Errorf("%s has arrived %d times", id, times)
		}
	}
}
