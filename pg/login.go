package pg

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/migrations"
)

// Login describes a login to Manifold's own database and its privileges.
type Login struct {
	User        string
	ServerIs    string        // the server's version, such as "16.4"
	Major       int           // the server's major version, such as 16
	ClockAhead  time.Duration // the server's clock minus this machine's, to within half a round trip
	RoundTrip   time.Duration
	Superuser   bool
	SeesAll     bool     // row-level security does not apply to it
	Administers bool     // it may create roles or databases
	OwnsLog     bool     // it owns Manifold's tables, or is a member of the role that does
	Lacks       []string // privileges that its role needs, such as "insert on manifold.events"
	HasTooMuch  []string // privileges that its role must not have
}

// The supported major versions of PostgreSQL.
const (
	OldestMajor = 14
	NewestMajor = 18 // the newest that the tests run on; later ones are expected to work
)

// rights lists the privileges that a role needs and those it must not have: table -> privileges. A role without an
// entry has none.
var rights = map[migrations.Role]struct{ needs, mustNot map[string]string }{
	migrations.RoleApp: {
		needs: map[string]string{
			"manifold.events": "select insert", "manifold.logs": "select insert update", "manifold.tenants": "select",
			"manifold.aggregates": "select insert update delete", "manifold.snapshots": "select insert update delete",
			"manifold.projections": "select insert update delete", "manifold.rebuilds": "select insert update delete",
			"manifold.retired_builds": "select insert update delete", "manifold.faults": "select insert update delete",
			"manifold.projection_versions": "select insert update delete", "manifold.tenant_builds": "select insert update delete",
			"manifold.parked_documents": "select insert update delete", "manifold.parked_events": "select insert update delete",
			"manifold.skipped_events": "select insert update delete", "manifold.upcasters": "select insert update delete",
			"manifold.subscriptions": "select insert update delete", "manifold.subscription_ledgers": "select insert update delete",
			"manifold.subscription_retries": "select insert update delete", "manifold.dead_letters": "select insert update delete",
			"manifold.subscription_members": "select insert update delete", "manifold.tickets": "select insert delete",
			"manifold.webhooks": "select insert update delete", "manifold.webhook_secrets": "select insert update delete",
			"manifold.webhook_attempts": "select insert delete", "manifold.webhook_claims": "select insert delete",
			"manifold.replays":            "select insert update delete",
			"manifold.retention_policies": "select insert update delete", "manifold.retention_floors": "select",
			"manifold.build_losses": "select insert update delete",
			"manifold.schema_sets":  "select insert update delete", "manifold.schema_types": "select insert update delete",
			"manifold.schema_versions": "select insert update delete", "manifold.schema_rules": "select insert update delete",
			"manifold.report_settings": "select insert update delete", "manifold.alerts": "select insert update delete",
			"manifold.replica_beacons": "select", "manifold.plans": "select", "manifold.tenant_limits": "select",
			"manifold.quota_checks": "select insert update", "manifold.stored_events": "select insert update",
			"manifold.sealed_logs": "select insert update", "manifold.seals": "select insert delete",
			"manifold.seal_subtrees": "select insert", "manifold.seal_receipts": "select",
			"manifold.erasures": "select insert update", "manifold.erased_events": "select",
		},
		mustNot: map[string]string{
			"manifold.events": "update delete truncate", "manifold.logs": "delete truncate", "manifold.keys": "select insert update delete",
			"manifold.stream_floors": "insert update delete truncate", "manifold.retention_floors": "insert update delete truncate",
		},
	},
	migrations.RoleSystem: {
		needs: map[string]string{
			"manifold.tenants": "select insert update", "manifold.keys": "select insert update delete", "manifold.logs": "select",
			"manifold.projections": "select", "manifold.rebuilds": "select", "manifold.faults": "select",
			"manifold.tenant_builds": "select", "manifold.members": "select insert update delete",
			"manifold.service_consumers": "select insert delete", "manifold.report_settings": "select",
			"manifold.replica_beacons": "select insert update delete", "manifold.stored_events": "select",
			"manifold.plans": "select insert update delete", "manifold.tenant_limits": "select insert update delete",
			"manifold.limit_ledgers": "select insert update delete", "manifold.quota_checks": "select insert update delete",
			"manifold.usage_days": "select insert update delete", "manifold.usage_writers": "select insert update delete",
			"manifold.signing_keys": "select insert update",
		},
		mustNot: map[string]string{"manifold.events": "select insert update delete truncate", "manifold.logs": "insert update delete truncate", "manifold.snapshots": "select insert update delete", "manifold.webhook_secrets": "select insert update delete"},
	},
	migrations.RoleRetention: {
		needs: map[string]string{
			"manifold.events": "select delete", "manifold.logs": "select delete", "manifold.stream_floors": "select insert update delete",
			"manifold.subscriptions": "select delete", "manifold.dead_letters": "select delete",
			"manifold.retention_policies": "select delete", "manifold.retention_floors": "select insert update delete",
			"manifold.retention_spared": "select insert delete", "manifold.snapshots": "select delete",
			"manifold.stored_events": "select update delete", "manifold.erased_events": "select insert delete",
			"manifold.sealed_logs": "select insert update delete", "manifold.seals": "select delete",
			"manifold.seal_receipts": "select insert delete",
		},
		mustNot: map[string]string{"manifold.events": "insert update truncate", "manifold.keys": "select insert update delete"},
	},
	migrations.RoleDocuments: {
		mustNot: map[string]string{
			"manifold.events": "select insert update delete truncate", "manifold.logs": "select insert update delete truncate",
			"manifold.keys": "select insert update delete",
		},
	},
}

