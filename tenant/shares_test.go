package tenant_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestShares(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	if plain, err := s.Tenant(t.Context(), tenant); err != nil || plain.Share != (domain.Share{Weight: 1}) {
		t.Errorf("a new tenant is %+v, %v", plain, err)
	}
	for _, wrong := range []domain.Share{{Weight: 0}, {Weight: domain.MaxWeight + 1}, {Weight: 1, Ceiling: -1}, {Weight: 1, Ceiling: domain.MaxCeiling + 1}} {
		tablestest.WantCode(t, s.SetTenantShare(t.Context(), tenant, &wrong.Weight, &wrong.Ceiling), domain.CodeInvalidRequest)
	}
	tablestest.WantCode(t, s.SetTenantShare(t.Context(), domain.NewTenantID(), new(1), nil), domain.CodeNotFound)
	changed := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() { done <- s.ListenProjections(t.Context(), func() { changed <- struct{}{} }) }()
	tablestest.Receive(t, changed, "the listener's beginning")
	want := domain.Share{Weight: 7, Ceiling: 2}
	tablestest.Must(t, s.SetTenantShare(t.Context(), tenant, &want.Weight, nil))
	tablestest.Must(t, s.SetTenantShare(t.Context(), tenant, nil, &want.Ceiling))
	tablestest.Receive(t, changed, "the change")
	if got, err := s.Tenant(t.Context(), tenant); err != nil || got.Share != want {
		t.Errorf("the tenant is %+v, %v", got, err)
	}
	if shares, err := s.Shares(t.Context()); err != nil || len(shares) != 1 || shares[tenant] != want {
		t.Errorf("the shares are %+v, %v", shares, err)
	}
	tablestest.Must(t, s.SetTenantShare(t.Context(), tenant, new(1), new(0)))
	if shares, err := s.Shares(t.Context()); err != nil || len(shares) != 0 {
		t.Errorf("the shares are %+v, %v", shares, err)
	}
}
