package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func shared(name string, number int64) domain.Build {
	return domain.Build{ProjectionID: domain.ProjectionID{Name: name}, Number: number}
}

func documents(version int64, ids ...string) []domain.Document {
	var documents []domain.Document
	for _, id := range ids {
		documents = append(documents, domain.Document{ID: id, Version: version, Data: json.RawMessage(fmt.Sprintf(`{"version": %d}`, version))})
	}
	return documents
}

func save(t *testing.T, driver *postgres.Driver, build domain.Build, tenant domain.TenantID, batch drivers.Batch) {
	t.Helper()
	if err := driver.Save(t.Context(), build, tenant, batch); err != nil {
		t.Fatalf("Save from %d to %d: %v", batch.From, batch.To, err)
	}
}

// This tests what the documents' own login can see and do with arbitrary SQL.
func TestRowLevelSecurity(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	defer driver.Close()
	one, two := domain.NewTenantID(), domain.NewTenantID()
	build := shared("orders", 1)
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	for i, tenant := range []domain.TenantID{one, two} {
		own := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "mine"}, Number: 1}
		for _, build := range []domain.Build{build, own} {
			save(t, driver, build, tenant, drivers.Batch{To: int64(i + 1), Upserts: documents(int64(i+1), "a", "b")})
		}
	}
	login := db.Pool(t, migrations.RoleDocuments, 2)
	for _, table := range []string{`manifold_documents."orders.1"`, "manifold_documents.documents"} {
		for _, seen := range []struct {
			setting                string
			documents, checkpoints int
		}{
			{"", 0, 2}, // checkpoints of all tenants, for drivers.Driver.Checkpoints
			{"set local manifold.tenant = ''", 0, 2},
			{"set local manifold.tenant = '" + one.String() + "'", 2, 1},
			{"set local manifold.tenant = '" + two.String() + "'", 2, 1},
			{"set local manifold.tenant = '" + domain.NewTenantID().String() + "'", 0, 0},
		} {
			err := pgx.BeginFunc(t.Context(), login, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), seen.setting); err != nil {
					return err
				}
				var documents, checkpoints int
				err := tx.QueryRow(t.Context(), "select count(*) filter (where id <> ''), count(*) filter (where id = '') from "+table).Scan(&documents, &checkpoints)
				if documents != seen.documents || checkpoints != seen.checkpoints {
					t.Errorf("%s, %q: %d documents and %d checkpoints are seen, want %d and %d", table, seen.setting, documents, checkpoints, seen.documents, seen.checkpoints)
				}
				return err
			})
			if err != nil {
				t.Errorf("%s, %q: %v", table, seen.setting, err)
			}
		}
		for _, write := range []struct{ setting, sql string }{
			{"", "update " + table + " set version = 99"},
			{"", "delete from " + table},
			{"set local manifold.tenant = '" + one.String() + "'", "update " + table + " set version = 99 where tenant_id = '" + two.String() + "'"},
			{"set local manifold.tenant = '" + one.String() + "'", "delete from " + table + " where tenant_id = '" + two.String() + "'"},
		} {
			err := pgx.BeginFunc(t.Context(), login, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), write.setting); err != nil {
					return err
				}
				tag, err := tx.Exec(t.Context(), write.sql)
				if tag.RowsAffected() != 0 {
					t.Errorf("%q, %q: %d rows", write.setting, write.sql, tag.RowsAffected())
				}
				return err
			})
			if err != nil {
				t.Errorf("%q, %q: %v", write.setting, write.sql, err)
			}
		}
		for _, setting := range []string{"", "set local manifold.tenant = '" + one.String() + "'"} {
			err := pgx.BeginFunc(t.Context(), login, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), setting); err != nil {
					return err
				}
				_, err := tx.Exec(t.Context(), "insert into "+table+" values ($1, 1, 'c', 1, '{}')", two.String())
				return err
			})
			if native, ok := err.(*pgconn.PgError); !ok || native.Code != "42501" {
				t.Errorf("%s, %q: an insert for another tenant gives %v", table, setting, err)
			}
		}
	}
	// The appending login may write documents of an inline projection only for the tenant that is set.
	err := pgx.BeginFunc(t.Context(), db.Pool(t, migrations.RoleApp, 1), func(tx pgx.Tx) error {
		var n int
		for setting, want := range map[string]int{"": 0, "set local manifold.tenant = '" + one.String() + "'": 1} {
			if _, err := tx.Exec(t.Context(), "reset manifold.tenant; "+setting); err != nil {
				return err
			}
			if err := tx.QueryRow(t.Context(), `select count(distinct tenant_id) from manifold_documents.documents`).Scan(&n); err != nil || n > want {
				return fmt.Errorf("%q: it sees %d tenants, %w", setting, n, err)
			}
		}
		_, err := tx.Exec(t.Context(), "insert into manifold_documents.documents values ($1, 1, 'c', 1, '{}')", two.String())
		return err
	})
	if native, ok := errors.AsType[*pgconn.PgError](err); !ok || native.Code != "42501" {
		t.Errorf("the appending login writes another tenant's documents: %v", err)
	}
	for _, role := range []migrations.Role{migrations.RoleSystem, migrations.RoleRetention} {
		_, err := db.Pool(t, role, 1).Exec(t.Context(), `select from manifold_documents.documents`)
		if native, ok := err.(*pgconn.PgError); !ok || native.Code != "42501" {
			t.Errorf("%s reads documents: %v", role, err)
		}
	}
}

// A driver that finds newer documents than its own, as after a mistaken manual repair, leaves them.
func TestNewerVersionsStay(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	defer driver.Close()
	tenant := domain.NewTenantID()
	build := shared("orders", 1)
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	save(t, driver, build, tenant, drivers.Batch{To: 1, Upserts: documents(1, "a", "b", "c", "d")})
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `update manifold_documents."orders.1" set version = 5 where id in ('a', 'b')`)
	if err != nil {
		t.Fatal(err)
	}
	save(t, driver, build, tenant, drivers.Batch{From: 1, To: 5,
		Upserts: documents(5, "a", "c"), Deletes: []drivers.Deletion{{ID: "b", Version: 5}, {ID: "d", Version: 5}}})
	want := map[string]string{"a": `{"version": 1}`, "b": `{"version": 1}`, "c": `{"version": 5}`}
	found, err := driver.Query(t.Context(), build, tenant, domain.DocumentQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range found {
		if want[document.ID] != string(document.Data) || document.Version != 5 {
			t.Errorf("%s is %s at version %d, want %s at 5", document.ID, document.Data, document.Version, want[document.ID])
		}
	}
	if len(found) != len(want) {
		t.Errorf("there are %d documents, want %d", len(found), len(want))
	}
}
