package projection_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// importEvents appends many events at once.
func (b bench) importEvents(t *testing.T, tenant domain.TenantID, count int) {
	t.Helper()
	b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	if _, err := b.db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `
		with moved as (
			update manifold.logs l set head = $2::bigint + 1, last_at = now() where l.tenant_id = $1::uuid
		)
		insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
		select $1::uuid, n, gen_random_uuid(), 'y-' || n % 500, n / 500 + 1, 'Add', jsonb_build_object('k', 'key ' || n % 500, 'n', 1), now()
		from generate_series(2, $2::bigint + 1) as n`, tenant.String(), count); err != nil {
		t.Fatal(err)
	}
}

// alwaysAppending returns the Pacing of a process in which appends are always in progress, with pauses of this length.
func alwaysAppending(pause time.Duration) *projection.Pacing {
	began := time.Now().Add(-time.Hour)
	p := projection.NewPacing(func() time.Duration { return time.Since(began) })
	p.PauseFor(pause)
	return p
}

// A backlog that pauses for appends leaves its worker to a pair that needs it, and a pair that follows its log closely
// never pauses.
func TestPausedBacklogDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	behind, close := b.tenant(t), b.tenant(t)
	p := b.process(options{workers: 1, catchUp: projection.Limits{Events: 500, Bytes: 1 << 20, DocumentBytes: 1 << 20},
		pacing: alwaysAppending(time.Hour)})
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, sums("sums"), "test"); err != nil {
		t.Fatal(err)
	}
	b.importEvents(t, behind, 5000)
	p.start(t, b)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !p.runner.Pausing("default") {
		<-tick.C
	}
	for range 3 {
		documents(t, p.catalog, close, "sums", b.append(t, close, "x-1", "Add", `{"k": "a", "n": 1}`))
	}
	status, err := p.catalog.Status(t.Context(), behind, "sums")
	if err != nil || status.State != projection.StateRunning {
		t.Errorf("the backlog's state is %+v, %v", status, err)
	}
}

// A backlog that pauses for appends ends up with the same documents.
func TestPausedBacklogCatchesUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	definition := sums("sums")
	pacing := alwaysAppending(time.Millisecond)
	p := b.process(options{catchUp: projection.Limits{Events: 300, Bytes: 1 << 20, DocumentBytes: 1 << 20}, pacing: pacing})
	b.importEvents(t, tenant, 3000)
	p.start(t, b)
	if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	}
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	mustEqual(t, documents(t, p.catalog, tenant, "sums", last), fromScratch(t, definition, b.log(t, tenant)))
	if !pacing.HasPaused() {
		t.Error("it has not paused")
	}
}

// A replay reads no further while it pauses, and ends with its context.
func TestReplayPausesForAppends(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.importEvents(t, tenant, 3000)
	fold, err := folding.Compile(sums("sums"))
	if err != nil {
		t.Fatal(err)
	}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "sums"}, Number: 1, Database: "default"}
	pacing := alwaysAppending(time.Hour)
	folded := make(chan int, 10)
	replay := &projection.Replay{
		Driver: b.driver, Build: build, Tenant: tenant, Fold: fold, Unread: true, Pacing: pacing,
		Limits:  projection.Limits{Events: 500, Bytes: 1 << 20, DocumentBytes: 1 << 20},
		Counted: func(events int) { folded <- events },
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- replay.Run(ctx, b.store, 3000) }()
	if events := <-folded; events != 500 {
		t.Errorf("%d events are folded first", events)
	}
	for !pacing.HasPaused() {
		<-time.After(time.Millisecond)
	}
	stopped := errors.New("stopped")
	cancel(stopped)
	if err := <-done; !errors.Is(err, stopped) {
		t.Errorf("it ends with %v", err)
	}
	select {
	case events := <-folded:
		if events > 0 {
			t.Errorf("%d events are folded during the pause", events)
		}
	default:
	}
}
