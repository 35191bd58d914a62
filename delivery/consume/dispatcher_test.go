package consume_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/domain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a store and a source whose consumers the test sets.
type world struct {
	mu      sync.Mutex
	tenants []domain.TenantID
	listed  map[domain.TenantID][]consume.Consumer
	fails   error // of the source
	asked   int
	lost    map[domain.TenantID]bool // not owned
	down    error                    // of the store
}

func newWorld(tenants int) *world {
	w := &world{listed: make(map[domain.TenantID][]consume.Consumer), lost: make(map[domain.TenantID]bool)}
	for range tenants {
		w.tenants = append(w.tenants, domain.NewTenantID())
	}
	return w
}

func (w *world) heads(context.Context, time.Time) ([]domain.Head, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var heads []domain.Head
	for _, tenant := range w.tenants {
		heads = append(heads, domain.Head{Tenant: tenant, Position: 1})
	}
	return heads, w.down
}

func (w *world) Consumers(_ context.Context, tenant domain.TenantID) ([]consume.Consumer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	return w.listed[tenant], w.fails
}

func (w *world) owns(tenant domain.TenantID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.lost[tenant]
}

func (w *world) list(tenant domain.TenantID, consumers ...consume.Consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed[tenant] = consumers
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// consumer is a consumer whose runs the test observes.
type consumer struct {
	mu      sync.Mutex
	at      []time.Time // start times of its runs
	running int
	most    int // maximum number of concurrent runs
	stopped int // runs that ctx ended

	result func(run int) (time.Time, error)             // nil: nothing is due
	work   func(ctx context.Context, run int) time.Time // nil: none; a non-zero result takes precedence
}

func (c *consumer) run(ctx context.Context) (time.Time, error) {
	c.mu.Lock()
	c.at = append(c.at, time.Now())
	run := len(c.at)
	c.running++
	c.most = max(c.most, c.running)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
		if ctx.Err() != nil {
			c.stopped++
		}
	}()
	if c.work != nil {
		if nextRun := c.work(ctx, run); !nextRun.IsZero() {
			return nextRun, nil
		}
	}
	if c.result != nil {
		return c.result(run)
	}
	return time.Time{}, nil
}

func (c *consumer) runs() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.at)
}

func (c *consumer) as(name, revision string) consume.Consumer {
	return consume.Consumer{Name: name, Revision: revision, Run: c.run}
}

// start runs a dispatcher until the test ends, or stop is called.
func start(t *testing.T, w *world, config consume.Config) (d *consume.Dispatcher, stop func()) {
	config.Heads, config.Owns = w.heads, w.owns
	if config.Sources == nil {
		config.Sources = []consume.Source{w}
	}
	d = consume.New(config)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := d.Known(); n > 0 {
			t.Errorf("%d tenants are left in memory", n)
		}
	})
	t.Cleanup(stop)
	return d, stop
}

// pass lets time pass on the bubble's clock.
func pass(d time.Duration) { <-time.After(d) }

func expectRuns(t *testing.T, c *consumer, want int) {
	t.Helper()
	synctest.Wait()
	if got := c.runs(); got != want {
		t.Fatalf("it ran %d times, not %d", got, want)
	}
}

func TestConsumersRunWhenTheirLogGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2)
		c, other := &consumer{}, &consumer{}
		w.list(w.tenants[0], c.as("webhook.a", "1"))
		w.list(w.tenants[1], other.as("webhook.a", "1"))
		d, stop := start(t, w, consume.Config{})
		expectRuns(t, c, 1) // at the start
		expectRuns(t, other, 1)
		d.Wake(domain.Head{Tenant: w.tenants[0], Position: 2})
		expectRuns(t, c, 2)
		d.Notice(w.tenants[0])
		expectRuns(t, c, 3)
		expectRuns(t, other, 1)
		if n := d.Known(); n != 0 {
			t.Errorf("%d tenants are in memory that have nothing to do", n)
		}
		d.Notice(domain.Everyone)
		pass(time.Minute)
		expectRuns(t, c, 4)
		expectRuns(t, other, 2)
		stop()
		d.Wake(domain.Head{Tenant: w.tenants[0], Position: 3})
		expectRuns(t, c, 4)
	})
}
