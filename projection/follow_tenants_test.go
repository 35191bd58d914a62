package projection_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// split says which process owns which tenants.
type split struct {
	mu    sync.Mutex
	owner map[domain.TenantID]int
}

func (s *split) owns(process int) func(domain.TenantID) bool {
	return func(tenant domain.TenantID) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.owner[tenant] == process
	}
}

func (s *split) give(tenant domain.TenantID, process int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner[tenant] = process
}

// Each tenant is followed only by the process that owns it. After a handover, the new owner continues from what the
// previous one has saved, for a tenant's own projections and for shared ones.
func TestTenantsAreHandedOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := &split{owner: make(map[domain.TenantID]int)}
	tenants := []domain.TenantID{b.tenant(t), b.tenant(t), b.tenant(t), b.tenant(t), b.tenant(t), b.tenant(t)}
	for i, tenant := range tenants {
		s.give(tenant, i%2)
	}
	var mu sync.Mutex
	folded := make([]map[domain.TenantID]int, 2)
	processes := make([]process, 2)
	for i := range processes {
		folded[i] = make(map[domain.TenantID]int)
		processes[i] = b.process(options{})
		processes[i].runner = projection.NewRunner(projection.RunnerConfig{
			Store: storeOf(b.store), Drivers: map[string]drivers.Driver{"default": b.driver}, Progress: processes[i].progress,
			Owns: s.owns(i), Poll: 100 * time.Millisecond, Log: quiet,
			Observer: projection.Observer{Batch: func(info projection.BatchInfo) {
				mu.Lock()
				defer mu.Unlock()
				folded[i][info.Tenant] += info.Events
			}},
		})
		processes[i].start(t, b)
	}
	if _, err := processes[0].catalog.Create(t.Context(), domain.Everyone, sums("shared"), "test"); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range tenants {
		if _, err := processes[0].catalog.Create(t.Context(), tenant, sums("own"), "test"); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		for _, tenant := range tenants {
			last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
			for _, name := range []string{"shared", "own"} {
				mustEqual(t, documents(t, processes[0].catalog, tenant, name, last), fromScratch(t, sums(name), b.log(t, tenant)))
			}
		}
	}
	check()
	await(t, func() bool { // a turn saves first, and then reports; each event is for both projections
		mu.Lock()
		defer mu.Unlock()
		total := 0
		for i := range folded {
			for _, events := range folded[i] {
				total += events
			}
		}
		return total >= 2*len(tenants)
	})
	for i := range processes {
		if got := processes[i].runner.Owned(); got != 3 {
			t.Errorf("process %d owns %d tenants", i, got)
		}
		mu.Lock()
		for n, tenant := range tenants {
			if worked := folded[i][tenant] > 0; worked != (n%2 == i) {
				t.Errorf("process %d has folded for tenant %d %d events", i, n, folded[i][tenant])
			}
		}
		mu.Unlock()
	}

	// Everything of the first goes to the second, with events that came while nobody owned the tenants.
	for _, tenant := range tenants {
		s.give(tenant, 2)
	}
	processes[0].runner.Rebalance()
	processes[1].runner.Rebalance()
	for _, tenant := range tenants {
		b.append(t, tenant, "x-1", "Add", `{"k": "b", "n": 1}`)
	}
	for _, tenant := range tenants {
		s.give(tenant, 1)
	}
	mu.Lock()
	clear(folded[0])
	mu.Unlock()
	processes[1].runner.Rebalance()
	check()
	mu.Lock()
	defer mu.Unlock()
	if len(folded[0]) != 0 || processes[0].runner.Owned() != 0 || processes[1].runner.Owned() != len(tenants) {
		t.Errorf("the first process has folded %v", folded[0])
	}
}

// lazy is a relaxed handler.
type lazy struct {
	folding.Handler
	interval time.Duration
}

func (l lazy) Interval() time.Duration { return l.interval }

