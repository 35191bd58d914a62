package members_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/members"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A process that has used up its other connections is still alive.
func TestSignsOfLifeDoNotWaitForOtherWork(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	for range s.System.Config().MaxConns {
		conn, err := s.System.Acquire(t.Context())
		tablestest.Must(t, err)
		defer conn.Release()
	}
	alive, err := s.Announce(t.Context(), members.Member{ID: domain.NewMemberID(), Name: "host-1:8080"}, time.Minute, nil)
	if err != nil || len(alive) != 1 {
		t.Errorf("alive are %+v, %v", alive, err)
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	const within = time.Minute
	one := members.Member{ID: domain.NewMemberID(), Name: "host-1:8080", Version: "v1"}
	two := members.Member{ID: domain.NewMemberID(), Name: "host-2:8080", Version: "v2"}
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
	admin := db.Pool(t, pgtest.RoleSuperuser, 1)
	tenant := tablestest.NewTenant(t, s)
	_, err = admin.Exec(t.Context(), "insert into manifold.logs (tenant_id) values ($1), ($2)", tenant.String(), tenant.AuditLog().String())
	tablestest.Must(t, err)
	var tenants []domain.TenantID
	before := alive[0].AliveAt
	alive, err = s.Announce(t.Context(), one, within, &tenants)
	tablestest.Must(t, err)
	if len(alive) != 2 || !alive[0].AliveAt.After(before) || alive[0].StartedAt.After(before) {
		t.Errorf("again: %+v", alive)
	}
	if len(tenants) != 1 || tenants[0] != tenant {
		t.Errorf("the tenants are %v, want %v without its audit log", tenants, tenant)
	}

	// What a process reports about its egresses stays until it reports something else.
	one.Egresses = []domain.EgressReport{{Name: "orders", Kind: "nats", EgressState: domain.EgressState{Error: "refused\x00", ErrorSince: before}}}
	_, err = s.Announce(t.Context(), one, within, nil)
	tablestest.Must(t, err)
	one.Egresses = nil
	_, err = s.Announce(t.Context(), one, within, nil)
	tablestest.Must(t, err)
	reported, err := s.Egresses(t.Context(), within)
	tablestest.Must(t, err)
	if len(reported) != 1 || reported[0].Member != one.ID || reported[0].Name != one.Name || len(reported[0].Reports) != 1 ||
		reported[0].Reports[0].Error != "refused\ufffd" || !reported[0].Reports[0].ErrorSince.Equal(before) {
		t.Errorf("reported were %+v", reported)
	}

	again := members.Member{ID: domain.NewMemberID(), Name: two.Name, Version: "v2"}
	tablestest.Must(t, s.Join(t.Context(), again))
	alive, err = s.Announce(t.Context(), again, within, nil)
	tablestest.Must(t, err)
	if len(alive) != 2 || alive[0].ID != one.ID || alive[1].ID != again.ID {
		t.Errorf("with one in the place of another: %+v", alive)
	}
	two = again

	// Time goes by, for the database.
	age := func(id domain.MemberID, by string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), "update manifold.members set alive_at = now() - $2::interval where member_id = $1", id.String(), by)
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
