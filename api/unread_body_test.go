package api_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/api"
)

// A request that is answered before its body has arrived frees its connection soon, instead of after the longest time
// for a body.
func TestAnAnswerDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	for _, c := range []struct {
		method, target string
		status         int
	}{
		{"POST", "/v1/append", 415},                // the handler checks the header first
		{"POST", "/v1/subscriptions/x?y=1", 405},   // no such method
		{"PUT", "/v1/subscriptions/x?y=1", 400},    // no such parameter
		{"PUT", "/v1/subscriptions/%00", 400},      // no such name
		{"POST", "/v1/subscriptions/x/pause", 400}, // accepts no body
		{"GET", "/v1/streams/order-1", 400},        // accepts no body either
	} {
		t.Run(c.method+" "+c.target, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			status, _ := a.raw(t, rawRequest{c.method, c.target, []string{"Authorization: Bearer " + a.key, "Content-Type: text/plain", "Content-Length: 10"}, ""})
			if took := time.Since(start); status != c.status || took > 20*time.Second {
				t.Errorf("it is answered %d after %s; want %d within a few seconds", status, took, c.status)
			}
		})
	}
}

// A request beyond its tenant's limit does not make its connection one of a known client.
func TestARequestBeyondTheBoundIsNotKnown(t *testing.T) {
	t.Parallel()
	var known atomic.Int64
	a := newWorld(t, func(c *api.Config) {
		c.TenantRequests = 1
		c.Known = func(context.Context) { known.Add(1) }
	}).tenant("acme")
	first := a.open("GET", "/v1/subscribe/$all", nil)
	defer first.Body.Close()
	if first.StatusCode != http.StatusOK {
		t.Fatalf("a follower is answered %s", first.Status)
	}
	before := known.Load()
	if before == 0 {
		t.Error("a follower is not known")
	}
	a.get("/v1/streams/order-1").want(429)
	if after := known.Load(); after != before {
		t.Errorf("a refused request is noted as known")
	}
}

// A tenant cannot occupy more connections than its limit of requests by sending requests that are refused: delayed
// requests count.
func TestDelayedRefusalsCountAsRequests(t *testing.T) {
	t.Parallel()
	const most = 8
	a := newWorld(t, func(c *api.Config) { c.TenantRequests = most }).tenant("acme")
	var flood sync.WaitGroup
	defer flood.Wait()
	ended := make(chan struct{})
	defer close(ended)
	delayed := make(chan struct{}, 100)
	for range most {
		flood.Go(func() {
			for {
				began := time.Now()
				_, _ = a.raw(t, rawRequest{"GET", "/v1/projections?nonsense=1", []string{"Authorization: Bearer " + a.key}, ""})
				select {
				case <-ended:
					return
				default:
				}
				if time.Since(began) > 30*time.Millisecond {
					select {
					case delayed <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	for range cap(delayed) {
		<-delayed
	}
	for deadline := time.Now().Add(patience); a.get("/v1/streams/order-1").status != 429; {
		if time.Now().After(deadline) {
			t.Fatal("no request is refused while as many as the tenant may have are delayed")
		}
	}
}
