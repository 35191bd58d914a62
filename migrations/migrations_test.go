package migrations_test

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	pgtest.NotOnCluster(t, "its schema cannot be reverted")
	ctx := t.Context()
	db := pgtest.Database(t)
	migrator := db.URL(pgtest.RoleMigrator)
	wantVersion := func(want uint) {
		t.Helper()
		version, dirty, err := migrations.Version(ctx, migrator)
		if err != nil || dirty || version != want {
			t.Fatalf("version %d, dirty %v, %v; want %d", version, dirty, err, want)
		}
	}
	wantVersion(migrations.Latest())
	if err := migrations.Down(ctx, migrator); err != nil {
		t.Fatal(err)
	}
	wantVersion(0)

	// Several processes start at once: one migrates, the others wait.
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			if err := migrations.Up(ctx, migrator, nil); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	wantVersion(migrations.Latest())
}

// Every table is classified, has row-level security enabled and forced, and has the tenant first in every index. On a
// cluster it is forced on the owner of local tables only (docs/decisions/0079-the-log-on-a-cluster.md).
func TestTablesKeepTenantsApart(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	rows, err := db.Pool(t, pgtest.RoleSuperuser, 1).Query(t.Context(), `
		select c.relname, c.relrowsecurity, c.relforcerowsecurity,
		  coalesce((select array_agg(i.indexrelid::regclass::text) from pg_index i
		    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
		    where i.indrelid = c.oid and a.attname <> 'tenant_id'), '{}')
		from pg_class c where c.relnamespace = 'manifold'::regnamespace and c.relkind = 'r'`)
	if err != nil {
		t.Fatal(err)
	}
	unseen := maps.Clone(migrations.Tables)
	var table string
	var enabled, forced bool
	var otherIndexes []string
	if _, err := pgx.ForEachRow(rows, []any{&table, &enabled, &forced, &otherIndexes}, func() error {
		kind, classified := unseen[table]
		delete(unseen, table)
		if !classified {
			t.Errorf("%s is not in migrations.Tables", table)
		}
		if want := !db.Distributed() || kind == migrations.Local; !enabled || forced != want {
			t.Errorf("%s: row-level security is enabled %t and forced %t, want it forced %t", table, enabled, forced, want)
		}
		for _, index := range otherIndexes {
			// Tenants' names are unique among tenants; members, beacons, plans, writers of usage and signing keys are
			// of no tenant.
			exempt := slices.Contains([]string{
				"manifold.tenants_name", "manifold.members_pkey", "manifold.replica_beacons_pkey", "manifold.plans_pkey", "manifold.usage_writers_pkey", "manifold.signing_keys_pkey",
			}, index)
			if kind == migrations.Distributed || !exempt {
				t.Errorf("%s: the tenant is not first in %s", table, index)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for table := range unseen {
		t.Errorf("migrations.Tables has %s, which no migration creates", table)
	}
}

// A role cannot do what it must not do, whatever the code above it requests.
func TestRolesLackWhatTheyMustNotDo(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	const tenant = "11111111-1111-1111-1111-111111111111"
	for _, forbidden := range []struct {
		role      migrations.Role
		statement string
	}{
		{migrations.RoleApp, "update manifold.events set event_type = 'x'"},
		{migrations.RoleApp, "delete from manifold.events"},
		{migrations.RoleApp, "truncate manifold.events"},
		{migrations.RoleApp, "delete from manifold.logs"},
		{migrations.RoleApp, "select * from manifold.keys"},
		{migrations.RoleApp, "insert into manifold.tenants values (gen_random_uuid(), 'x', 'active')"},
		{migrations.RoleApp, "insert into manifold.logs (tenant_id) values ('22222222-2222-2222-2222-222222222222')"},
		{migrations.RoleApp, "update manifold.tickets set expires_at = now()"},
		{migrations.RoleApp, "insert into manifold.subscriptions (tenant_id, name, definition, revision) values ('22222222-2222-2222-2222-222222222222', 'x', '{}', 1)"},
		{migrations.RoleApp, "insert into manifold.stream_floors values ('11111111-1111-1111-1111-111111111111', 'x-1', 1)"},
		{migrations.RoleApp, "update manifold.retention_floors set removed_to = 9"},
		{migrations.RoleApp, "select * from manifold.retention_spared"},
		{migrations.RoleApp, "insert into manifold.retention_policies (tenant_id, category, revision) values ('22222222-2222-2222-2222-222222222222', 'x', 1)"},
		{migrations.RoleSystem, "select force from manifold.retention_policies"},
		{migrations.RoleSystem, "update manifold.retention_floors set removed_to = 9"},
		{migrations.RoleApp, "select * from manifold.service_secrets"},
		{migrations.RoleDocuments, "select * from manifold.service_secrets"},
		{migrations.RoleApp, "select * from manifold.signing_keys"},
		{migrations.RoleSystem, "delete from manifold.signing_keys"},
		{migrations.RoleSystem, "update manifold.service_secrets set secret = ''"},
		{migrations.RoleSystem, "select * from manifold.events"},
		{migrations.RoleSystem, "select * from manifold.subscriptions"},
		{migrations.RoleSystem, "select * from manifold.dead_letters"},
		{migrations.RoleSystem, "update manifold.logs set head = 9"},
		{migrations.RoleSystem, "update manifold.projections set build = 9"},
		{migrations.RoleDocuments, "select * from manifold.events"},
		{migrations.RoleDocuments, "select * from manifold.projections"},
		{migrations.RoleRetention, "insert into manifold.logs (tenant_id) values ('11111111-1111-1111-1111-111111111111')"},
		{migrations.RoleRetention, "update manifold.events set event_type = 'x'"},
		{migrations.RoleRetention, "update manifold.subscription_ledgers set revision = 9"},
		{migrations.RoleRetention, "update manifold.retention_policies set max_count = 0"},
	} {
		t.Run(string(forbidden.role)+"/"+forbidden.statement, func(t *testing.T) {
			t.Parallel()
			conn, err := pgx.Connect(t.Context(), db.URL(forbidden.role))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			if _, err := conn.Exec(t.Context(), "set manifold.tenant = '"+tenant+"'"); err != nil {
				t.Fatal(err)
			}
			_, err = conn.Exec(t.Context(), forbidden.statement)
			if native, ok := errors.AsType[*pgconn.PgError](err); !ok || native.Code != "42501" {
				t.Errorf("%v; want insufficient privilege (42501)", err)
			}
		})
	}
}

// If an administrator has created the roles, the migrator needs no right to create or grant any.
func TestMigratorMayHaveNothingToDoWithRoles(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	made := pgtest.Database(t) // its migrations have made the roles
	super := made.Pool(t, pgtest.RoleSuperuser, 1)
	for _, statement := range []string{
		"create role plain_migrator login password 'secret'",
		"create database plain owner plain_migrator",
	} {
		if _, err := super.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, statement := range []string{"drop database plain", "drop role plain_migrator"} {
			if _, err := super.Exec(context.WithoutCancel(ctx), statement); err != nil {
				t.Error(err)
			}
		}
	})
	plain, err := url.Parse(made.URLAs("plain_migrator", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	plain.Path = "/plain"
	if err := migrations.Up(ctx, plain.String(), nil); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Down(ctx, plain.String()); err != nil {
		t.Fatal(err)
	}
}

// Rows with the tags of one event, as builds before version 22 wrote them, become runs, and runs become such rows
// again.
func TestTagsBecomeRuns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	rows := func() string {
		t.Helper()
		var all string
		if err := super.QueryRow(ctx, "select string_agg(concat_ws('|', position, tags, derived), '; ' order by position) from manifold.event_tags").Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	_, err := super.Exec(ctx, `insert into manifold.event_tags (tenant_id, position, tags, derived)
		select md5(r.position::text)::uuid, r.* from (values (3, e'a b\n\nc', e'\n\nc'), (9, 'd', null)) as r (position, tags, derived)`)
	if err != nil {
		t.Fatal(err)
	}
	downTo(t, super, "0021")
	if got, want := rows(), "3|{a,b}; 5|{c}|{c}; 9|{d}"; got != want {
		t.Errorf("rows of single events: %s, want %s", got, want)
	}
	if err := migrations.Up(ctx, db.URL(pgtest.RoleMigrator), nil); err != nil {
		t.Fatal(err)
	}
	if got, want := rows(), "3|a b; 5|c|c; 9|d"; got != want {
		t.Errorf("runs: %s, want %s", got, want)
	}
}
