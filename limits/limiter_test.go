package limits_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// process starts what a process of the service has of limits. kill ends it as kill -9 does: nothing is returned.
func process(t *testing.T, s *tables.Tables) (l *limits.Limiter, kill func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	settings, err := limits.LoadSettings(t.Context(), s.LimitTables, log)
	tablestest.Must(t, err)
	l = limits.NewLimiter(limits.Config{Store: s.LimitTables, Settings: settings, Process: domain.NewUUID().String(), Log: log})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	listening := make(chan struct{}, 100)
	running.Go(func() {
		_ = s.ListenLimits(ctx, func() { settings.Notice(); listening <- struct{}{} })
	})
	running.Go(func() { _ = settings.Run(ctx) })
	running.Go(func() { _ = l.Run(ctx) })
	<-listening
	kill = func() { cancel(); running.Wait() }
	t.Cleanup(kill)
	return l, kill
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func assign(t *testing.T, s *tables.Tables, plan domain.Plan) domain.TenantID {
	t.Helper()
	tablestest.Must(t, plan.Limits.Check("limits"))
	_, err := s.PutPlan(t.Context(), plan)
	tablestest.Must(t, err)
	tenant := tablestest.NewTenant(t, s)
	tablestest.Must(t, s.SetTenantLimits(t.Context(), tenant, domain.TenantLimits{Plan: plan.Name}))
	return tenant
}

// isRefused reports whether a request was refused for its rate, and fails for any other error.
func isRefused(t *testing.T, err error) bool {
	if err == nil {
		return false
	}
	e, ok := errors.AsType[*domain.Error](err)
	if !ok || e.Code != domain.CodeTooManyRequests || e.RetryAfter <= 0 {
		t.Errorf("got %v", err)
	}
	return true
}

// Two processes with more requests than the limit allows let in a burst and what the rate gives, and no more, while one
// of them is killed again and again.
func TestProcessesShareARate(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := assign(t, s, domain.Plan{Name: "small", Limits: domain.Limits{Requests: &domain.Rate{PerSecond: 200, Burst: 200}, Events: &domain.Rate{PerSecond: 400}}})
	steady, _ := process(t, s)
	var passed, appended atomic.Int64
	began := time.Now()
	const period = 3 * time.Second
	flood := func(ctx context.Context, l *limits.Limiter) {
		for ctx.Err() == nil && time.Since(began) < period {
			pass, err := l.Enter(ctx, limits.Caller{Tenant: tenant}, limits.Append)
			if ctx.Err() != nil {
				return
			}
			if !isRefused(t, err) {
				passed.Add(1)
				if err := pass.Append(ctx, 7, 100); ctx.Err() == nil && !isRefused(t, err) {
					appended.Add(7)
				}
			}
			pass.Close()
			<-time.After(2 * time.Millisecond)
		}
	}
	var floods sync.WaitGroup
	for range 4 {
		floods.Go(func() { flood(t.Context(), steady) })
	}
	for time.Since(began) < period {
		l, kill := process(t, s)
		ctx, end := context.WithTimeout(t.Context(), period/5)
		for range 4 {
			floods.Go(func() { flood(ctx, l) })
		}
		<-ctx.Done()
		end()
		kill()
	}
	floods.Wait()
	took := time.Since(began).Seconds()
	for what, got := range map[string]struct{ n, rate int64 }{"requests": {passed.Load(), 200}, "events": {appended.Load(), 400}} {
		most := float64(got.rate) * (1 + took)
		t.Logf("%d %s passed of at most %.0f", got.n, what, most)
		if float64(got.n) > most {
			t.Errorf("%d %s passed in %.3f s, of at most %.0f", got.n, what, took, most)
		}
	}
	if passed.Load() <= 200 {
		t.Errorf("only %d requests passed, no more than the burst: the test shows nothing", passed.Load())
	}
}

// Connections and requests in flight count over all processes, until they end.
func TestProcessesShareSlots(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := assign(t, s, domain.Plan{Name: "small", Limits: domain.Limits{Connections: new(int64(3)), InFlight: new(int64(1))}})
	one, _ := process(t, s)
	other, _ := process(t, s)
	enter := func(l *limits.Limiter, kind limits.Kind) (*limits.Pass, bool) {
		t.Helper()
		pass, err := l.Enter(t.Context(), limits.Caller{Tenant: tenant}, kind)
		return pass, !isRefused(t, err)
	}
	var passes []*limits.Pass
	for i, l := range []*limits.Limiter{one, other, one} {
		pass, ok := enter(l, limits.Connection)
		if !ok {
			t.Fatalf("connection %d is refused", i)
		}
		passes = append(passes, pass)
	}
	for _, l := range []*limits.Limiter{one, other} {
		if _, ok := enter(l, limits.Connection); ok {
			t.Fatal("a connection above the limit is let in")
		}
	}
	// Requests in flight are counted apart from connections.
	request, ok := enter(one, limits.Request)
	if !ok {
		t.Fatal("a request is refused for connections")
	}
	if _, ok := enter(other, limits.Request); ok {
		t.Error("a second request is let in")
	}
	request.Close()
	passes[0].Close()
	passes[0].Close() // twice is once
	eventually(t, "a slot moves to the other process", func() bool { _, ok := enter(other, limits.Connection); return ok })
	if _, ok := enter(other, limits.Connection); ok {
		t.Error("there is a connection too many")
	}
}

// A key's limits hold within those of its tenant, and leave other keys alone.
func TestAKeyHasItsOwnLimits(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := assign(t, s, domain.Plan{Name: "some", Limits: domain.Limits{Requests: &domain.Rate{PerSecond: 1, Burst: 5}}})
	l, _ := process(t, s)
	limited := limits.Caller{Tenant: tenant, Key: domain.NewUUID(), Limits: &domain.Limits{Requests: &domain.Rate{PerSecond: 1, Burst: 2}}}
	passed := 0
	for range 6 {
		if pass, err := l.Enter(t.Context(), limited, limits.Request); !isRefused(t, err) {
			passed++
			pass.Close()
		} else if !strings.Contains(err.Error(), "this key") {
			t.Errorf("the refusal is %q", err)
		}
	}
	if passed < 2 || passed > 3 { // a second may have passed
		t.Errorf("%d requests of the key passed", passed)
	}
	policy, current := l.Fields(limited, limits.Request)
	if policy != `"requests";q=5;w=5, "key-requests";q=2;w=2` || !strings.HasPrefix(current, `"requests";r=`) {
		t.Errorf("the fields are %s and %s", policy, current)
	}
	if pass, err := l.Enter(t.Context(), limits.Caller{Tenant: tenant}, limits.Request); err != nil {
		t.Errorf("another key: %v", err)
	} else {
		pass.Close()
	}
}

// A change takes effect without a restart, also for open connections.
func TestChangesTakeEffect(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	l, _ := process(t, s)
	connection, err := l.Enter(t.Context(), limits.Caller{Tenant: tenant}, limits.Connection)
	tablestest.Must(t, err)
	defer connection.Close()
	tablestest.Must(t, connection.Message(t.Context()))
	_, err = s.PutPlan(t.Context(), domain.Plan{Name: domain.DefaultPlan, Limits: domain.Limits{Connections: new(int64(1)), Requests: &domain.Rate{PerSecond: 1, Burst: 1}}})
	tablestest.Must(t, err)
	eventually(t, "messages are refused", func() bool { return isRefused(t, connection.Message(t.Context())) })
	_, err = l.Enter(t.Context(), limits.Caller{Tenant: tenant}, limits.Connection)
	if !isRefused(t, err) {
		t.Error("a second connection is let in")
	}
	tablestest.Must(t, s.DeletePlan(t.Context(), domain.DefaultPlan))
	eventually(t, "messages pass", func() bool { return connection.Message(t.Context()) == nil })
}

// The limits that a key gets or loses hold for its open connections.
func TestKeyLimitsOfOpenConnectionsChange(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	l, _ := process(t, s)
	caller := limits.Caller{Tenant: tablestest.NewTenant(t, s), Key: domain.NewUUID()}
	open := func() (*limits.Pass, error) { return l.Enter(t.Context(), caller, limits.Connection) }
	connection, err := open()
	tablestest.Must(t, err)
	defer connection.Close()
	caller.Limits = &domain.Limits{Connections: new(int64(1)), Requests: &domain.Rate{PerSecond: 1, Burst: 2}}
	connection.SetKeyLimits(caller.Key, caller.Limits)
	eventually(t, "messages are refused", func() bool { return isRefused(t, connection.Message(t.Context())) })
	if _, err := open(); !isRefused(t, err) {
		t.Error("a second connection is let in")
	}
	connection.SetKeyLimits(caller.Key, nil)
	tablestest.Must(t, connection.Message(t.Context()))
	var second *limits.Pass
	eventually(t, "the slot is free", func() bool {
		second, err = open()
		return !isRefused(t, err)
	})
	second.Close()
	connection.SetKeyLimits(caller.Key, caller.Limits)
	connection.Close()
	connection.SetKeyLimits(caller.Key, nil)
	eventually(t, "the slot is free after the connection has ended", func() bool {
		second, err = open()
		return !isRefused(t, err)
	})
	second.Close()
}

// While the database does not answer, requests pass on what is leased, and are then unavailable.
func TestWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	s := tablestest.OpenWith(t, db, func(c *tables.Config) { c.SystemURL = network.URL(t, db, migrations.RoleSystem) })
	tenant := assign(t, s, domain.Plan{Name: "some", Limits: domain.Limits{Requests: &domain.Rate{PerSecond: 1000}}})
	l, _ := process(t, s)
	enter := func() error {
		pass, err := l.Enter(t.Context(), limits.Caller{Tenant: tenant}, limits.Request)
		pass.Close()
		return err
	}
	tablestest.Must(t, enter())
	network.Cut()
	eventually(t, "requests are unavailable", func() bool {
		err := enter()
		if err != nil && !domain.IsCode(err, domain.CodeUnavailable) {
			t.Fatalf("got %v", err)
		}
		return err != nil
	})
}

