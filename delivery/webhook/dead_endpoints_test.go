package webhook_test

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A hundred endpoints that hang, fail, refuse, redirect or ignore run beside a good one, which still receives each
// event soon. The command manifold bench webhook measures how soon.
func TestDeadEndpointsDelayNobody(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{schedule: manyTries(), pause: 100 * time.Millisecond})
	tenant := p.tenant(t)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	refuses := "http://" + nobody.Addr().String()
	// Nobody accepts its connections. They wait in the system's queue, or for a place in it.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ignores := "http://" + silent.Addr().String()
	hangs, fails, redirects := newEndpoint(t, always(0)), newEndpoint(t, always(500)), newEndpoint(t, always(302))
	for i := range 100 {
		url := []string{hangs.url, fails.url, refuses, redirects.url, ignores}[i%5]
		p.put(t, tenant, fmt.Sprintf("dead-%d", i), webhook.Definition{URL: url})
	}
	good := newEndpoint(t, always(200))
	p.put(t, tenant, "good", webhook.Definition{URL: good.url})
	var worst time.Duration
	for i := range 40 {
		began := time.Now()
		want := p.add(t, tenant, fmt.Sprintf("order-%d", i), "OrderPlaced", `{}`)[0]
		if r := good.next(t); r.id() != want.ID.String() {
			t.Fatalf("%s arrives, not %s", r.id(), want.ID)
		}
		worst = max(worst, time.Since(began))
	}
	// All of them were tried meanwhile, and the requests to hanging endpoints last as long as they may.
	hangs.next(t)
	fails.next(t)
	redirects.next(t)
	if worst > 10*time.Second {
		t.Errorf("one event took %s", worst)
	}
	t.Logf("the slowest took %s", worst)
}

// A dead endpoint receives few probes, and receives what it has missed when it is back.
func TestDeadEndpointRecovers(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	outcomes := make(map[webhook.Outcome]int)
	p := start(t, pgtest.Database(t), options{schedule: manyTries(), pause: 50 * time.Millisecond, observer: webhook.Observer{
		Attempted: func(outcome webhook.Outcome, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			outcomes[outcome]++
		},
	}})
	tenant := p.tenant(t)
	status := make(chan int, 1)
	status <- http.StatusServiceUnavailable
	e := newEndpoint(t, func(int, request) int {
		now := <-status
		status <- now
		return now
	})
	p.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	want := make(map[string]bool)
	for i := range 100 {
		want[p.add(t, tenant, fmt.Sprintf("order-%d", i), "OrderPlaced", `{}`)[0].ID.String()] = true
	}
	await(t, "the breaker does not open", func() bool { return p.webhooks.OpenBreakers() == 1 })
	for range 7 { // about five to open the breaker, and a probe
		e.next(t)
	}
	<-status
	status <- 200
	for len(want) > 0 {
		delete(want, e.next(t).id())
	}
	await(t, "not all is settled", func() bool { return p.group(t, tenant, domain.ServiceWebhook, "mail").Checkpoint == 100 })
	if open := p.webhooks.OpenBreakers(); open != 0 {
		t.Errorf("%d breakers are open", open)
	}
	mu.Lock()
	defer mu.Unlock()
	if outcomes[webhook.OutcomeOK] != 100 || outcomes[webhook.OutcomeFailed] < 6 || outcomes[webhook.OutcomeFailed] > 60 {
		t.Errorf("there were %v", outcomes)
	}
}

// If no inside address is allowed, nothing reaches one, and each attempt is recorded as blocked.
func TestWebhooksToInternalAddresses(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{inward: true})
	tenant := p.tenant(t)
	e := newEndpoint(t, always(200))
	if _, _, err := p.webhooks.Put(t.Context(), tenant, "mail", webhook.Definition{URL: e.url}); !domain.IsCode(err, domain.CodeInvalidRequest) {
		t.Errorf("an address inside is taken: %v", err)
	}
	_, port, err := net.SplitHostPort(e.url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	p.put(t, tenant, "mail", webhook.Definition{URL: "http://localhost:" + port})
	p.add(t, tenant, "order-1", "OrderPlaced", `{}`)
	await(t, "it is not noted", func() bool { return len(p.attempts(t, tenant, "mail")) > 0 })
	if a := p.attempts(t, tenant, "mail")[0]; a.Outcome != webhook.OutcomeBlocked || a.Status != 0 || a.Error == "" {
		t.Errorf("the attempt is %+v", a)
	}
	if len(e.requests) > 0 {
		t.Error("something has arrived")
	}
}