// CheckLogin connects with a login and compares its privileges with what its role needs and must not have. A missing
// table counts for neither: see CheckSchema. CheckLogin closes the connection again.
func CheckLogin(ctx context.Context, url string, role migrations.Role) (Login, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return Login{}, fmt.Errorf("%w%s", err, remedy(err))
	}
	defer closeSoon(ctx, conn)
	login := Login{}
	var now time.Time
	sent := time.Now()
	// The time is requested alone, so that nothing else is in the round trip.
	if err := conn.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
		return Login{}, fmt.Errorf("ask for the server's time: %w", err)
	}
	login.RoundTrip = time.Since(sent)
	login.ClockAhead = now.Sub(sent.Add(login.RoundTrip / 2))
	err = conn.QueryRow(ctx, `
		select current_user, current_setting('server_version'), current_setting('server_version_num')::int / 10000,
		  r.rolsuper, r.rolbypassrls, r.rolcreaterole or r.rolcreatedb,
		  coalesce((select pg_has_role(current_user, c.relowner, 'member') from pg_class c where c.oid = to_regclass('manifold.events')), false)
		from pg_roles r where r.rolname = current_user`).
		Scan(&login.User, &login.ServerIs, &login.Major, &login.Superuser, &login.SeesAll, &login.Administers, &login.OwnsLog)
	if err != nil {
		return Login{}, fmt.Errorf("look at the login: %w", err)
	}
	for has, tables := range map[bool]map[string]string{true: rights[role].mustNot, false: rights[role].needs} {
		for table, privileges := range tables {
			found, err := privilegesOn(ctx, conn, table, strings.Fields(privileges), has)
			if err != nil {
				return Login{}, err
			}
			if has {
				login.HasTooMuch = append(login.HasTooMuch, found...)
			} else {
				login.Lacks = append(login.Lacks, found...)
			}
		}
	}
	return login, nil
}

// privilegesOn returns those of a table's privileges that the login has, or lacks.
func privilegesOn(ctx context.Context, conn *pgx.Conn, table string, privileges []string, has bool) ([]string, error) {
	rows, _ := conn.Query(ctx, `
		select p || ' on ' || $1::text from unnest($2::text[]) p
		where to_regclass($1) is not null and has_table_privilege(to_regclass($1)::oid, p) = $3 order by 1`, table, privileges, has)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look at the privileges on %s: %w", table, err)
	}
	return found, nil
}
