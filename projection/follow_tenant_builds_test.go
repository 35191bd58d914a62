package projection_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
)

// The runner and readers use the build that is live for the tenant, however the tenant gets and loses it. A build that
// appends fold into is not followed.
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
			on conflict (tenant_id, owner, name) do update set build = excluded.build, base = excluded.base, updated_at = excluded.updated_at`,
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

// If an inline build ends after a worker has read that it is inline, and the runner has already seen that, the build is
// followed nevertheless.
func TestInlineBuildEndsDuringATurn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	var pauses atomic.Bool                                 // the next reading for the build waits
	read, goOn := make(chan struct{}), make(chan struct{}) // closed when it was made, and when it may be used
	looking := make(chan string)                           // at what the runner looks, if somebody wants to know
	through, network := b.throughNetwork(t)
	network.After("p.held_by is not null or b.held_by is not null", func(int) bool {
		if pauses.CompareAndSwap(true, false) {
			close(read)
			<-goOn
		}
		return true
	})
	for what, statement := range map[string]string{"builds": "from tenant_builds b", "heads": "select l.tenant_id, l.head, l.last_at from logs"} {
		network.Before(statement, func() bool {
			select {
			case looking <- what:
			default:
			}
			return true
		})
	}
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Store: storeOf(through), Drivers: map[string]drivers.Driver{"default": b.driver}, Progress: p.progress, Poll: 100 * time.Millisecond, Log: quiet,
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
				on conflict (tenant_id, owner, name) do update set base = excluded.base, updated_at = excluded.updated_at`, tenant, domain.Everyone, created.Build, base)
		}
		if err == nil {
			err = tx.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	settled(t, p.runner)
	pauses.Store(true)
	put(nil)
	last = b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	<-read
	put(-1)
	p.runner.Refresh()
	for what := ""; what != "builds"; what = <-looking {
	}
	<-looking // the look before has ended
	close(goOn)
	if _, err := p.catalog.Document(t.Context(), tenant, "sums", "a", projection.Freshness{MinPosition: last, Wait: time.Minute}); err != nil {
		t.Error(err)
	}
}
