package pg_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/pg"
)

func TestHashesAreThoseOfPostgreSQL(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t).Pool(t, pgtest.RoleSuperuser, 1)
	for range 100 {
		tenant := domain.NewTenantID()
		var want int32
		if err := db.QueryRow(t.Context(), "select uuid_hash($1)", tenant).Scan(&want); err != nil {
			t.Fatal(err)
		}
		if got := pg.HashUUID(tenant); got != want {
			t.Errorf("the hash of %s is %d, but PostgreSQL's is %d", tenant, got, want)
		}
	}
}

func TestNodesOfTenants(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if !db.Distributed() {
		t.Skip("needs a cluster")
	}
	pool, _ := openPoolOf(t, db, 4)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	for range 100 {
		tenant := domain.NewTenantID()
		var want int32
		err := super.QueryRow(t.Context(), `select groupid from pg_dist_placement
			where shardid = get_shard_id_for_distribution_column('manifold.logs', $1::uuid)`, tenant).Scan(&want)
		if err != nil {
			t.Fatal(err)
		}
		if got := pool.Group(tenant); got != want {
			t.Errorf("tenant %s is taken to be on group %d, but is on %d", tenant, got, want)
		}
	}
}

// However many tenants of a node get no answers, those of another do.
func TestANodeWithoutAnswersLeavesConnections(t *testing.T) {
	t.Parallel()
	pool, newTenant := openPool(t, 8)
	pool.Divide()
	newOn := func(group int32) domain.TenantID {
		for {
			if tenant := newTenant(); pool.Group(tenant) == group {
				return tenant
			}
		}
	}
	other := newOn(2)
	var hung []domain.TenantID
	for range 6 {
		hung = append(hung, newOn(1))
	}
	for i, tenant := range hung {
		connected := 0
		if i == 0 {
			connected = 2
		}
		h := hang(t, pool, tenant, 2, connected)
		defer h.end()
	}
	for range 10 {
		answersSoon(t, pool, other)
	}
	if conns := pool.Stat().AcquiredConns(); conns > 6 {
		t.Errorf("tenants of a node hold %d of 8 connections", conns)
	}
}
