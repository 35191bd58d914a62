package tenant_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestTenantNamesAreUniqueUnderConcurrency(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	const attempts = 12
	errs := make([]error, attempts)
	var wg sync.WaitGroup
	for i := range attempts {
		wg.Go(func() {
			errs[i] = s.CreateTenant(t.Context(), domain.Tenant{ID: domain.NewTenantID(), Name: "acme"})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		tablestest.WantCode(t, err, domain.CodeAlreadyExists)
	}
	if won != 1 {
		t.Fatalf("%d of %d attempts made the tenant", won, attempts)
	}
}

func TestTenantsArePaged(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	var made []domain.TenantID
	for range 7 {
		made = append(made, tablestest.NewTenant(t, s))
	}
	slices.SortFunc(made, func(a, b domain.TenantID) int { return slices.Compare(a[:], b[:]) })
	var seen []domain.TenantID
	for after := domain.Everyone; ; after = seen[len(seen)-1] {
		page, err := s.Tenants(t.Context(), after, 3)
		tablestest.Must(t, err)
		for _, tenant := range page {
			if tenant.State != domain.TenantActive || tenant.CreatedAt.IsZero() || !tenant.DeletedAt.IsZero() {
				t.Fatalf("the tenant is %+v", tenant)
			}
			seen = append(seen, tenant.ID)
		}
		if len(page) < 3 {
			break
		}
	}
	if !slices.Equal(made, seen) {
		t.Fatalf("made %v, listed %v", made, seen)
	}
}

func TestTenantStateHasNoWayBackFromDeleting(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	id := tablestest.NewTenant(t, s)
	for _, state := range []domain.TenantState{domain.TenantSuspended, domain.TenantActive, domain.TenantDeleting, domain.TenantDeleting} {
		tablestest.Must(t, s.SetTenantState(t.Context(), id, state))
		tenant, err := s.Tenant(t.Context(), id)
		tablestest.Must(t, err)
		if tenant.State != state {
			t.Fatalf("set %s, got %s", state, tenant.State)
		}
	}
	tablestest.WantCode(t, s.SetTenantState(t.Context(), id, domain.TenantActive), domain.CodeConflict)
	tablestest.Must(t, s.EraseTenant(t.Context(), id))
	tablestest.WantCode(t, s.SetTenantState(t.Context(), id, domain.TenantDeleting), domain.CodeConflict)
	tablestest.WantCode(t, s.SetTenantState(t.Context(), id, domain.TenantDeleted), domain.CodeInvalidRequest)
	tablestest.WantCode(t, s.SetTenantState(t.Context(), domain.NewTenantID(), domain.TenantActive), domain.CodeNotFound)
	_, err := s.Tenant(t.Context(), domain.NewTenantID())
	tablestest.WantCode(t, err, domain.CodeNotFound)
}

// Grants come back as they were given, in order, and what another release has kept does, too.
func TestGrantsAreKeptInOrder(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	for _, texts := range [][]string{
		{"tenant:admin", "!events:read:billing.**", "events:read:**", "events:append:heartbeat.*"},
		{"events:read", "!something of a later release", "operator"},
	} {
		key := tablestest.NewKey(tenant, "limited")
		key.Grants = auth.KeptGrants(texts)
		tablestest.Must(t, s.CreateKey(t.Context(), key))
		got, _, err := s.Key(t.Context(), tenant, key.ID)
		tablestest.Must(t, err)
		if !slices.Equal(got.Grants, key.Grants) || !slices.Equal(got.Grants.Texts(), texts) {
			t.Errorf("%q came back as %q", texts, got.Grants.Texts())
		}
	}
}

func TestKeysBelongToTheirTenant(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	mine, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	key := tablestest.NewKey(mine, "mine")
	tablestest.Must(t, s.CreateKey(t.Context(), key))
	// The same id for another tenant is another key.
	twin := tablestest.NewKey(other, "twin")
	twin.ID = key.ID
	tablestest.Must(t, s.CreateKey(t.Context(), twin))

	got, state, err := s.Key(t.Context(), mine, key.ID)
	tablestest.Must(t, err)
	if got.Name != "mine" || got.Hash != key.Hash || !slices.Equal(got.Grants, key.Grants) || !got.RevokedAt.IsZero() || state != domain.TenantActive {
		t.Fatalf("got %+v of a tenant that is %s", got, state)
	}
	tablestest.Must(t, s.RevokeKey(t.Context(), mine, key.ID))
	got, _, err = s.Key(t.Context(), mine, key.ID)
	tablestest.Must(t, err)
	if got.RevokedAt.IsZero() {
		t.Fatal("the key is not revoked")
	}
	revoked := got.RevokedAt
	tablestest.Must(t, s.RevokeKey(t.Context(), mine, key.ID))
	keys, err := s.Keys(t.Context(), mine, auth.KeyID{}, 10)
	tablestest.Must(t, err)
	if len(keys) != 1 || !keys[0].RevokedAt.Equal(revoked) {
		t.Fatalf("the keys are %+v", keys)
	}
	if got, _, err := s.Key(t.Context(), other, key.ID); err != nil || got.Name != "twin" || !got.RevokedAt.IsZero() {
		t.Fatalf("the other tenant's key is %+v, %v", got, err)
	}
	tablestest.WantCode(t, s.RevokeKey(t.Context(), mine, auth.NewKeyID()), domain.CodeNotFound)
	tablestest.WantCode(t, s.CreateKey(t.Context(), tablestest.NewKey(domain.NewTenantID(), "nobody's")), domain.CodeNotFound)
	tablestest.WantCode(t, s.CreateKey(t.Context(), key), domain.CodeAlreadyExists)
}

func TestKeyChangesReachEveryProcess(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	far := tablestest.OpenAgain(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan domain.TenantID, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := far.ListenKeys(ctx, func(tenant domain.TenantID) { heard <- tenant }); err != nil {
			t.Error(err)
		}
	})
	if first := tablestest.Receive(t, heard, "the call that says that notices may have been lost"); first != domain.Everyone {
		t.Fatalf("the first call is for %s", first)
	}
	tenant := tablestest.NewTenant(t, s)
	key := tablestest.NewKey(tenant, "key")
	for _, change := range []struct {
		what string
		do   func() error
	}{
		{"a new key", func() error { return s.CreateKey(ctx, key) }},
		{"a revoked key", func() error { return s.RevokeKey(ctx, tenant, key.ID) }},
		{"a suspended tenant", func() error { return s.SetTenantState(ctx, tenant, domain.TenantSuspended) }},
	} {
		tablestest.Must(t, change.do())
		if got := tablestest.Receive(t, heard, change.what); got != tenant {
			t.Fatalf("%s: heard of %s", change.what, got)
		}
	}
	cancel()
	wg.Wait()
}

func TestKeyChangesAreReportedBeforeTheCallReturns(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	key := tablestest.NewKey(tenant, "key")
	tablestest.Must(t, s.CreateKey(t.Context(), key))
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan struct{}, 100)
	var told atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.ListenKeys(ctx, func(changed domain.TenantID) {
			if changed == tenant {
				told.Store(true)
				return
			}
			ready <- struct{}{}
		}); err != nil {
			t.Error(err)
		}
	})
	tablestest.Receive(t, ready, "the listener")
	tablestest.Must(t, s.RevokeKey(t.Context(), tenant, key.ID))
	if !told.Load() {
		t.Error("the key was revoked, and the listener does not know yet")
	}
	cancel()
	wg.Wait()
}

// A listener whose connection is lost says so, and hears of what comes after.
func TestListenersSurviveALostConnection(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	far := tablestest.OpenAgain(t, db)
	tenant := tablestest.NewTenant(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan domain.TenantID, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := far.ListenKeys(ctx, func(tenant domain.TenantID) { heard <- tenant }); err != nil {
			t.Error(err)
		}
	})
	tablestest.Receive(t, heard, "the listener")
	var ended int
	tablestest.Must(t, db.Pool(t, "postgres", 1).QueryRow(t.Context(), `
		select count(pg_terminate_backend(pid)) from pg_stat_activity
		where datname = current_database() and query = 'listen manifold_keys'`).Scan(&ended))
	if ended != 1 {
		t.Fatalf("%d connections were ended", ended)
	}
	if got := tablestest.Receive(t, heard, "the call after the loss"); got != domain.Everyone {
		t.Errorf("after the loss it was called for %s", got)
	}
	tablestest.Must(t, s.CreateKey(t.Context(), tablestest.NewKey(tenant, "key")))
	if got := tablestest.Receive(t, heard, "a new key"); got != tenant {
		t.Errorf("heard of %s", got)
	}
	cancel()
	wg.Wait()
}
