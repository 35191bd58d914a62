package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A tenant whose document somebody has locked would hold all four connections with its saves.
func TestATenantWithoutAnswersLeavesConnections(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	build, stuck, other := shared("sums", 1), domain.NewTenantID(), domain.NewTenantID()
	defer driver.Close()
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	save(t, driver, build, stuck, drivers.Batch{To: 1, Upserts: documents(1, "a")})
	super := db.Pool(t, pgtest.RoleSuperuser, 2)
	locked, err := super.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locked.Exec(t.Context(), `select from manifold_documents."sums.1" where tenant_id = $1 for update`, stuck); err != nil {
		t.Fatal(err)
	}
	var saves sync.WaitGroup
	for range 20 {
		saves.Go(func() {
			err := driver.Save(context.Background(), build, stuck, drivers.Batch{From: 1, To: 2, Upserts: documents(2, "a")})
			if err != nil && !errors.Is(err, drivers.ErrStale) { // one of them wins
				t.Error(err)
			}
		})
	}
	defer saves.Wait()
	defer func() { _ = locked.Rollback(context.Background()) }()
	most := 3 // connections for this tenant, of eight
	if db.Distributed() {
		most = 2 // for its node
	}
	nodes := db.Nodes(t)
	for waiting := 0; waiting < most; {
		waiting = 0
		for _, node := range nodes {
			var here int
			err := node.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&here)
			if err != nil {
				t.Fatal(err)
			}
			waiting += here
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := driver.Save(ctx, build, other, drivers.Batch{To: 1, Upserts: documents(1, "a")}); err != nil {
		t.Errorf("another tenant's save: %v", err)
	}
}
