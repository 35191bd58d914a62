package limits_test

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Stored events are counted once, removed ones no longer, and an append that would exceed the quota is refused.
func TestStoredEventsHaveQuotas(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	log := slog.New(slog.DiscardHandler)
	tenant := assign(t, s, domain.Plan{Name: "ten", Quotas: domain.Quotas{Events: new(int64(10)), Bytes: new(int64(1 << 20))}})
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 8))
	l, _ := process(t, s)
	pass, err := l.Enter(t.Context(), limits.Caller{Tenant: tenant}, limits.Append)
	tablestest.Must(t, err)
	defer pass.Close()
	tablestest.Must(t, pass.Append(t.Context(), 100, 1)) // not counted yet, so there is no quota yet

	settings, err := limits.LoadSettings(t.Context(), s.LimitTables, log)
	tablestest.Must(t, err)
	counter := &limits.Counter{Store: s.LimitTables, Settings: settings, Owns: func(domain.TenantID) bool { return true }, Log: log}
	use := func() map[domain.Quota]int64 {
		t.Helper()
		tablestest.Must(t, counter.Count(t.Context()))
		use, err := s.Use(t.Context(), tenant)
		tablestest.Must(t, err)
		return use
	}
	before := use()
	if before[domain.QuotaEvents] != 8 || before[domain.QuotaBytes] < 8*20 {
		t.Fatalf("the tenant uses %v", before)
	}
	refused := func(count int64) bool {
		err := pass.Append(t.Context(), count, 1)
		if err != nil && !domain.IsCode(err, domain.CodeQuotaExceeded) {
			t.Fatalf("got %v", err)
		}
		return err != nil
	}
	eventually(t, "three more events are refused", func() bool { return refused(3) })
	if refused(2) || !refused(1) {
		t.Error("two more events are refused, or a third is let in")
	}
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 8, 1)) // not counted
	eventually(t, "an event that is not counted counts", func() bool { return refused(2) && !refused(1) })

	err = pgx.BeginTxFunc(t.Context(), s.Retention, pgx.TxOptions{BeginQuery: "begin isolation level repeatable read; set local manifold.tenant = '" + tenant.String() + "'"}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), limits.Uncount.SQL, tenant, []int64{1, 2, 3, 9}); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "delete from events e where e.tenant_id = $1 and e.position = any($2)", tenant, []int64{1, 2, 3, 9})
		return err
	})
	tablestest.Must(t, err)
	after := use()
	if after[domain.QuotaEvents] != 5 || after[domain.QuotaBytes] != before[domain.QuotaBytes]*5/8 {
		t.Errorf("after a removal of three counted events and one that was not, the tenant uses %v, before %v", after, before)
	}
	if again := use(); again[domain.QuotaEvents] != 5 {
		t.Errorf("counted twice: %v", again)
	}
}

// The bound on plans holds for concurrent requests: while one has not committed the last plan, another one waits.
func TestPlansAreBounded(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	_, err := super.Exec(t.Context(),
		"insert into manifold.plans (name, limits, quotas) select 'plan-' || n, '{}', '{}' from generate_series(1, $1) as n", domain.MaxPlans-1)
	tablestest.Must(t, err)
	put := func(s *tables.Tables, name string) error {
		_, err := s.PutPlan(t.Context(), domain.Plan{Name: name})
		return err
	}
	second := make(chan error, 1)
	network, nodes := pgtest.NewNetwork(t, db), db.Nodes(t)
	network.On(pgtest.BeforeCommit("insert into plans", func() bool {
		go func() { second <- put(s, "second") }()
		for waits, i := false, 0; !waits && len(second) == 0; i++ {
			err := nodes[i%len(nodes)].QueryRow(t.Context(), `
				select exists (select from pg_stat_activity a where a.datname = current_database() and a.wait_event_type = 'Lock'),
				  pg_sleep(0.01)::text`).Scan(&waits, new(string))
			if err != nil {
				t.Error(err)
				break
			}
		}
		return false
	}))
	first := tablestest.OpenWith(t, db, func(c *tables.Config) { c.SystemURL = network.URL(t, db, migrations.RoleSystem) })
	tablestest.Must(t, put(first, "first"))
	tablestest.WantCode(t, tablestest.Receive(t, second, "the second request"), domain.CodeQuotaExceeded)
}
