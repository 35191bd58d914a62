package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection/folding"
)

// costly is an expression that takes almost all that one evaluation may.
const costly = `{'n': lists.range(900).all(x, lists.range(100).all(y, x + y >= 0))}`

// newFoldingTenant creates a tenant with a stream that takes minutes to fold, and one of each kind of object that folds
// it: on request, and in the background.
func newFoldingTenant(t *testing.T, operator user) user {
	t.Helper()
	_, tenant := newTenant(t, operator, "folding")
	tenant.must(t, 201, nil, "PUT", "/v1/projections/stored", map[string]any{"on": map[string]string{"*": costly}})
	tenant.must(t, 200, nil, "PUT", "/v1/aggregates/heavy", map[string]any{"on": map[string]string{"*": costly}})
	events := make([]map[string]any, 1000)
	for i := range events {
		events[i] = map[string]any{"type": "Added", "data": map[string]any{"n": i}}
	}
	tenant.must(t, 201, nil, "POST", "/v1/streams/heavy-1/events", events)
	tenant.must(t, 201, nil, "PUT", "/v1/projections/heavy", map[string]any{"mode": "live", "on": map[string]string{"*": costly}})
	return tenant
}

// foldingRequests is each kind of request that folds.
func foldingRequests() []struct {
	method, path string
	body         any
} {
	large := make(map[string]string)
	for i := range 40 {
		large[fmt.Sprintf("E%d", i)] = "{'a': [" + strings.Repeat("doc.?a.orValue(1) + 1, ", 200) + "1]}"
	}
	return []struct {
		method, path string
		body         any
	}{
		{"GET", "/v1/projections/heavy/documents/heavy-1", nil},
		{"GET", "/v1/projections/heavy/documents?filter=" + "doc.n%3D%3Dtrue&count=exact", nil},
		{"GET", "/v1/streams/heavy-1/state", nil},
		{"POST", "/v1/snapshots/heavy-1", nil},
		{"POST", "/v1/projections/preview", map[string]any{"definition": map[string]any{"on": map[string]string{"*": costly}}, "source": map[string]any{"last": 1000}}},
		{"POST", "/v1/aggregates/preview", map[string]any{"definition": map[string]any{"category": "heavy", "on": map[string]string{"*": costly}}, "stream": "heavy-1"}},
		{"POST", "/v1/projections/plan", map[string]any{"definitions": []any{map[string]any{"name": "p", "on": large}, map[string]any{"name": "q", "on": large}}}},
	}
}

// requestFolds repeatedly sends requests of each kind that folds, until ctx ends. It abandons every second request
// after a moment. It checks the answers of the others.
func requestFolds(ctx context.Context, t *testing.T, tenant user, abandonAfter time.Duration) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 2 {
		for n, ask := range foldingRequests() {
			all.Go(func() {
				for ctx.Err() == nil {
					asking, cancel := context.WithTimeout(ctx, abandonAfter)
					if (i+n)%2 == 0 {
						asking = ctx
					}
					a, err := tenant.once(asking, 0, ask.method, ask.path, ask.body)
					cancel()
					if err == nil && a.status >= 500 && (a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "") {
						t.Errorf("%s %s: %s", ask.method, ask.path, a)
					}
				}
			})
		}
	}
	return all.Wait
}

// However many folds one tenant requests and abandons, another tenant's document of one event is returned at once.
func TestFoldingTenantDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	s := serve(t, pgtest.Database(t))
	operator := newUser(t, services{s}, operatorKey)
	heavy := newFoldingTenant(t, operator)
	_, quiet := newTenant(t, operator, "quiet")
	quiet.must(t, 201, nil, "POST", "/v1/streams/one-1/events", []map[string]any{{"type": "Added", "data": map[string]any{"n": 1}}})
	quiet.must(t, 201, nil, "PUT", "/v1/projections/light", map[string]any{"mode": "live", "on": map[string]string{"*": "{'n': event.data.n}"}})
	quiet.must(t, 200, nil, "PUT", "/v1/aggregates/one", map[string]any{"on": map[string]string{"*": "{'n': event.data.n}"}})

	ctx, cancel := context.WithCancel(t.Context())
	wait := requestFolds(ctx, t, heavy, 300*time.Millisecond)
	defer func() { cancel(); wait() }()
	var took []time.Duration
	for range 40 {
		for _, path := range []string{"/v1/projections/light/documents/one-1", "/v1/streams/one-1/state"} {
			began := time.Now()
			a, err := quiet.once(t.Context(), 0, "GET", path, nil)
			if err != nil || a.status != 200 {
				t.Fatalf("%s: %v, %s", path, err, a)
			}
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	t.Logf("p50 %s, p90 %s, most %s", took[len(took)/2], took[len(took)*9/10], took[len(took)-1])
	if most := took[len(took)-1]; most > within(10*time.Second) {
		t.Errorf("one took %s", most)
	}
}

// terminate ends a process by a signal, and logs how long that took.
func (s *service) terminate(t *testing.T, most time.Duration) {
	t.Helper()
	s.mu.Lock()
	cmd, ended := s.cmd, s.ended
	s.cmd = nil
	s.mu.Unlock()
	began := time.Now()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		t.Logf("it ended after %s", time.Since(began))
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("it ends with %s:\n%s", cmd.ProcessState, last(s.output(), 8000))
		}
	case <-time.After(most):
		s.killWithGoroutines(cmd, ended)
		t.Errorf("it still runs after %s", most)
	}
}

