package postgres_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// waitForIndex returns when the common table's indexes exist and are valid.
func waitForIndex(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for valid := 0; valid < 2; {
		err := pool.QueryRow(t.Context(), `select count(*) from pg_index
			where indexrelid in (to_regclass('manifold_documents."documents/general"'), to_regclass('manifold_documents."documents/checkpoints"')) and indisvalid`).Scan(&valid)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A common table that an older release created, with documents in it, gets its index while saves continue. Several
// processes try at once, and one was killed while it created the index. Queries are correct throughout.
func TestGeneralIndexIsAddedBesideSaves(t *testing.T) {
	pgtest.NotOnCluster(t, "no older release has made a table there")
	t.Parallel()
	for name, left := range map[string]string{
		"none": `drop index manifold_documents."documents/general"; drop index manifold_documents."documents/checkpoints"; drop view manifold_documents."documents.tenant";
			drop policy views on manifold_documents.documents; create policy views on manifold_documents.documents for select to manifold_views using (id <> '')`,
		"invalid": `update pg_index set indisvalid = false, indisready = false where indexrelid = 'manifold_documents."documents/general"'::regclass`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			super := db.Pool(t, pgtest.RoleSuperuser, 3)
			tenant := domain.NewTenantID()
			build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "mine"}, Number: 1}
			first := open(t, db)
			batch := drivers.Batch{To: 1}
			for i := range 20_000 {
				batch.Upserts = append(batch.Upserts, documents(1, fmt.Sprintf("d%05d", i))...)
			}
			save(t, first, build, tenant, batch)
			first.Close()
			if _, err := super.Exec(t.Context(), left); err != nil {
				t.Fatal(err)
			}
			// A concurrent index build waits for sessions that have begun to write, so it is in progress until this one
			// ends.
			writer, err := super.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := writer.Exec(t.Context(), "insert into manifold_documents.documents values (gen_random_uuid(), 1, 'other', 1, '{}')"); err != nil {
				t.Fatal(err)
			}
			var processes []*postgres.Driver
			var opening sync.WaitGroup
			var mutex sync.Mutex
			for range 3 {
				opening.Go(func() {
					driver := open(t, db)
					mutex.Lock()
					defer mutex.Unlock()
					processes = append(processes, driver)
				})
			}
			opening.Wait()
			for building := false; !building; {
				err := super.QueryRow(t.Context(), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query ~ 'index concurrently')`).Scan(&building)
				if err != nil {
					t.Fatal(err)
				}
			}
			for at := int64(1); at < 20; at++ {
				driver := processes[at%3]
				save(t, driver, build, tenant, drivers.Batch{From: at, To: at + 1, Upserts: documents(at+1, "d00000", fmt.Sprintf("e%05d", at))})
				count, err := driver.Count(t.Context(), build, tenant, compared("version", domain.Equal, number(at+1)))
				if err != nil || count != 2 {
					t.Fatalf("Count gives %d, %v while the index is made", count, err)
				}
			}
			if err := writer.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitForIndex(t, super)
			for at, driver := range processes {
				count, err := driver.Count(t.Context(), build, tenant, compared("version", domain.Equal, number(int64(at)+5)))
				if err != nil || count != 1 {
					t.Errorf("Count gives %d, %v with the index", count, err)
				}
				driver.Close()
			}
		})
	}
}

// Closing does not wait for an index that is being built, and the next process completes it.
func TestGeneralIndexIsGivenUp(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 3)
	open(t, db).Close()
	if _, err := super.Exec(t.Context(), `drop index manifold_documents."documents/general"`); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), super, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "insert into manifold_documents.documents values (gen_random_uuid(), 1, 'other', 1, '{}')"); err != nil {
			return err
		}
		driver := open(t, db)
		for begun := false; !begun; {
			err := super.QueryRow(t.Context(), `select exists (select from pg_index where indexrelid = to_regclass('manifold_documents."documents/general"'))`).Scan(&begun)
			if err != nil {
				return err
			}
		}
		driver.Close()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	driver := open(t, db)
	defer driver.Close()
	waitForIndex(t, super)
}
