package systemtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// hanging is an endpoint of webhooks that keeps the first request of each tenant's first event until its sender is
// gone, and takes all others.
type hanging struct {
	mu       sync.Mutex
	times    map[client.UUID]int
	orphaned map[client.UUID]bool          // its sender is gone
	again    map[client.UUID]time.Duration // since killed, when it came again
	killed   time.Time
	release  chan struct{}
	changed  chan struct{} // has one when something has changed
}

func (h *hanging) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var message hookMessage
	if err != nil || json.Unmarshal(body, &message) != nil {
		return
	}
	id := message.Data.Event.Id
	h.mu.Lock()
	h.times[id]++
	first := h.times[id] == 1 && message.Data.Event.Position == 1
	if !first {
		h.again[id] = time.Since(h.killed)
	}
	h.mu.Unlock()
	h.tell()
	if !first {
		return
	}
	select {
	case <-h.release:
	case <-r.Context().Done():
		h.mu.Lock()
		h.orphaned[id] = time.Since(h.killed) < hangsFor/2 // the other process's requests time out later
		h.mu.Unlock()
		h.tell()
	}
}

func (h *hanging) tell() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// await waits until a condition holds for the endpoint.
func (h *hanging) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for late := time.After(patience); ; {
		h.mu.Lock()
		ok := holds()
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-h.changed:
		case <-late:
			t.Fatalf("it does not come to pass: %s", what)
		}
	}
}

// These bound how long after the death of a process the other one takes over its work. Some machines need twice as
// long.
const (
	hangsFor      = 15 * time.Second // a request, at most
	appendsAgain  = time.Second
	followsAgain  = 5 * time.Second
	webhooksAgain = 10 * time.Second
)

// One of two processes is killed while it has webhook requests under way. The other one accepts appends at once, and
// soon does everything else that the dead one did.
func TestRecoveryAfterAKilledProcess(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	allow := []string{"MANIFOLD_WEBHOOKS_ALLOW=127.0.0.0/8", "MANIFOLD_WEBHOOKS_ALLOW_HTTP=true"}
	one, two := serve(t, db, allow...), serve(t, db, allow...)
	h := &hanging{times: make(map[client.UUID]int), orphaned: make(map[client.UUID]bool), again: make(map[client.UUID]time.Duration),
		release: make(chan struct{}), changed: make(chan struct{}, 1)}
	endpoint := httptest.NewServer(h)
	t.Cleanup(endpoint.Close)
	defer close(h.release)
	operator := newUser(t, services{one}, operatorKey)
	tenants := make([]user, 6)
	add := func(u user, n int) error {
		a, err := u.call(t.Context(), 0, "POST", "/v1/streams/order-1/events", []map[string]any{{"type": "Placed", "data": map[string]int{"n": n}}})
		if err == nil && a.status != http.StatusCreated {
			err = fmt.Errorf("append: %s", a)
		}
		return err
	}
	// receive takes the next event of a tenant's group, and acknowledges it.
	receive := func(u user, position int64) error {
		for {
			a, err := u.call(t.Context(), 0, "POST", "/v1/subscriptions/all/receive", map[string]any{"wait": 10})
			if err != nil {
				return err
			}
			var received client.Deliveries
			if err := a.decode(http.StatusOK, &received); err != nil {
				return err
			}
			for _, d := range received.Deliveries {
				ids := map[string]any{"ids": []client.Attempt{{Id: d.Event.Id, Attempt: d.Attempt}}}
				if _, err := u.call(t.Context(), 0, "POST", "/v1/subscriptions/all/ack", ids); err != nil || d.Event.Position == position {
					return err
				}
			}
		}
	}
	for i := range tenants {
		_, u := newTenant(t, operator, fmt.Sprintf("tenant-%d", i))
		tenants[i] = u
		u.must(t, http.StatusCreated, nil, "POST", "/v1/projections", map[string]any{"name": "counts", "key": "'all'", "on": map[string]string{"*": "merge(doc, {'n': event.data.n})"}})
		u.must(t, http.StatusCreated, nil, "PUT", "/v1/subscriptions/all", []byte(`{"from": "start"}`))
		if err := add(u, 1); err != nil {
			t.Fatal(err)
		}
	}
	// Each process works on half of the tenants, and on no others.
	for late := time.After(patience); ; {
		even := true
		for _, s := range []*service{one, two} {
			a, err := newUser(t, fixed(s.admin), operatorKey).once(t.Context(), 0, "GET", "/metrics", nil)
			even = even && err == nil && strings.Contains(string(a.body), fmt.Sprintf("\nmanifold_member_tenants %d\n", len(tenants)/2))
		}
		if even {
			break
		}
		select {
		case <-late:
			t.Fatal("the tenants are not shared out evenly")
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, u := range tenants {
		if err := receive(u, 1); err != nil { // by the process that is killed
			t.Fatal(err)
		}
		u.must(t, http.StatusCreated, nil, "PUT", "/v1/webhooks/mail", []byte(fmt.Sprintf(`{"url": %q, "from": "start", "timeout": %v}`, endpoint.URL, hangsFor.Seconds())))
	}
	h.await(t, "each tenant's request is under way", func() bool { return len(h.times) == len(tenants) })

	h.mu.Lock()
	h.killed = time.Now()
	h.mu.Unlock()
	one.kill()
	killed := h.killed
	var appended, projected, received []time.Duration
	var mu sync.Mutex
	took := func(of *[]time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		*of = append(*of, time.Since(killed))
	}
	var all errgroup.Group
	for _, u := range tenants {
		u.site = services{two}
		all.Go(func() error {
			if err := add(u, 2); err != nil {
				return err
			}
			took(&appended)
			var both errgroup.Group
			both.Go(func() error {
				_, err := u.documents(t.Context(), "counts", 10, 2)
				took(&projected)
				return err
			})
			both.Go(func() error {
				err := receive(u, 2)
				took(&received)
				return err
			})
			return both.Wait()
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	h.await(t, "the dead process's requests are sent again", func() bool {
		orphans := 0
		for id, is := range h.orphaned {
			if is && h.times[id] < 2 {
				return false
			}
			if is {
				orphans++
			}
		}
		return orphans > 0
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	sent := make([]time.Duration, 0, len(h.again))
	for id, since := range h.again {
		if h.orphaned[id] {
			sent = append(sent, since)
		}
	}
	for _, of := range []struct {
		what  string
		took  []time.Duration
		bound time.Duration
	}{{"appends", appended, appendsAgain}, {"projections", projected, followsAgain}, {"groups", received, followsAgain}, {"webhooks", sent, webhooksAgain}} {
		slowest := slices.Max(of.took)
		t.Logf("%s continue %s after the death of a process, at the latest; they have %s", of.what, slowest.Round(time.Millisecond), of.bound)
		if slowest > within(2*of.bound) {
			t.Errorf("%s continue %s after the death of a process", of.what, slowest)
		}
	}
	one.start() // it ends in order, as the other one
}