// shutdownMargin is how long after its deadline a process may take to exit: the three seconds for cancelled work, and
// some more for a busy machine.
var shutdownMargin = within(8 * time.Second)

// A process exits by its deadline, whatever it folds.
func TestFoldingProcessStopsByItsDeadline(t *testing.T) {
	t.Parallel()
	s := serve(t, pgtest.Database(t), "MANIFOLD_SHUTDOWN_DEADLINE=1s", "MANIFOLD_LIMITS_FOLD_STEPS=1000000000000", "MANIFOLD_LIMITS_FOLD_TIME=1h")
	heavy := newFoldingTenant(t, newUser(t, services{s}, operatorKey))
	ctx, cancel := context.WithCancel(t.Context())
	abandoned, cancelAbandoned := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancelAbandoned()
	var gone, waiting sync.WaitGroup
	for _, ask := range foldingRequests() {
		gone.Go(func() { _, _ = heavy.once(abandoned, 0, ask.method, ask.path, ask.body) })
	}
	gone.Wait()
	for _, ask := range foldingRequests() {
		waiting.Go(func() { _, _ = heavy.once(ctx, 0, ask.method, ask.path, ask.body) })
	}
	s.awaitInFlight(t, 5) // of which the plan may be done by then
	s.terminate(t, time.Second+shutdownMargin)
	cancel()
	waiting.Wait()
}

// awaitInFlight waits until so many requests are under way.
func (s *service) awaitInFlight(t *testing.T, least int) {
	t.Helper()
	u := newUser(t, fixed(s.admin), operatorKey)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		a, err := u.once(t.Context(), 0, "GET", "/metrics", nil)
		_, rest, found := strings.Cut(string(a.body), "\nmanifold_http_requests_in_flight ")
		count, _, _ := strings.Cut(rest, "\n")
		if n, parseErr := strconv.Atoi(count); err == nil && found && parseErr == nil && n >= least {
			return
		}
		<-tick.C
	}
	t.Fatalf("there are never %d requests under way", least)
}

// stuckProgram makes the tests' binary a service with a projection in Go that never comes to its end.
const stuckProgram = "MANIFOLD_TEST_STUCK"

// stuckNow is what that program prints when it begins.
const stuckNow = "stuck from now on"

func serveStuck() {
	manifold.Main(manifold.WithProjection(domain.Definition{Name: "stuck"}, folding.HandlerOf(folding.Rule[struct{}]{
		Key: func(domain.Event) (string, error) { return "stuck", nil },
		Fold: func(*struct{}, domain.Event) (bool, error) {
			fmt.Println(stuckNow)
			for n := 0; ; n++ { // takes a processor, and looks at nothing
				if n < 0 {
					return true, nil
				}
			}
		},
	})))
}

// A worker that never returns does not keep its process alive. The process reports what is left.
func TestHangingWorkerEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := serveBy(t, self, pgtest.Database(t), stuckProgram+"=yes", "MANIFOLD_SHUTDOWN_DEADLINE=500ms")
	_, tenant := newTenant(t, newUser(t, services{s}, operatorKey), "acme")
	tenant.must(t, 201, nil, "POST", "/v1/streams/one-1/events", []map[string]any{{"type": "Added", "data": map[string]any{}}})
	for tick := time.NewTicker(10 * time.Millisecond); !strings.Contains(s.output(), stuckNow); {
		<-tick.C
	}
	s.terminate(t, 500*time.Millisecond+shutdownMargin)
	for line := range strings.Lines(s.output()) {
		var entry struct {
			Msg  string
			Left []string
		}
		if json.Unmarshal([]byte(line), &entry) == nil && slices.Contains(entry.Left, "follow projections") {
			return
		}
	}
	t.Errorf("it does not say what was left:\n%s", last(string(bytes.TrimSpace([]byte(s.output()))), 4000))
}