// A relaxed projection gets no more turns than its interval allows, unless a reader waits.
func TestRelaxedProjections(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	handler := lazy{folding.HandlerOf(folding.Rule[struct{ N int }]{
		Key: func(domain.Event) (string, error) { return "all", nil },
		Fold: func(doc *struct{ N int }, _ domain.Event) (bool, error) {
			doc.N++
			return true, nil
		},
	}), time.Hour}
	var batches atomic.Int32
	p := b.process(options{
		handlers: map[string]folding.Handler{"lazy": handler},
		observer: projection.Observer{Batch: func(projection.BatchInfo) { batches.Add(1) }},
	})
	p.start(t, b)
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, folding.WithDefaults(domain.Definition{Name: "lazy", Handler: "lazy"}), "test"); err != nil {
		t.Fatal(err)
	}
	closely, err := p.catalog.Create(t.Context(), tenant, sums("closely"), "test")
	if err != nil {
		t.Fatal(err)
	}
	first := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	if _, err := p.catalog.Document(t.Context(), tenant, "lazy", "all", projection.Freshness{MinPosition: first, Wait: time.Minute}); err != nil {
		t.Fatal(err)
	}
	var last int64
	for range 20 {
		last = b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
		documents(t, p.catalog, tenant, closely.Name, last)
	}
	document, err := p.catalog.Document(t.Context(), tenant, "lazy", "all", projection.Freshness{})
	if err != nil || document.Version != first {
		t.Errorf("before anybody waits for it the document is %+v, %v", document, err)
	}
	status, err := p.catalog.CatchUp(t.Context(), tenant, "lazy", time.Minute)
	if err != nil || status.Checkpoint != last || status.State != projection.StateCaughtUp {
		t.Errorf("after catching up: %+v, %v", status, err)
	}
	if document, err = p.catalog.Document(t.Context(), tenant, "lazy", "all", projection.Freshness{}); err != nil || document.Version != last {
		t.Errorf("after catching up the document is %+v, %v", document, err)
	}
}

// Catching up ends at the head that the log had, and times out if nothing follows the projection.
func TestCatchUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	if _, err := p.catalog.Create(t.Context(), tenant, sums("sums"), "test"); err != nil {
		t.Fatal(err)
	}
	if status, err := p.catalog.CatchUp(t.Context(), tenant, "sums", time.Millisecond); err != nil || status.Head != 0 {
		t.Errorf("of an empty log: %+v, %v", status, err)
	}
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	if _, err := p.catalog.CatchUp(t.Context(), tenant, "sums", 50*time.Millisecond); !domain.IsCode(err, domain.CodeNotCaughtUp) {
		t.Errorf("without a worker: %v", err)
	}
	if _, err := p.catalog.CatchUp(t.Context(), tenant, "none", time.Second); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("of no projection: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		status, err := p.catalog.CatchUp(t.Context(), tenant, "sums", time.Minute)
		if err == nil && status.Checkpoint < last {
			err = fmt.Errorf("the checkpoint is %d", status.Checkpoint)
		}
		ended <- err
	}()
	p.start(t, b)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Work with lower priority waits for the live projections' turns, but never for long.
func TestYield(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	slow := &hanging{Driver: b.driver, hung: make(chan struct{}, 100), free: make(chan struct{})}
	p := process{progress: projection.NewProgress()}
	byName := map[string]drivers.Driver{"default": slow}
	p.catalog = projection.NewCatalog(projection.CatalogConfig{Store: storeOf(b.store), Drivers: byName, Progress: p.progress, Log: quiet})
	p.runner = projection.NewRunner(projection.RunnerConfig{Store: storeOf(b.store), Drivers: byName, Progress: p.progress, Workers: 1, Log: quiet})
	p.runner.Yield(t.Context(), "default") // nobody is there
	p.start(t, b)
	for i := range 3 {
		if _, err := p.catalog.Create(t.Context(), tenant, sums(fmt.Sprintf("sums-%d", i)), "test"); err != nil {
			t.Fatal(err)
		}
	}
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	<-slow.hung // one is at work, and the others wait
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		at := time.Now()
		p.runner.Yield(t.Context(), "default")
		if took := time.Since(at); took > 100*time.Millisecond {
			break // it has waited, and it has come back
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("it does not wait although pairs wait for a turn")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.runner.Yield(ctx, "default")
	close(slow.free)
	for i := range 3 {
		documents(t, p.catalog, tenant, fmt.Sprintf("sums-%d", i), last)
	}
	p.runner.Yield(t.Context(), "default")
	p.runner.Yield(t.Context(), "no such database")
}
