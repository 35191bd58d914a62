package erasure_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestErasingATenantLeavesItsRecordOnly(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super := db.Pool(t, "postgres", 1)
	gone, kept := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	for _, tenant := range []domain.TenantID{gone, kept} {
		tablestest.Must(t, s.CreateKey(t.Context(), tablestest.NewKey(tenant, "key")))
		tablestest.Must(t, s.PutAggregate(t.Context(), tenant, aggregate.Definition{Category: "order", On: map[string]string{"*": "state"}}))
		tablestest.Must(t, s.PutSnapshots(t.Context(), tenant, aggregate.Snapshot{Stream: "order-1", Tag: "t", Version: 1, State: json.RawMessage(`{}`)}))
		id := domain.ProjectionID{Owner: tenant, Name: "same"}
		projection, rebuild := tablestest.Projection(t, s, id)
		mine := tablestest.Claim(t, s, rebuild)
		tablestest.Must(t, s.HoldProjection(t.Context(), mine))
		tablestest.Must(t, s.SwapProjection(t.Context(), mine, nil, time.Now()))
		tablestest.Queue(t, s, projection)
		tablestest.PutFault(t, s, domain.Fault{ProjectionID: id, Tenant: tenant, Build: 1, Position: 1})
		mail, _, err := s.PutGroup(t.Context(), tenant, "mail", domain.GroupDefinition{From: "start", BatchSize: 1, MaxInFlight: 1, MaxAttempts: 1, Partitions: 2}, 1)
		tablestest.Must(t, err)
		ledger, err := s.Ledger(t.Context(), tenant, "mail", 1, true)
		tablestest.Must(t, err)
		_, saved, err := s.SaveLedger(t.Context(), tenant, "mail", group.LedgerChange{
			Partition: 1, GroupRevision: mail.Revision, Revision: ledger.Revision, Ledger: []byte("filled"),
			Retry: []group.Retry{{Partition: 1, Position: 1}}, Park: []domain.DeadLetter{{Partition: 1, Position: 2}},
		})
		if err != nil || !saved {
			t.Fatalf("the ledger is saved: %v, %v", saved, err)
		}
		_, err = s.AnnounceGroupMember(t.Context(), tenant, "mail", domain.GroupMember{ID: domain.NewGroupMemberID()}, true)
		tablestest.Must(t, err)
		// More than two slices of events.
		for _, statement := range []string{
			`insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			 select $1, n, gen_random_uuid(), 'order-1', n, 'Happened', '{}', now() from generate_series(1, 10500) n`,
			`insert into manifold.logs (tenant_id, head) values ($1, 10500)`,
			`insert into manifold.stream_floors (tenant_id, stream_id, version) values ($1, 'order-2', 7)`,
			`insert into manifold.retention_policies (tenant_id, category, max_count, revision) values ($1, 'order', 7, 1)`,
			`insert into manifold.retention_floors (tenant_id, category, announced_to, run_id) values ($1, 'order', 7, $1)`,
			`insert into manifold.retention_spared (tenant_id, category, position) values ($1, 'order', 7)`,
			`insert into manifold.tickets (tenant_id, ticket_id, key_id, hash, expires_at) values ($1, $1, $1, 'hash', now())`,
		} {
			_, err := super.Exec(t.Context(), statement, tenant)
			tablestest.Must(t, err)
		}
	}
	tables := tenantTables(t, super)
	rows := func(tenant domain.TenantID) map[string]int {
		found := map[string]int{}
		for _, table := range tables {
			var n int
			tablestest.Must(t, super.QueryRow(t.Context(), "select count(*) from manifold."+table+" where tenant_id = $1", tenant).Scan(&n))
			if n > 0 {
				found[table] = n
			}
		}
		return found
	}
	for _, tenant := range []domain.TenantID{gone, kept} {
		filled := rows(tenant)
		for _, table := range tables {
			if filled[table] == 0 {
				insertAnyRow(t, super, table, tenant)
			}
		}
	}

	// The audit log may have the same rows, apart from keys.
	for _, table := range tables {
		if table == "keys" {
			continue
		}
		var columns string
		tablestest.Must(t, super.QueryRow(t.Context(), `
			select string_agg(quote_ident(c.column_name), ', ') from information_schema.columns c
			where c.table_schema = 'manifold' and c.table_name = $1 and c.is_generated = 'NEVER' and c.column_name <> 'tenant_id'`, table).Scan(&columns))
		_, err := super.Exec(t.Context(), "insert into manifold."+table+" (tenant_id, "+columns+") select $2, "+columns+" from manifold."+table+" t where t.tenant_id = $1", gone, gone.AuditLog())
		tablestest.Must(t, err)
	}

	tablestest.WantCode(t, s.EraseTenant(t.Context(), gone), domain.CodeConflict)
	tablestest.Must(t, s.SetTenantState(t.Context(), gone, domain.TenantSuspended))
	tablestest.WantCode(t, s.EraseTenant(t.Context(), gone), domain.CodeConflict)
	tablestest.WantCode(t, s.EraseTenant(t.Context(), domain.NewTenantID()), domain.CodeNotFound)
	tablestest.Must(t, s.SetTenantState(t.Context(), gone, domain.TenantDeleting))

	cut, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.EraseTenant(cut, gone); !errors.Is(err, context.Canceled) {
		t.Fatalf("an erasure that was cut off gave %v", err)
	}
	tablestest.Must(t, s.EraseLog(t.Context(), gone))
	if left := rows(gone); left["events"] != 0 || left["projections"] != 1 {
		t.Fatalf("with the log erased, there is %v", left)
	}
	for range 2 {
		tablestest.Must(t, s.EraseTenant(t.Context(), gone))
		for _, id := range []domain.TenantID{gone, gone.AuditLog()} {
			if left := rows(id); len(left) != 0 {
				t.Fatalf("left of %s are %v", id, left)
			}
		}
	}
	record, err := s.Tenant(t.Context(), gone)
	tablestest.Must(t, err)
	if record.State != domain.TenantDeleted || record.DeletedAt.IsZero() {
		t.Errorf("the record is %+v", record)
	}
	tablestest.Must(t, s.CreateTenant(t.Context(), domain.Tenant{ID: domain.NewTenantID(), Name: record.Name}))
	if other := rows(kept); len(other) != len(tables) || other["events"] != 10500 {
		t.Errorf("the other tenant has %v", other)
	}
	if deleting, err := s.TenantsIn(t.Context(), domain.TenantDeleting); err != nil || len(deleting) != 0 {
		t.Errorf("still deleting: %v, %v", deleting, err)
	}
}

