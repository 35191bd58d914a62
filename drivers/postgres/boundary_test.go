package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// The tenant that a statement sets separates tenants; the documents' login does not, because it owns the tables. So the
// login reaches every tenant's documents even without its membership in manifold_views.
// docs/decisions/0066-the-documents-login-is-trusted.md draws the conclusion; review it if one of these ways is closed.
//
// The membership gives the login of another database on the server access to what it does not own, unless it may not
// connect.
func TestWhatTheDocumentsLoginReaches(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Private(t, pgtest.Options{}))
	ctx := t.Context()
	driver := open(t, db)
	defer driver.Close()
	build, tenant := shared("orders", 1), domain.NewTenantID()
	if err := driver.CreateTemporaryTable(ctx, build); err != nil {
		t.Fatal(err)
	}
	save(t, driver, build, tenant, drivers.Batch{To: 1, Upserts: documents(1, "a")})

	reached := func(t *testing.T, url string, attack ...string) (rows int, err error) {
		t.Helper()
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return 0, err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		for _, statement := range attack {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return 0, err
			}
		}
		return rows, tx.QueryRow(ctx, `select count(*) from manifold_documents."orders.1" where id <> ''`).Scan(&rows)
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := super.Exec(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	ways := map[string][]string{
		"no tenant":             nil,
		"the role":              {"set local role manifold_views"},
		"its own policy":        {`create policy mine on manifold_documents."orders.1" using (true)`},
		"no row-level security": {`alter table manifold_documents."orders.1" no force row level security`},
		"another tenant":        {fmt.Sprintf("set local manifold.tenant = '%s'", tenant)},
	}
	for _, member := range []bool{true, false} {
		if !member {
			// From version 16, it would otherwise be the superuser's grant that is revoked.
			exec("revoke manifold_views from manifold_documents granted by " + string(pgtest.RoleMigrator))
		}
		for way, attack := range ways {
			want := 1
			if way == "no tenant" || way == "the role" && !member {
				want = 0
			}
			if rows, err := reached(t, db.URL(migrations.RoleDocuments), attack...); rows != want || (err != nil) != (way == "the role" && !member) {
				t.Errorf("a member %v, by %s: %d rows, %v; want %d", member, way, rows, err, want)
			}
		}
	}

	exec("create role reports login noinherit password 'secret'", "grant manifold_views to reports")
	reports := db.URLAs("reports", "secret")
	for _, way := range []string{"its own policy", "no row-level security"} {
		if _, err := reached(t, reports, ways[way]...); err == nil {
			t.Errorf("the login of another database reaches documents by %s", way)
		}
	}
	if rows, err := reached(t, reports, ways["the role"]...); rows != 1 || err != nil {
		t.Errorf("the login of another database: %d rows, %v", rows, err)
	}
	// As docs/guides/operations.md describes.
	exec("revoke connect on database "+pgx.Identifier{db.Name}.Sanitize()+" from public",
		"grant connect on database "+pgx.Identifier{db.Name}.Sanitize()+" to manifold_app, manifold_system, manifold_documents, manifold_retention")
	if _, err := reached(t, reports, ways["the role"]...); err == nil {
		t.Error("it connects after the right to do so was revoked")
	}
	for _, role := range migrations.Roles {
		conn, err := pgx.Connect(ctx, db.URL(role))
		if err != nil {
			t.Fatal(err)
		}
		conn.Close(ctx)
	}
}
