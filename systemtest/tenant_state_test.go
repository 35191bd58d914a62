package systemtest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/erasure"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

// upTo is the part of sequence that makes one of everything and takes nothing away.
func upTo(last string) []string { return sequence[:slices.Index(sequence, last)+1] }

// createEverything makes one of everything for a tenant, and documents of a shared projection.
func createEverything(t *testing.T, all map[string]endpoint, s *side) {
	t.Helper()
	for _, operation := range upTo("listKeys") {
		if operation == "cancelRebuild" || operation == "resetProjection" {
			continue
		}
		a := s.call(t, all[operation], tries[operation], s.user.key, s)
		if !slices.Contains(tries[operation].status, a.status) {
			t.Fatalf("%s for %s: %s", operation, s.mark, a)
		}
		s.keep(t, operation, a)
		s.settle(t, all)
	}
	if _, err := s.documents(t.Context(), "everyones", 10, 3); err != nil {
		t.Fatal(err)
	}
}

// shareProjection creates a shared projection with totals, which has documents for every tenant.
func shareProjection(t *testing.T, operator user) {
	t.Helper()
	operator.must(t, 201, nil, "PUT", "/v1/projections/everyones", []byte(`{"name":"everyones","on":{"*":"{'by': event.data.by, 'n': 1}"},"totals":{"sum":["n"]}}`))
}

// A key without an operation's scope is refused there, whatever else it may do.
func TestScopesInEveryEndpoint(t *testing.T) {
	t.Parallel()
	operator := newUser(t, inside(t, configuration(pgtest.Database(t))), operatorKey)
	all := endpoints(t)
	s := newSides(t, operator, "acmemark")[0]
	s.rebuild, s.spareKey, s.member, s.secret = s.id, s.id, s.id, s.id // no such ones, which nobody gets to find out
	for operation, e := range all {
		if len(e.scopes) == 0 || e.forOperator() {
			continue
		}
		var others []string
		for _, scope := range auth.TenantScopes {
			if !slices.Contains(e.scopes, string(scope)) {
				others = append(others, string(scope))
			}
		}
		if len(others) == 0 {
			continue // every key may call it
		}
		var key client.CreatedKey
		s.must(t, 201, &key, "POST", "/v1/keys", client.NewKey{Name: operation, Scopes: others})
		if a := s.call(t, e, tries[operation], key.Key, s); a.status != http.StatusForbidden || a.code() != "forbidden" {
			t.Errorf("%s with the scopes %v instead of %v: %s", operation, others, e.scopes, a)
		}
		if slices.ContainsFunc(e.scopes, func(scope string) bool { return strings.HasPrefix(scope, "operator") }) {
			continue
		}
		if a := s.call(t, e, tries[operation], operatorKey, s); a.status != http.StatusForbidden {
			t.Errorf("%s with the operator's key, which acts for no tenant: %s", operation, a)
		}
	}
}

// A suspended tenant is refused in every endpoint, and has everything back afterwards. Other tenants do not notice.
func TestSuspendedTenant(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	c.Usage = false // it saves when it likes, which shows in everybody's cursors
	operator := newUser(t, inside(t, c), operatorKey)
	all := endpoints(t)
	shareProjection(t, operator)
	sides := newSides(t, operator, "acmemark", "umbrellamark")
	for _, s := range sides {
		createEverything(t, all, s)
	}
	suspended, other := sides[0], sides[1]
	views := []string{suspended.settled(t, all), other.settled(t, all)}
	operator.must(t, 200, nil, "PATCH", "/v1/tenants/"+suspended.id, client.TenantChange{State: "suspended"})
	for operation, e := range all {
		if len(e.scopes) == 0 || e.forOperator() {
			continue
		}
		if a := suspended.call(t, e, tries[operation], suspended.user.key, suspended); a.status != http.StatusForbidden || a.code() != "tenant-suspended" {
			t.Errorf("%s for a suspended tenant: %s", operation, a)
		}
	}
	if now := other.settled(t, all); now != views[1] {
		t.Errorf("another tenant sees a change:%s", changed(views[1], now))
	}
	operator.must(t, 200, nil, "PATCH", "/v1/tenants/"+suspended.id, client.TenantChange{State: "active"})
	if now := suspended.settled(t, all); now != views[0] {
		t.Errorf("the tenant has not everything again:%s", changed(views[0], now))
	}
}