// tenantTables returns the tables with rows of tenants, except the one of their records. The service's secrets are
// those of no tenant.
func tenantTables(t *testing.T, super *pgxpool.Pool) []string {
	t.Helper()
	rows, _ := super.Query(t.Context(), `
		select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid
		where c.relnamespace = 'manifold'::regnamespace and c.relkind = 'r' and a.attname = 'tenant_id' and c.relname not in ('tenants', 'service_secrets')`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	tablestest.Must(t, err)
	if len(tables) < 40 {
		t.Fatalf("the tables are %v", tables)
	}
	return tables
}

// insertAnyRow inserts a row of a tenant, with some value in each column that needs one.
func insertAnyRow(t *testing.T, super *pgxpool.Pool, table string, tenant domain.TenantID) {
	t.Helper()
	var columns, values string
	tablestest.Must(t, super.QueryRow(t.Context(), `
		select string_agg(quote_ident(a.attname), ', '), string_agg(case
			when a.attname = 'tenant_id' then '$1'
			when format_type(a.atttypid, -1) in ('text', 'bytea', 'boolean', 'bigint', 'integer', 'smallint', 'double precision', 'numeric') then '''1'''
			when format_type(a.atttypid, -1) = 'uuid' then 'gen_random_uuid()'
			when format_type(a.atttypid, -1) in ('timestamp with time zone', 'date') then 'now()'
			else '''{}''' end, ', ')
		from pg_attribute a
		where a.attrelid = ('manifold.' || $1)::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
			and (a.attnotnull and not a.atthasdef or a.attname = 'tenant_id')`, table).Scan(&columns, &values))
	if _, err := super.Exec(t.Context(), fmt.Sprintf("insert into manifold.%s (%s) values (%s)", table, columns, values), tenant); err != nil {
		t.Fatalf("insert a row into %s: %s", table, err)
	}
}

// What somebody else has locked when a slice comes to it, another eraser or an append that was under way, does not end
// the erasure before its time.
func TestErasingGoesOnBehindOthers(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]string{
		"another eraser": "delete from manifold.events where tenant_id = $1 and position <= 5000",
		"an append":      "update manifold.logs set head = head + 1 where tenant_id = $1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := tablestest.Open(t)
			tenant := tablestest.NewTenant(t, s)
			for range 6 {
				tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1000))
			}
			tablestest.Must(t, s.SetTenantState(t.Context(), tenant, domain.TenantDeleting))
			super := db.Pool(t, "postgres", 2)
			tx, err := super.Begin(t.Context())
			tablestest.Must(t, err)
			defer tx.Rollback(t.Context())
			_, err = tx.Exec(t.Context(), other, tenant)
			tablestest.Must(t, err)
			done := make(chan error, 1)
			go func() { done <- s.EraseLog(t.Context(), tenant) }()
			db.WaitForLock(t)
			tablestest.Must(t, tx.Commit(t.Context()))
			tablestest.Must(t, tablestest.Receive(t, done, "the erasure"))
			for _, table := range []string{"events", "logs"} {
				var left int
				tablestest.Must(t, super.QueryRow(t.Context(), "select count(*) from manifold."+table+" where tenant_id = $1", tenant).Scan(&left))
				if left != 0 {
					t.Errorf("%d rows of %s are left", left, table)
				}
			}
		})
	}
}
