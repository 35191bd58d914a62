package projection_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
)

// hanging is a driver whose calls hang while the test says so, until their context ends or they are released with an
// error.
type hanging struct {
	drivers.Driver
	hung chan struct{} // gets one for each call that hangs
	free chan struct{} // closed: calls no longer hang
	out  atomic.Bool   // the outage is known: calls are refused at once
}

func (h *hanging) wait(ctx context.Context) error {
	if h.out.Load() {
		return domain.Errorf(domain.CodeUnavailable, "", "the network is gone")
	}
	select {
	case <-h.free:
		return nil
	default:
	}
	h.hung <- struct{}{}
	select {
	case <-h.free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *hanging) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error) {
	if err := h.wait(ctx); err != nil {
		return 0, err
	}
	return h.Driver.Checkpoint(ctx, build, tenant)
}

func (h *hanging) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.Driver.Load(ctx, build, tenant, ids)
}

// A database whose calls hang occupies only its own workers: the projections of another database continue. While it is
// known not to answer, its projections wait without trying. They continue when it answers.
func TestHungDatabaseDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	slow := &hanging{Driver: b.driver, hung: make(chan struct{}, 1000), free: make(chan struct{})}
	since := time.Now()
	outages := func(database string) (projection.Outage, bool) {
		return projection.Outage{Since: since, NextTry: since.Add(time.Hour), Error: "the network is gone"}, database == "slow" && slow.out.Load()
	}
	byName := map[string]drivers.Driver{"default": b.driver, "slow": slow}
	p := process{progress: projection.NewProgress()}
	p.catalog = projection.NewCatalog(projection.CatalogConfig{Store: storeOf(b.store), Drivers: byName, Progress: p.progress, Outages: outages, Log: quiet})
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Store: storeOf(b.store), Drivers: byName, Progress: p.progress, Outages: outages, Workers: 2, Ceiling: 2, Poll: time.Hour, Log: quiet,
	})
	p.start(t, b)
	const slowOnes = 5
	for i := range slowOnes {
		definition := sums(fmt.Sprintf("slow-%d", i))
		definition.Database = "slow"
		if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.catalog.Create(t.Context(), tenant, sums("fast"), "test"); err != nil {
		t.Fatal(err)
	}
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	for range 2 {
		<-slow.hung
	}
	want := fromScratch(t, sums("fast"), b.log(t, tenant))
	mustEqual(t, documents(t, p.catalog, tenant, "fast", last), want)
	if n := len(slow.hung); n != 0 {
		t.Errorf("%d calls hang beyond the workers of that database", n)
	}

	slow.out.Store(true)
	status, err := p.catalog.Status(t.Context(), tenant, "slow-0")
	if err != nil || status.State != projection.StateUnavailable || !status.Since.Equal(since) || !status.NextTry.Equal(since.Add(time.Hour)) || !strings.Contains(status.Error, `"slow" does not answer`) {
		t.Errorf("the status is %+v, %v", status, err)
	}
	positions, err := p.catalog.Positions(t.Context(), tenant)
	if err != nil || len(positions) != 1+slowOnes || positions[0].Projection.Name != "fast" || positions[0].Unknown != "" || positions[0].Checkpoint != last {
		t.Errorf("the positions are %+v, %v", positions, err)
	}
	for _, position := range positions[1:] {
		if position.Checkpoint != 0 || !strings.Contains(position.Unknown, `"slow" does not answer`) {
			t.Errorf("the position is %+v", position)
		}
	}
	last = b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	want = fromScratch(t, sums("fast"), b.log(t, tenant))
	mustEqual(t, documents(t, p.catalog, tenant, "fast", last), want)

	slow.out.Store(false)
	close(slow.free)
	p.runner.Answers("slow")
	for i := range slowOnes {
		mustEqual(t, documents(t, p.catalog, tenant, fmt.Sprintf("slow-%d", i), last), want)
	}
}

// A projection that waits for a database which does not answer gets its turns elsewhere once its documents have moved.
func TestWaitingPairMovesToAnotherDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	gone := &hanging{Driver: b.driver, hung: make(chan struct{}, 1000), free: make(chan struct{})}
	close(gone.free)
	outages := func(database string) (projection.Outage, bool) {
		return projection.Outage{Error: "the network is gone"}, database == "gone" && gone.out.Load()
	}
	byName := map[string]drivers.Driver{"default": b.driver, "gone": gone}
	p := process{progress: projection.NewProgress()}
	p.catalog = projection.NewCatalog(projection.CatalogConfig{Store: storeOf(b.store), Drivers: byName, Progress: p.progress, Outages: outages, Log: quiet})
	retried := make(chan struct{}, 1000)
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Store: storeOf(b.store), Drivers: byName, Progress: p.progress, Outages: outages, Poll: 50 * time.Millisecond, Log: quiet,
		Observer: projection.Observer{Retry: func(domain.ProjectionID, domain.TenantID, error) { retried <- struct{}{} }},
	})
	p.start(t, b)
	definition := sums("sums")
	definition.Database = "gone"
	created, err := p.catalog.Create(t.Context(), tenant, definition, "test")
	if err != nil {
		t.Fatal(err)
	}
	gone.out.Store(true)
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	status, err := p.catalog.Status(t.Context(), tenant, "sums")
	if err != nil || status.State != projection.StateUnavailable {
		t.Fatalf("the status is %+v, %v", status, err)
	}

	// What a rebuild does, in short.
	rebuild := domain.Rebuild{ProjectionID: created.ProjectionID, ID: domain.NewRebuildID(), Definition: sums("sums"), State: domain.RebuildQueued}
	if rebuild.Build, err = b.store.NextBuild(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if err := b.store.CreateRebuild(t.Context(), rebuild); err != nil {
		t.Fatal(err)
	}
	worker := domain.NewRebuildID().String()
	if rebuild, _, err = b.store.ClaimRebuild(t.Context(), rebuild.ProjectionID, rebuild.ID, worker, time.Minute); err != nil {
		t.Fatal(err)
	}
	rebuild.State = domain.RebuildValidating
	if _, err := b.store.SaveRebuild(t.Context(), rebuild); err != nil {
		t.Fatal(err)
	}
	if err := b.store.HoldProjection(t.Context(), rebuild); err != nil {
		t.Fatal(err)
	}
	if err := b.store.SwapProjection(t.Context(), rebuild, nil, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, documents(t, p.catalog, tenant, "sums", last), fromScratch(t, sums("sums"), b.log(t, tenant)))
	if n := len(retried); n != 0 {
		t.Errorf("%d turns were tried while the database did not answer", n)
	}
}
