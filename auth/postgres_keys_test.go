package auth_test

import (
	"fmt"
	"testing"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Keys that are revoked make room for others, and do not pile up.
func TestOldRevokedKeysAreDeleted(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `
		insert into manifold.keys (tenant_id, key_id, name, hash, scopes, revoked_at)
		select $1, gen_random_uuid(), 'old ' || n, decode(repeat('00', 32), 'hex'), '{}', now() - n * interval '1 second' from generate_series(1, $2::int) n`,
		tenant, auth.MaxRevokedKeys)
	tablestest.Must(t, err)
	last := tablestest.NewKey(tenant, "last")
	tablestest.Must(t, s.CreateKey(t.Context(), last))
	tablestest.Must(t, s.RevokeKey(t.Context(), tenant, last.ID))
	tablestest.Must(t, s.CreateKey(t.Context(), tablestest.NewKey(tenant, "alive")))
	names := map[string]bool{}
	for after := (auth.KeyID{}); ; { // by pages
		keys, err := s.Keys(t.Context(), tenant, after, 300)
		tablestest.Must(t, err)
		for _, key := range keys {
			if names[key.Name] {
				t.Fatalf("key %q is on two pages", key.Name)
			}
			names[key.Name], after = true, key.ID
		}
		if len(keys) < 300 {
			break
		}
	}
	if len(names) != auth.MaxRevokedKeys+1 || !names["last"] || !names["alive"] || names[fmt.Sprint("old ", auth.MaxRevokedKeys)] {
		t.Errorf("%d keys are left, the one revoked first among them: %v", len(names), names[fmt.Sprint("old ", auth.MaxRevokedKeys)])
	}
}

// A key that is made while its tenant begins to be deleted is made before, and erased, or refused.
func TestADeletingTenantGetsNoKeys(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	tx, err := db.Pool(t, "postgres", 1).Begin(t.Context())
	tablestest.Must(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "update manifold.tenants set state = 'deleting' where tenant_id = $1", tenant)
	tablestest.Must(t, err)
	done := make(chan error, 1)
	go func() { done <- s.CreateKey(t.Context(), tablestest.NewKey(tenant, "key")) }()
	db.WaitForLock(t)
	tablestest.Must(t, tx.Commit(t.Context()))
	tablestest.WantCode(t, tablestest.Receive(t, done, "the key"), domain.CodeNotFound)
}