// After a tenant is deleted, only the record of its existence is left. Other tenants do not notice.
func TestDeletedTenant(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	c := configuration(db)
	c.Usage = false // it saves when it likes, which shows in everybody's cursors
	operator := newUser(t, inside(t, c), operatorKey)
	all := endpoints(t)
	shareProjection(t, operator)
	sides := newSides(t, operator, "acmemark", "umbrellamark")
	for _, s := range sides {
		createEverything(t, all, s)
	}
	deleted, other := sides[0], sides[1]
	view := other.settled(t, all)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	tables := tenantTables(t, super)
	before, others := rowsOf(t, super, tables, deleted.id), rowsOf(t, super, tables, other.id)
	for _, table := range []string{"events", "logs", "keys", "aggregates", "snapshots", "projections", "rebuilds", "webhooks", "webhook_secrets", "webhook_attempts", "retention_policies"} {
		if before["manifold."+table] == 0 {
			t.Errorf("the test is no good: the tenant has no row in %s", table)
		}
	}
	if a := deleted.call(t, all["deleteTenant"], tries["deleteTenant"], operatorKey, deleted); a.status != http.StatusAccepted {
		t.Fatal(a)
	}
	refused := func() {
		t.Helper()
		for operation, e := range all {
			if len(e.scopes) == 0 || e.forOperator() {
				continue
			}
			if a := deleted.call(t, e, tries[operation], deleted.user.key, deleted); a.status != http.StatusUnauthorized && a.status != http.StatusForbidden {
				t.Errorf("%s for a deleted tenant: %s", operation, a)
			}
		}
	}
	refused()
	eraseSoon(t, db)
	late := time.After(patience)
	record := client.Tenant{}
	for record.State != "deleted" {
		operator.must(t, 200, &record, "GET", "/v1/tenants/"+deleted.id, nil)
		select {
		case <-time.After(20 * time.Millisecond):
		case <-late:
			t.Fatalf("the tenant is not deleted yet: %+v", record)
		}
	}
	if !strings.Contains(record.Receipt, `"tenant": "`+deleted.id+`"`) {
		t.Errorf("the receipt is %q", record.Receipt)
	}
	refused()
	for table, rows := range rowsOf(t, super, tables, deleted.id) {
		if table == "manifold.tenants" && rows == 1 {
			continue
		}
		if rows > 0 {
			t.Errorf("%d rows of the deleted tenant are left in %s", rows, table)
		}
	}
	for table, rows := range rowsOf(t, super, tables, other.id) {
		if others[table] > 0 && rows == 0 { // totals may not be counted yet
			t.Errorf("%s no longer has a row of the other tenant", table)
		}
	}
	if now := other.settled(t, all); now != view {
		t.Errorf("another tenant sees a change:%s", changed(view, now))
	}
	// Its name is free again, and the tenant that takes it finds no data.
	_, again := newTenant(t, operator, deleted.mark)
	var log client.EventList
	again.must(t, 200, &log, "GET", "/v1/streams/$all", nil)
	if len(log.Events) > 0 || strings.Contains(fmt.Sprint(log), deleted.mark) {
		t.Errorf("a new tenant of the same name has %+v", log)
	}
}

// eraseSoon erases deleted tenants as the service does, which waits for minutes until all requests must have ended:
// in the test nothing is.
func eraseSoon(t *testing.T, db pgtest.DB) {
	t.Helper()
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	driver, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 2, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(driver.Close)
	eraser := erasure.New(erasure.Options{
		Tenants: s.TenantTables, Registry: s.Registry, Rows: s.ErasureTables, Drivers: map[string]drivers.Driver{"default": driver}, Log: slog.New(slog.DiscardHandler),
		Checkpoint: s.SealTables.Checkpoint, Keys: s.SigningKeys,
		Every: 20 * time.Millisecond, Settle: 200 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eraser.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
