package systemtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// tenantTables returns all of Manifold's tables with rows of tenants.
func tenantTables(t *testing.T, super *pgxpool.Pool) []string {
	t.Helper()
	rows, err := super.Query(t.Context(), `select c.oid::regclass::text from pg_class c
		join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
		where n.nspname in ('manifold', 'manifold_documents') and c.relkind in ('r', 'p') order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) < 13 {
		t.Fatalf("there are only the tables %v", tables)
	}
	return tables
}

// rowsOf counts a tenant's rows.
func rowsOf(t *testing.T, super *pgxpool.Pool, tables []string, tenant string) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for _, table := range tables {
		var n int
		if err := super.QueryRow(t.Context(), "select count(*) from "+table+" where tenant_id = $1", tenant).Scan(&n); err != nil {
			t.Fatal(err)
		}
		counts[table] = n
	}
	return counts
}

// denied reports whether PostgreSQL refused by privilege or by row-level security.
func denied(err error) bool { return pg.SQLState(err) == "42501" }

// partitioned reports whether a cluster refused to give a row to another tenant.
func partitioned(err error) bool { return pg.SQLState(err) == "0A000" }

// The test runs SQL with each of the service's logins, on every table. Without a tenant, a login sees nothing. With a
// tenant, it sees only that tenant's rows, and cannot change those of others.
func TestEveryLoginInSQL(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	var sides []*side
	t.Run("setup", func(t *testing.T) { // after it, no process changes rows in the background
		operator := newUser(t, inside(t, configuration(db)), operatorKey)
		all := endpoints(t)
		shareProjection(t, operator)
		sides = newSides(t, operator, "acmemark", "umbrellamark")
		for _, s := range sides {
			createEverything(t, all, s)
		}
	})
	if t.Failed() {
		return
	}
	one, other := sides[0].id, sides[1].id
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	tables := tenantTables(t, super)
	before := rowsOf(t, super, tables, other)

	for _, role := range []migrations.Role{migrations.RoleApp, migrations.RoleDocuments, migrations.RoleRetention} {
		conn := db.Pool(t, role, 1)
		seen := 0
		for _, table := range tables {
			// Each statement runs in a separate transaction, which is rolled back.
			try := func(tenant, statement string, args ...any) (rows int64, err error) {
				err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					if tenant != "" {
						if _, err := tx.Exec(t.Context(), "set local manifold.tenant = '"+tenant+"'"); err != nil {
							return err
						}
					}
					tag, err := tx.Exec(t.Context(), statement, args...)
					rows = tag.RowsAffected()
					return errors.Join(err, errRollback)
				})
				if errors.Is(err, errRollback) && !denied(err) {
					if native, failed := errors.AsType[*pgconn.PgError](err); failed {
						return rows, native
					}
					return rows, nil
				}
				return rows, err
			}
			name := string(role) + " in " + table
			// Across tenants the documents' login sees checkpoints, and no document.
			none := "select from " + table
			if strings.HasPrefix(table, "manifold_documents.") {
				none += " where id <> ''"
			}
			if rows, err := try("", none); rows != 0 || err != nil && !denied(err) {
				t.Errorf("%s sees %d rows without a tenant (%v)", name, rows, err)
			}
			own, err := try(one, "select from "+table+" where tenant_id = $1", one)
			if err != nil && !denied(err) {
				t.Errorf("%s: %v", name, err)
			}
			seen += int(own)
			foreign, err := try(one, "select from "+table+" where tenant_id <> $1", one)
			if err != nil && !denied(err) {
				t.Errorf("%s: %v", name, err)
			}
			if shared := role == migrations.RoleApp && table == "manifold.projections"; foreign != 0 && !shared {
				t.Errorf("%s sees %d rows of others", name, foreign)
			}
			for _, change := range []string{"delete from " + table, "update " + table + " set tenant_id = tenant_id"} {
				if rows, err := try("", change); rows != 0 || err != nil && !denied(err) {
					t.Errorf("%s without a tenant: %s changes %d rows (%v)", name, change, rows, err)
				}
				if rows, err := try(one, change+" where tenant_id <> $1", one); rows != 0 || err != nil && !denied(err) {
					t.Errorf("%s: %s changes %d rows of others (%v)", name, change, rows, err)
				}
			}
			// To hand a row of one's own to another tenant, or to take one.
			if rows, err := try(one, "update "+table+" set tenant_id = $2 where tenant_id = $1", one, other); rows != 0 || err != nil && !denied(err) && !(db.Distributed() && partitioned(err)) {
				t.Errorf("%s gives %d rows away (%v)", name, rows, err)
			}
		}
		if seen == 0 {
			t.Errorf("%s sees nothing of its tenant: the test is no good", role)
		}
	}

	// Events are immutable by privilege; the login that reads across tenants reads neither events nor documents.
	app, system := db.Pool(t, migrations.RoleApp, 1), db.Pool(t, migrations.RoleSystem, 1)
	for _, statement := range []string{"update manifold.events set event_type = 'x'", "delete from manifold.events", "truncate manifold.events"} {
		if _, err := app.Exec(context.Background(), statement); !denied(err) {
			t.Errorf("the app login may %q: %v", statement, err)
		}
	}
	views, err := super.Query(t.Context(), "select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'manifold_documents' and c.relkind = 'v'")
	if err != nil {
		t.Fatal(err)
	}
	public, err := pgx.CollectRows(views, pgx.RowTo[string])
	if err != nil || len(public) == 0 && !db.Distributed() { // on a cluster, there are no public views
		t.Fatalf("there is no view of the shared projection: %v", err)
	}
	for _, table := range append(slices.Clone(tables), public...) {
		documents := strings.HasPrefix(table, "manifold_documents.")
		if !documents && !slices.Contains([]string{"manifold.events", "manifold.snapshots"}, table) {
			continue
		}
		if _, err := system.Exec(t.Context(), "select from "+table); !denied(err) {
			t.Errorf("the system login reads %s: %v", table, err)
		}
		// Appends save inline documents, under their tenant; the views show those of all tenants.
		tag, err := app.Exec(t.Context(), "select from "+table)
		if read := err == nil && tag.RowsAffected() > 0; documents && (read || slices.Contains(public, table) && !denied(err)) {
			t.Errorf("the app login reads %s without a tenant: %d rows (%v)", table, tag.RowsAffected(), err)
		}
	}
	for table, rows := range rowsOf(t, super, tables, other) {
		if rows != before[table] {
			t.Errorf("%s had %d rows of the other tenant, and has %d", table, before[table], rows)
		}
	}
}

// errRollback ends a transaction that must leave nothing.
var errRollback = errors.New("roll back")
