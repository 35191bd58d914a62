package migrations_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// Whatever PostgreSQL refuses, the next attempt continues from there, once the reason is gone.
func TestRefusedMigrationMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	pgtest.NotOnCluster(t, "its schema cannot be reverted")
	ctx := t.Context()
	for schema, reached := range map[string]uint{"manifold": 0, "manifold_documents": 1} {
		db := pgtest.Database(t)
		migrator := db.URL(pgtest.RoleMigrator)
		super := db.Pool(t, pgtest.RoleSuperuser, 1)
		execute := func(statement string) {
			t.Helper()
			if _, err := super.Exec(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
		if err := migrations.Down(ctx, migrator); err != nil {
			t.Fatal(err)
		}
		execute("create schema " + schema) // in the way
		err := migrations.Up(ctx, migrator, nil)
		if err == nil || !strings.Contains(err.Error(), `"`+schema+`" already exists`) || len(err.Error()) > 300 {
			t.Fatalf("with %s in the way it says %v", schema, err)
		}
		if version, dirty, err := migrations.Version(ctx, migrator); version != reached || dirty || err != nil {
			t.Errorf("with %s in the way the version is %d, dirty %v, %v", schema, version, dirty, err)
		}
		execute("drop schema " + schema)
		if err := migrations.Up(ctx, migrator, nil); err != nil {
			t.Errorf("with %s out of the way: %v", schema, err)
		}
	}
}

// A release runs on the next one's schema, and an orchestrator that runs `migrate up` before each start finds nothing
// to do there.
func TestNewerSchemaIsLeftAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.Database(t)
	migrator := db.URL(pgtest.RoleMigrator)
	if _, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(ctx, "update manifold_schema set version = 9999"); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(ctx, migrator, nil); err != nil {
		t.Errorf("up: %v", err)
	}
	if err := migrations.Down(ctx, migrator); !db.Distributed() && (err == nil || !strings.Contains(err.Error(), "the release that migrated it")) {
		t.Errorf("down: %v", err)
	}
	if version, _, err := migrations.Version(ctx, migrator); version != 9999 || err != nil {
		t.Errorf("the version is %d, %v", version, err)
	}
}

// A person must check a migration that was interrupted.
func TestHalfWay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.Database(t)
	migrator := db.URL(pgtest.RoleMigrator)
	if _, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(ctx, "update manifold_schema set dirty = true"); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(ctx, migrator, nil); err == nil || !strings.Contains(err.Error(), "set dirty to false in the table manifold_schema") {
		t.Errorf("it says %v", err)
	}
}

// While a long transaction reads the log, as a backup does, a migration of the log waits, and others keep reading
// and writing.
func TestMigrationGivesWay(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t) // on a cluster it may wait for other tests
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	super := db.Pool(t, pgtest.RoleSuperuser, 3)
	for _, statement := range []string{ // one per call, as a distributed database demands
		"drop table manifold.seal_receipts, manifold.seal_subtrees, manifold.seals, manifold.sealed_logs, manifold.signing_keys",
		"alter table manifold.webhook_secrets drop column key_id",
		"alter table manifold.keys drop column limits",
		"drop table manifold.plans, manifold.tenant_limits, manifold.limit_ledgers, manifold.quota_checks, manifold.stored_events, manifold.usage_days, manifold.usage_writers",
		"alter table manifold.keys drop column expires_at, drop column networks, drop column last_used_at, drop column rotated_to",
		"alter table manifold.tickets drop column token",
		"drop policy system on manifold.tickets",
		"alter table manifold.tenants drop column last_checkpoint, drop column receipt",
		"drop table manifold.erasures, manifold.erased_events",
		"alter table manifold.events drop column erased",
		"alter table manifold.members drop column egresses",
		"drop table manifold.replica_beacons",
		"drop table manifold.total_sums, manifold.totals",
		"drop table manifold.report_settings, manifold.alerts",
		"alter table manifold.faults drop column retries, drop column retry_at",
		"alter table manifold.dead_letters drop column reported_at",
		"alter table manifold.parked_documents drop column reported, drop column retries, drop column retry_at",
		"drop table manifold.event_tags, manifold.tagged_events",
		"alter table manifold.events drop column gap, drop column gap_at, drop column tagged",
		"alter table manifold.rebuilds drop column fills, drop column seeded",
		"alter table manifold.skipped_events drop column documents",
		"drop table manifold.schema_retags, manifold.schema_rules, manifold.schema_versions, manifold.schema_types, manifold.schema_sets",
		"drop table manifold.command_outcomes",
		"alter table manifold.aggregates drop column commands",
		"update manifold_schema set version = 9",
	} {
		if _, err := super.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	backup, err := super.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer backup.Rollback(context.WithoutCancel(ctx))
	if _, err := backup.Exec(ctx, "select from manifold.events"); err != nil {
		t.Fatal(err)
	}
	const processes = 3 // at once, as an orchestrator starts them
	migrated := make(chan error, processes)
	for range processes {
		go func() { migrated <- migrations.Up(ctx, db.URL(pgtest.RoleMigrator), nil) }()
	}
	for waits := false; !waits; {
		err := super.QueryRow(ctx, `select exists (select from pg_locks where relation = 'manifold.events'::regclass and not granted),
			pg_sleep(0.005)::text`).Scan(&waits, new(string))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := super.Exec(ctx, "do $$ begin lock table manifold.events in row exclusive mode; end $$"); err != nil { // as an append does
		t.Fatalf("an append beside it: %v", err)
	}
	if err := backup.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	for range processes {
		if err := <-migrated; err != nil {
			t.Errorf("when the other transaction has ended: %v", err)
		}
	}
	if version, dirty, err := migrations.Version(ctx, db.URL(pgtest.RoleMigrator)); version != migrations.Latest() || dirty || err != nil {
		t.Errorf("the version is %d, dirty %v, %v", version, dirty, err)
	}
}
