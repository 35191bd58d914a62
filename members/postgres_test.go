package tables_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestMembers(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	const within = time.Minute
	one := domain.Member{ID: domain.NewMemberID(), Name: "host-1:8080", Version: "v1"}
	two := domain.Member{ID: domain.NewMemberID(), Name: "host-2:8080", Version: "v2"}
	alive, err := s.Announce(t.Context(), one, within, nil)
	tablestest.Must(t, err)
	if len(alive) != 1 || alive[0].ID != one.ID || alive[0].Name != one.Name || alive[0].Version != "v1" || alive[0].StartedAt.IsZero() {
		t.Errorf("alone: %+v", alive)
	}
	alive, err = s.Announce(t.Context(), two, within, nil)
	tablestest.Must(t, err)
	if len(alive) != 2 || alive[0].ID != one.ID || alive[1].ID != two.ID {
		t.Errorf("both: %+v", alive)
	}
	before := alive[0].AliveAt
	alive, err = s.Announce(t.Context(), one, within, nil)
	tablestest.Must(t, err)
	if len(alive) != 2 || !alive[0].AliveAt.After(before) || alive[0].StartedAt.After(before) {
		t.Errorf("again: %+v", alive)
	}

	again := domain.Member{ID: domain.NewMemberID(), Name: two.Name, Version: "v2"}
	tablestest.Must(t, s.Join(t.Context(), again))
	alive, err = s.Announce(t.Context(), again, within, nil)
	tablestest.Must(t, err)
	if len(alive) != 2 || alive[0].ID != one.ID || alive[1].ID != again.ID {
		t.Errorf("with one in the place of another: %+v", alive)
	}
	two = again

	// Time goes by, for the database.
	admin := db.Pool(t, pgtest.RoleSuperuser, 1)
	age := func(id domain.MemberID, by string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), "update manifold.members set alive_at = alive_at - $2::interval where member_id = $1", id.String(), by)
		tablestest.Must(t, err)
	}
	age(two.ID, "61 seconds")
	alive, err = s.Members(t.Context(), within)
	tablestest.Must(t, err)
	if len(alive) != 1 || alive[0].ID != one.ID {
		t.Errorf("without a sign of life: %+v", alive)
	}
	age(two.ID, "1 hour")
	_, err = s.Announce(t.Context(), one, within, nil)
	tablestest.Must(t, err)
	var n int
	tablestest.Must(t, admin.QueryRow(t.Context(), "select count(*) from manifold.members").Scan(&n))
	if n != 1 {
		t.Errorf("%d rows are kept", n)
	}
	tablestest.Must(t, s.Leave(t.Context(), one.ID))
	tablestest.Must(t, s.Leave(t.Context(), one.ID))
	if alive, err = s.Members(t.Context(), within); err != nil || len(alive) != 0 {
		t.Errorf("when all have left: %+v, %v", alive, err)
	}
}

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
