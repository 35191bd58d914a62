package usage_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
	"github.com/manifold-es/manifold/usage"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// What processes count at the same time is added up once, although commits lose their answers or do not happen.
func TestUsageIsAddedOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	var sent, committed atomic.Int64
	network.On(pgtest.BeforeCommit("usage_days", func() bool { return sent.Add(1)%4 == 2 }))
	network.On(pgtest.AfterCommit("usage_days", func() bool { return committed.Add(1)%3 == 1 }))
	s := tablestest.OpenWith(t, db, func(c *tables.Config) { c.SystemURL = network.URL(t, db, migrations.RoleSystem) })
	direct := tablestest.OpenAgain(t, db)
	log := slog.New(slog.DiscardHandler)
	meters := []*usage.Meter{usage.NewMeter(s.UsageTables, log), usage.NewMeter(s.UsageTables, log)}
	tenants := []domain.TenantID{tablestest.NewTenant(t, direct), tablestest.NewTenant(t, direct)}
	const rounds = 6
	failed := 0
	for range rounds {
		for _, m := range meters {
			for _, tenant := range tenants {
				m.Of(tenant).Appended(3, 300)
				m.Of(tenant).Steps(7)
			}
			if err := m.Save(t.Context()); err != nil {
				failed++
			}
		}
	}
	for _, m := range meters {
		for m.Save(t.Context()) != nil {
			failed++
			if failed > 100 {
				t.Fatal("it cannot be saved")
			}
		}
	}
	if failed == 0 {
		t.Fatal("no save has failed: the test shows nothing")
	}
	today := time.Now().UTC()
	for _, tenant := range tenants {
		days, err := direct.UsageDays(t.Context(), tenant, today.AddDate(0, 0, -1), today.AddDate(0, 0, 1))
		tablestest.Must(t, err)
		var sum usage.Counts
		for _, day := range days { // midnight may have passed
			sum.Events, sum.Bytes, sum.Steps = sum.Events+day.Events, sum.Bytes+day.Bytes, sum.Steps+day.Steps
		}
		if want := (usage.Counts{Events: 2 * rounds * 3, Bytes: 2 * rounds * 300, Steps: 2 * rounds * 7}); sum != want {
			t.Errorf("got %+v, want %+v", sum, want)
		}
	}
	seen := 0
	tablestest.Must(t, direct.EachUsageDay(t.Context(), today.AddDate(0, 0, -1), today.AddDate(0, 0, 1), func(day usage.Day) error {
		seen++
		return nil
	}))
	if seen < len(tenants) {
		t.Errorf("the export has %d lines", seen)
	}
}

// A process that stops in order saves what it has counted.
func TestRunSavesAtTheEnd(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	m := usage.NewMeter(s.UsageTables, slog.New(slog.DiscardHandler))
	m.Of(tenant).Delivered(2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tablestest.Must(t, m.Run(ctx))
	today := time.Now().UTC()
	days, err := s.UsageDays(t.Context(), tenant, today.AddDate(0, 0, -1), today.AddDate(0, 0, 1))
	tablestest.Must(t, err)
	if len(days) != 1 || days[0].Deliveries != 2 {
		t.Errorf("got %+v", days)
	}
}
