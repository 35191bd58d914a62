package projection_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
)

// unanswering is a driver whose calls for some tenants fail after a while, as by a statement's timeout.
type unanswering struct {
	drivers.Driver
	stuck map[domain.TenantID]bool
	hung  chan struct{} // gets one for each call that fails, if there is room
}

// hangTime is more than a turn may take before its tenant is stalled.
const hangTime = 5500 * time.Millisecond

func (h *unanswering) answer(ctx context.Context, tenant domain.TenantID) error {
	if !h.stuck[tenant] {
		return nil
	}
	select {
	case h.hung <- struct{}{}:
	default:
	}
	timeout := time.NewTimer(hangTime)
	defer timeout.Stop()
	select {
	case <-timeout.C:
	case <-ctx.Done():
	}
	return errInjected
}

func (h *unanswering) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	if err := h.answer(ctx, tenant); err != nil {
		return nil, err
	}
	return h.Driver.Load(ctx, build, tenant, ids)
}

func (h *unanswering) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if err := h.answer(ctx, tenant); err != nil {
		return err
	}
	return h.Driver.Save(ctx, build, tenant, batch)
}

// Eight tenants whose turns get no answer would hold all four workers.
func TestTenantsWithoutAnswersLeaveWorkers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stuck := map[domain.TenantID]bool{}
	for range 8 {
		stuck[b.tenant(t)] = true
	}
	served := b.tenant(t)
	var failed sync.WaitGroup
	failed.Add(len(stuck))
	var mu sync.Mutex
	seen := map[domain.TenantID]bool{}
	p := b.process(options{driver: &unanswering{b.driver, stuck, nil}, workers: 4, observer: projection.Observer{
		Retry: func(_ domain.ProjectionID, tenant domain.TenantID, _ error) {
			mu.Lock()
			defer mu.Unlock()
			if !seen[tenant] {
				seen[tenant] = true
				failed.Done()
			}
		},
	}})
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, sums("sums"), "test"); err != nil {
		t.Fatal(err)
	}
	p.start(t, b)
	for tenant := range stuck {
		b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	}
	failed.Wait()
	servedSoon(t, b, p, served)
}

// Eight tenants on a node of a cluster whose turns get no answer would hold all four workers until they are known to be
// stalled. A tenant on another node is served meanwhile.
func TestANodeWithoutAnswersLeavesWorkers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stuck := map[domain.TenantID]bool{}
	for range 8 {
		stuck[b.tenant(t)] = true
	}
	served := b.tenant(t)
	driver := &unanswering{b.driver, stuck, make(chan struct{}, 2)}
	p := b.process(options{driver: driver, workers: 4, nodes: func(tenant domain.TenantID, _ string) [2]int32 {
		if stuck[tenant] {
			return [2]int32{2, 1} // only its documents are there
		}
		return [2]int32{2, 2}
	}})
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, sums("sums"), "test"); err != nil {
		t.Fatal(err)
	}
	p.start(t, b)
	for tenant := range stuck {
		b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	}
	for range cap(driver.hung) {
		<-driver.hung
	}
	servedSoon(t, b, p, served)
}

// servedSoon checks that the events of a tenant are folded while calls of others hang.
func servedSoon(t *testing.T, b bench, p process, served domain.TenantID) {
	t.Helper()
	began := time.Now()
	for range 20 {
		position := b.append(t, served, "x-1", "Add", `{"k": "a", "n": 1}`)
		if _, err := p.catalog.Document(t.Context(), served, "sums", "a", projection.Freshness{MinPosition: position, Wait: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > hangTime {
		t.Errorf("20 documents of a tenant whose turns are answered took %s", took)
	} else {
		t.Logf("20 documents took %s", took)
	}
}
