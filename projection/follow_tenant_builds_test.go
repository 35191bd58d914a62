package projection_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/tables"
)

// The runner and readers go by the build that is live for the tenant, in whatever way the tenant comes to it and loses it;
// one that appends fold into rests.
func TestTenantsBuildsAreFollowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, other := b.tenant(t), b.tenant(t)
	p := b.process(options{})
	p.start(t, b)
	created, err := p.catalog.Create(t.Context(), domain.Everyone, sums("sums"), "test")
	if err != nil {
		t.Fatal(err)
	}
	table := func() int64 {
		t.Helper()
		number, err := b.store.NextBuild(t.Context(), domain.Everyone)
		if err != nil {
			t.Fatal(err)
		}
		build := created.LiveBuild()
		build.Number = number
		if err := b.driver.CreateTemporaryTable(t.Context(), build); err != nil {
			t.Fatal(err)
		}
		return number
	}
	app := b.db.Pool(t, migrations.RoleApp, 1)
	change := func(sql string, args ...any) {
		t.Helper()
		tx, err := app.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "set local manifold.tenant = '"+one.String()+"'"); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	put := func(build int64, base any) {
		t.Helper()
		change(`insert into manifold.tenant_builds as b (tenant_id, owner, name, build, base) values ($1, $2, 'sums', $3, $4)
			on conflict (tenant_id, owner, name) do update set build = excluded.build, base = excluded.base, updated_at = now()`,
			one, domain.Everyone, build, base)
	}
	check := func(when string, build int64) {
		t.Helper()
		for _, tenant := range []domain.TenantID{one, other} {
			last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
			mustEqual(t, documents(t, p.catalog, tenant, "sums", last), fromScratch(t, sums("sums"), b.log(t, tenant)))
			status, err := p.catalog.Status(t.Context(), tenant, "sums")
			want := created.Build
			if tenant == one {
				want = build
			}
			if err != nil || status.Projection.Build != want || status.Checkpoint != last {
				t.Errorf("%s: the status is %+v, %v; want build %d", when, status, err, want)
			}
		}
	}
	check("at first", created.Build)
	first := table()
	put(first, created.Build)
	check("with a build of its own", first)
	change("delete from manifold.tenant_builds b where b.tenant_id = $1", one)
	check("without it", created.Build)
	second := table()
	put(second, created.Build+100)
	check("with one of another base", created.Build)
	put(second, created.Build)
	check("with another one of its own", second)

	// Appends fold into it: the runner leaves it alone.
	inline := table()
	put(inline, nil)
	p.runner.Refresh()
	last := b.append(t, one, "x-1", "Add", `{"k": "a", "n": 1}`)
	elsewhere := b.append(t, other, "x-1", "Add", `{"k": "a", "n": 1}`)
	documents(t, p.catalog, other, "sums", elsewhere)
	_, err = p.catalog.Document(t.Context(), one, "sums", "a", projection.Freshness{MinPosition: last, Wait: 300 * time.Millisecond})
	if !domain.IsCode(err, domain.CodeNotCaughtUp) {
		t.Errorf("somebody follows a build that appends fold into: %v", err)
	}
	for _, lag := range p.runner.Lags() {
		if lag.Positions != 0 || lag.Faulted != 0 {
			t.Errorf("the lags are %+v", lag)
		}
	}
}

// paused is a store whose readings of a build that appends fold into wait, once, and that tells what the runner looks at.
type paused struct {
	*tables.Tables
	read    chan struct{} // closed when such a reading was made
	goOn    chan struct{} // closed when it may be used
	looking chan string   // at what, if somebody wants to know
	once    sync.Once
}

func (s *paused) ReadFor(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, q domain.LogQuery) (domain.Reading, error) {
	reading, err := s.Tables.ReadFor(ctx, tenant, id, q)
	if err == nil && reading.Inline {
		s.once.Do(func() {
			close(s.read)
			<-s.goOn
		})
	}
	return reading, err
}

func (s *paused) TenantBuilds(ctx context.Context, since time.Time) ([]domain.TenantBuild, error) {
	s.tell("builds")
	return s.Tables.TenantBuilds(ctx, since)
}

func (s *paused) Heads(ctx context.Context, since time.Time) ([]domain.Head, error) {
	s.tell("heads")
	return s.Tables.Heads(ctx, since)
}

func (s *paused) tell(what string) {
	select {
	case s.looking <- what:
	default:
	}
}

// A worker that has read that appends fold into the build learns it late: they no longer do, and the runner has seen
// that already. The build is followed all the same.
func TestAnInlineBuildThatEndsMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	s := &paused{Tables: b.store, read: make(chan struct{}), goOn: make(chan struct{}), looking: make(chan string)}
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Store: s, Drivers: map[string]drivers.Driver{"default": b.driver}, Progress: p.progress, Poll: 100 * time.Millisecond, Log: quiet,
	})
	created, err := p.catalog.Create(t.Context(), domain.Everyone, sums("sums"), "test")
	if err != nil {
		t.Fatal(err)
	}
	p.start(t, b)
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	documents(t, p.catalog, tenant, "sums", last)
	app := b.db.Pool(t, migrations.RoleApp, 1)
	put := func(base any) {
		t.Helper()
		tx, err := app.Begin(t.Context())
		if err == nil {
			_, err = tx.Exec(t.Context(), "set local manifold.tenant = '"+tenant.String()+"'")
		}
		if err == nil {
			_, err = tx.Exec(t.Context(), `insert into manifold.tenant_builds as b (tenant_id, owner, name, build, base) values ($1, $2, 'sums', $3, $4)
				on conflict (tenant_id, owner, name) do update set base = excluded.base, updated_at = now()`, tenant, domain.Everyone, created.Build, base)
		}
		if err == nil {
			err = tx.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(nil)
	last = b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	<-s.read
	put(-1)
	p.runner.Refresh()
	for what := ""; what != "builds"; what = <-s.looking {
	}
	<-s.looking // the look before has come to its end
	close(s.goOn)
	if _, err := p.catalog.Document(t.Context(), tenant, "sums", "a", projection.Freshness{MinPosition: last, Wait: time.Minute}); err != nil {
		t.Error(err)
	}
}
