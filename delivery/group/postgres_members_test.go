package group_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func announce(t *testing.T, s *tables.Tables, tenant domain.TenantID, member domain.GroupMember, join bool) []domain.GroupMember {
	t.Helper()
	alive, err := s.AnnounceGroupMember(t.Context(), tenant, "mail", member, join)
	tablestest.Must(t, err)
	return alive
}

func TestGroupMembers(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	one, two := domain.GroupMember{ID: domain.NewGroupMemberID(), Label: "one\x00"}, domain.GroupMember{ID: domain.NewGroupMemberID(), Label: "two"}
	for name, do := range map[string]func() error{
		"join":  func() error { _, err := s.AnnounceGroupMember(t.Context(), tenant, "mail", one, true); return err },
		"list":  func() error { _, err := s.GroupMembers(t.Context(), tenant, "mail"); return err },
		"leave": func() error { return s.RemoveGroupMember(t.Context(), tenant, "mail", one.ID) },
	} {
		if err := do(); tablestest.CodeOf(err) != domain.CodeNotFound {
			t.Errorf("%s without a group: %v", name, err)
		}
	}
	tablestest.PutGroup(t, s, tenant, "mail", 8)
	_, err := s.AnnounceGroupMember(t.Context(), tenant, "mail", one, false)
	tablestest.WantCode(t, err, domain.CodeNotFound)

	alive := announce(t, s, tenant, one, true)
	if len(alive) != 1 || alive[0].ID != one.ID || alive[0].Label != "one" || alive[0].JoinedAt.IsZero() || !alive[0].AliveAt.Equal(alive[0].JoinedAt) {
		t.Errorf("alive are %+v", alive)
	}
	joined := alive[0]
	announce(t, s, tenant, two, true)
	alive = announce(t, s, tenant, one, false)
	if len(alive) != 2 || !slices.IsSortedFunc(alive, func(a, b domain.GroupMember) int { return bytes.Compare(a.ID[:], b.ID[:]) }) {
		t.Errorf("alive are %+v", alive)
	}
	me := alive[slices.IndexFunc(alive, func(m domain.GroupMember) bool { return m.ID == one.ID })]
	if !me.JoinedAt.Equal(joined.JoinedAt) || !me.AliveAt.After(joined.AliveAt) {
		t.Errorf("a sign of life makes %+v of %+v", me, joined)
	}
	listed, err := s.GroupMembers(t.Context(), tenant, "mail")
	if err != nil || !slices.EqualFunc(listed, alive, func(a, b domain.GroupMember) bool { return a.ID == b.ID && a.AliveAt.Equal(b.AliveAt) }) {
		t.Errorf("listed are %+v, %v; want %+v", listed, err, alive)
	}

	tablestest.Must(t, s.RemoveGroupMember(t.Context(), tenant, "mail", two.ID))
	tablestest.WantCode(t, s.RemoveGroupMember(t.Context(), tenant, "mail", two.ID), domain.CodeNotFound)
	if listed, err := s.GroupMembers(t.Context(), tenant, "mail"); err != nil || len(listed) != 1 || listed[0].ID != one.ID {
		t.Errorf("listed are %+v, %v", listed, err)
	}
}

// A member that was silent for too long no longer counts, whether it was swept already or not.
func TestSilentGroupMembersAreSwept(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.PutGroup(t, s, tenant, "mail", 8)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	quiet, silent, lively := domain.GroupMember{ID: domain.NewGroupMemberID()}, domain.GroupMember{ID: domain.NewGroupMemberID()}, domain.GroupMember{ID: domain.NewGroupMemberID()}
	for member, seconds := range map[domain.GroupMemberID]float64{
		quiet.ID: domain.GroupMemberDead.Seconds() - 20, silent.ID: domain.GroupMemberDead.Seconds() + 1, lively.ID: 0,
	} {
		announce(t, s, tenant, domain.GroupMember{ID: member}, true)
		_, err := super.Exec(t.Context(), "update manifold.subscription_members set alive_at = now() - make_interval(secs => $2) where member_id = $1", member, seconds)
		tablestest.Must(t, err)
	}
	if listed, err := s.GroupMembers(t.Context(), tenant, "mail"); err != nil || len(listed) != 2 {
		t.Errorf("before anybody has swept, listed are %+v, %v", listed, err)
	}
	_, err := s.AnnounceGroupMember(t.Context(), tenant, "mail", silent, false)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	if alive := announce(t, s, tenant, lively, false); len(alive) != 2 {
		t.Errorf("alive are %+v", alive)
	}
	var rows int
	tablestest.Must(t, super.QueryRow(t.Context(), "select count(*) from manifold.subscription_members where tenant_id = $1", tenant).Scan(&rows))
	if rows != 2 {
		t.Errorf("%d rows are left", rows)
	}
	if alive := announce(t, s, tenant, quiet, false); len(alive) != 2 {
		t.Errorf("alive are %+v", alive)
	}
}

func TestGroupHasSoManyMembers(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.PutGroup(t, s, tenant, "mail", 8)
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `
		insert into manifold.subscription_members (tenant_id, name, member_id, label, alive_at)
		select $1, 'mail', gen_random_uuid(), '', now() - case n when 1 then interval '1 hour' else '0' end from generate_series(1, $2::int) n`, tenant, domain.MaxGroupMembers)
	tablestest.Must(t, err)
	// One of them is dead.
	announce(t, s, tenant, domain.GroupMember{ID: domain.NewGroupMemberID()}, true)
	_, err = s.AnnounceGroupMember(t.Context(), tenant, "mail", domain.GroupMember{ID: domain.NewGroupMemberID()}, true)
	tablestest.WantCode(t, err, domain.CodeTooManyRequests)
}

// Many join and give signs of life at once while members are dead, and none waits for another.
func TestGroupMembersAnnounceAtOnce(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.PutGroup(t, s, tenant, "mail", 8)
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `
		insert into manifold.subscription_members (tenant_id, name, member_id, label, alive_at)
		select $1, 'mail', gen_random_uuid(), '', now() - interval '1 hour' from generate_series(1, 200) n`, tenant)
	tablestest.Must(t, err)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			member := domain.GroupMember{ID: domain.NewGroupMemberID()}
			for beat := range 5 {
				alive, err := s.AnnounceGroupMember(t.Context(), tenant, "mail", member, beat == 0)
				if err != nil || !slices.ContainsFunc(alive, func(m domain.GroupMember) bool { return m.ID == member.ID }) {
					t.Errorf("%v: alive are %d, not the one that has just been announced", err, len(alive))
					return
				}
			}
		})
	}
	wg.Wait()
	if alive, err := s.GroupMembers(t.Context(), tenant, "mail"); err != nil || len(alive) != 20 {
		t.Errorf("alive are %d, %v", len(alive), err)
	}
}
