package projection_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
)

// unanswering is a driver whose calls for some tenants get no answer.
type unanswering struct {
	drivers.Driver
	stuck map[domain.TenantID]bool
	hung  chan struct{} // gets one for each such call, if there is room
	// callsFail makes these calls fail after hangTime, like a statement's timeout. Otherwise they hang until ctx ends.
	callsFail atomic.Bool
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
		if !h.callsFail.Load() {
			<-ctx.Done()
		}
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
	driver := &unanswering{Driver: b.driver, stuck: stuck}
	driver.callsFail.Store(true)
	p := b.process(options{driver: driver, workers: 4, observer: projection.Observer{
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
	driver.callsFail.Store(false)
	mustBeServed(t, b, p, served)
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
	driver := &unanswering{Driver: b.driver, stuck: stuck, hung: make(chan struct{}, 2)}
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
	mustBeServed(t, b, p, served)
}

// mustBeServed checks that the events of a tenant are folded while calls of others hang.
func mustBeServed(t *testing.T, b bench, p process, served domain.TenantID) {
	t.Helper()
	for range 20 {
		position := b.append(t, served, "x-1", "Add", `{"k": "a", "n": 1}`)
		fresh := projection.Freshness{MinPosition: position, Wait: time.Minute}
		if _, err := p.catalog.Document(t.Context(), served, "sums", "a", fresh); err != nil {
			t.Fatal(err)
		}
	}
}
