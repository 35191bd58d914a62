package tables_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Two tenants with the same streams and the same event ids do not see one another anywhere.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx := t.Context()
	one, two, none := domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()
	a := tablestest.WithIDs(tablestest.Counted("order-1", domain.None, 2))
	if got := tablestest.Append(t, s, one, a); got.Duplicate || got.Position != 2 {
		t.Errorf("the first tenant's append is answered %+v", got)
	}
	if got := tablestest.Append(t, s, two, a); got.Duplicate || got.Position != 2 {
		t.Errorf("the second tenant's append is answered %+v", got)
	}
	tablestest.Append(t, s, two, tablestest.Counted("order-1", 2, 1))
	tablestest.Append(t, s, two, tablestest.Counted("invoice-1", domain.None, 1))
	if got := tablestest.Append(t, s, one, a); !got.Duplicate {
		t.Error("the repeat is no duplicate")
	}
	for tenant, want := range map[domain.TenantID]int64{one: 2, two: 4, none: 0} {
		events := tablestest.WholeLog(t, s, tenant)
		if int64(len(events)) != want {
			t.Errorf("there are %d events, want %d", len(events), want)
		}
		names, err := s.Streams(ctx, tenant, "", "", "", 10)
		tablestest.Must(t, err)
		if streams := int64(len(names)); streams != want/2 {
			t.Errorf("there are %d streams for %d events", streams, want)
		}
		_, err = s.StreamInfo(ctx, tenant, "invoice-1")
		if there := err == nil; there != (tenant == two) {
			t.Errorf("invoice-1: %v", err)
		}
		count, err := s.CountEvents(ctx, tenant, domain.Source{Categories: []string{"order", "invoice"}}, []string{"Counted"}, 0, 100)
		tablestest.Must(t, err)
		at, err := s.PositionAt(ctx, tenant, time.Now().Add(time.Hour))
		tablestest.Must(t, err)
		if count != want || at != want {
			t.Errorf("%d are counted, and position %d is the last; want %d", count, at, want)
		}
	}
}

// What straight SQL sees with the app login's credentials.
func TestRowLevelSecurityHoldsTheTenant(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	one, two := domain.NewTenantID(), domain.NewTenantID()
	tablestest.Append(t, s, one, tablestest.Counted("order-1", domain.None, 2))
	tablestest.Append(t, s, two, tablestest.Counted("order-1", domain.None, 3))
	conn, err := db.Pool(t, migrations.RoleApp, 1).Acquire(ctx)
	tablestest.Must(t, err)
	defer conn.Release()
	count := func(table string) (n int) {
		t.Helper()
		tablestest.Must(t, conn.QueryRow(ctx, "select count(*) from manifold."+table).Scan(&n))
		return n
	}
	if events, logs := count("events"), count("logs"); events != 0 || logs != 0 {
		t.Errorf("without a tenant %d events and %d logs are seen", events, logs)
	}
	for tenant, want := range map[domain.TenantID]int{one: 2, two: 3} {
		tx, err := conn.Begin(ctx)
		tablestest.Must(t, err)
		_, err = tx.Exec(ctx, "set local manifold.tenant = '"+tenant.String()+"'")
		tablestest.Must(t, err)
		if events, logs := count("events"), count("logs"); events != want || logs != 1 {
			t.Errorf("%d events and %d logs are seen, want %d and 1", events, logs, want)
		}
		var others int
		tablestest.Must(t, tx.QueryRow(ctx, "select count(*) from manifold.events where tenant_id <> $1", [16]byte(tenant)).Scan(&others))
		if others != 0 {
			t.Errorf("%d events of others are seen", others)
		}
		tablestest.Must(t, tx.Rollback(ctx))
	}
	if events := count("events"); events != 0 {
		t.Errorf("behind the transaction %d events are seen: the setting outlived it", events)
	}
	insert := "insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at) values ($1, 100, gen_random_uuid(), 'order-9', 1, 'X', '{}', now())"
	for statement, sql := range map[string]string{
		"update": "update manifold.events set event_type = 'Forged' where tenant_id = $1",
		"delete": "delete from manifold.events where tenant_id = $1",
		"insert": insert,
	} {
		tx, err := conn.Begin(ctx)
		tablestest.Must(t, err)
		_, err = tx.Exec(ctx, "set local manifold.tenant = '"+one.String()+"'")
		tablestest.Must(t, err)
		tenant := one
		if statement == "insert" {
			tenant = two // for another than the one that is set
		}
		_, err = tx.Exec(ctx, sql, [16]byte(tenant))
		if got := tablestest.StateOf(err); got != "42501" {
			t.Errorf("%s of an event: %v, want it refused by privilege", statement, err)
		}
		tablestest.Must(t, tx.Rollback(ctx))
	}
	system, err := db.Pool(t, migrations.RoleSystem, 1).Acquire(ctx)
	tablestest.Must(t, err)
	defer system.Release()
	_, err = system.Exec(ctx, "select from manifold.events")
	if got := tablestest.StateOf(err); got != "42501" {
		t.Errorf("the system login reads events: %v", err)
	}
}