// A process that stops while it has a ledger locked delays no other tenant, and that ledger's requests wait for it.
func TestALockedLedgerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	plan := domain.Plan{Name: "some", Limits: domain.Limits{Requests: &domain.Rate{PerSecond: 1000}}}
	locked, other := assign(t, s, plan), assign(t, s, plan)
	first, _ := process(t, s)
	pass, err := first.Enter(t.Context(), limits.Caller{Tenant: locked}, limits.Request)
	tablestest.Must(t, err)
	pass.Close()
	tx, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	tablestest.Must(t, err)
	if _, err := tx.Exec(t.Context(), "update manifold.limit_ledgers set updated_at = now() where tenant_id = $1", locked); err != nil {
		t.Fatal(err)
	}
	l, _ := process(t, s)
	waits := make(chan error, 1)
	go func() {
		pass, err := l.Enter(t.Context(), limits.Caller{Tenant: locked}, limits.Request)
		pass.Close()
		waits <- err
	}()
	began := time.Now()
	for range 3 {
		pass, err := l.Enter(t.Context(), limits.Caller{Tenant: other, Key: domain.NewUUID(), Limits: &plan.Limits}, limits.Request)
		tablestest.Must(t, err)
		pass.Close()
	}
	if len(waits) > 0 || time.Since(began) > 2*time.Second {
		t.Errorf("the locked ledger's request does not wait, or others do: %v", time.Since(began))
	}
	tablestest.Must(t, tx.Rollback(t.Context()))
	if err := <-waits; err != nil {
		t.Errorf("after the lock, the request is refused: %v", err)
	}
}

// What two processes create at once counts.
func TestQuotasUnderConcurrentCreation(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	tenant := assign(t, s, domain.Plan{Name: "few", Quotas: domain.Quotas{Groups: new(int64(3)), Keys: new(int64(0))}})
	var creations sync.WaitGroup
	var created atomic.Int64
	for i := range 12 {
		creations.Go(func() {
			from := s
			if i%2 == 0 {
				from = other
			}
			err := func() error {
				_, _, err := from.PutGroup(t.Context(), tenant, string(rune('a'+i)), tablestest.GroupDefinition(0), 0)
				return err
			}()
			e, _ := errors.AsType[*domain.Error](err)
			switch {
			case err == nil:
				created.Add(1)
			case e == nil || e.Code != domain.CodeQuotaExceeded || e.Quota == nil || *e.Quota != (domain.QuotaUse{Quota: domain.QuotaGroups, Used: 3, Limit: 3}):
				t.Errorf("got %v, %+v", err, e)
			}
		})
	}
	creations.Wait()
	if created.Load() != 3 {
		t.Errorf("%d groups were created, want 3", created.Load())
	}
	use, err := s.Use(t.Context(), tenant)
	tablestest.Must(t, err)
	if use[domain.QuotaGroups] != 3 {
		t.Errorf("the tenant uses %v", use)
	}
}

// What a request costs without limits, and within limits that are leased.
func BenchmarkEnter(b *testing.B) {
	for name, rate := range map[string]*domain.Rate{"unlimited": nil, "limited": {PerSecond: 1e9, Burst: 1e9}} {
		b.Run(name, func(b *testing.B) {
			s := tablestest.OpenWith(b, pgtest.Database(b), func(*tables.Config) {})
			if rate != nil {
				_, err := s.PutPlan(b.Context(), domain.Plan{Name: domain.DefaultPlan, Limits: domain.Limits{Requests: rate}})
				tablestest.Must(b, err)
			}
			log := slog.New(slog.DiscardHandler)
			settings, err := limits.LoadSettings(b.Context(), s.LimitTables, log)
			tablestest.Must(b, err)
			l := limits.NewLimiter(limits.Config{Store: s.LimitTables, Settings: settings, Process: "benchmark", Log: log})
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = l.Run(ctx) })
			defer running.Wait()
			defer cancel()
			caller := limits.Caller{Tenant: domain.NewTenantID()}
			b.ReportAllocs()
			for b.Loop() {
				pass, err := l.Enter(ctx, caller, limits.Request)
				if err != nil {
					b.Fatal(err)
				}
				pass.Close()
			}
		})
	}
}
