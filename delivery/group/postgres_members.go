package group

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

const groupMemberColumns = `m.member_id, m.label, m.joined_at, m.alive_at`

var (
	keepGroupRow = pg.Statement{Name: "manifold_keep_group", SQL: `
		select s.revision from subscriptions as s where s.tenant_id = $1::uuid and s.name = $2::text for key share`}

	// Another sweep may be processing the same rows; neither waits for the other.
	sweepGroupMembers = pg.Statement{Name: "manifold_sweep_group_members", SQL: `
		delete from subscription_members as m
		where m.tenant_id = $1::uuid and m.name = $2::text and m.member_id in (
			select d.member_id from subscription_members as d
			where d.tenant_id = $1::uuid and d.name = $2::text and d.alive_at < now() - $3::bigint * interval '1 microsecond'
			for update skip locked)
		returning m.member_id`}

	joinGroup = pg.Statement{Name: "manifold_join_group", SQL: `
		insert into subscription_members as m (tenant_id, name, member_id, label)
		select s.tenant_id, s.name, $3::uuid, $4::text from subscriptions as s
		where s.tenant_id = $1::uuid and s.name = $2::text
			and (select count(*) from subscription_members as o where o.tenant_id = $1::uuid and o.name = $2::text) < $5::bigint
		on conflict (tenant_id, name, member_id) do update set label = excluded.label, alive_at = excluded.alive_at
		returning m.member_id`}

	beatGroup = pg.Statement{Name: "manifold_beat_group", SQL: `
		update subscription_members as m set alive_at = now()
		where m.tenant_id = $1::uuid and m.name = $2::text and m.member_id = $3::uuid
			and m.alive_at >= now() - $4::bigint * interval '1 microsecond'
		returning m.member_id`}

	groupMembers = pg.Statement{Name: "manifold_group_members", SQL: `
		select ` + groupMemberColumns + ` from subscription_members as m
		where m.tenant_id = $1::uuid and m.name = $2::text and m.alive_at >= now() - $3::bigint * interval '1 microsecond'
		order by m.member_id`}
)

func deadAfter() []byte { return pg.Int8Param(domain.GroupMemberDead.Microseconds()) }

// AnnounceGroupMember records a member's sign of life, removes the group's members that have been silent for
// domain.GroupMemberDead, and returns the alive members, ordered by id. It uses the database's clock and takes one
// round trip. With join, it adds the member with its label. Without join, the member must be alive; otherwise, or if
// there is no such group, the error is domain.CodeNotFound. A group may have domain.MaxGroupMembers; beyond that the
// error is domain.CodeTooManyRequests.
func (s *Postgres) AnnounceGroupMember(ctx context.Context, tenant domain.TenantID, name string, member domain.GroupMember, join bool) ([]domain.GroupMember, error) {
	place := [][]byte{pg.TenantParam(tenant), []byte(name)}
	with := func(more ...[]byte) [][]byte { return append(place[:2:2], more...) }
	var there, swept, announced bool
	var alive []domain.GroupMember
	announce := pg.Query{Statement: &beatGroup, Params: with(pg.UUIDParam(member.ID), deadAfter()), Row: func([][]byte) error {
		announced = true
		return nil
	}}
	if join {
		announce.Statement = &joinGroup
		announce.Params = with(pg.UUIDParam(member.ID), []byte(pg.CleanText(member.Label)), pg.Int8Param(domain.MaxGroupMembers))
	}
	err := s.db.Read(ctx, tenant, func() { there, swept, announced, alive = false, false, false, nil },
		pg.Query{Statement: &keepGroupRow, Params: place, Row: func([][]byte) error {
			there = true
			return nil
		}},
		pg.Query{Statement: &sweepGroupMembers, Params: with(deadAfter()), Row: func([][]byte) error {
			swept = true
			return nil
		}},
		announce,
		groupMembersQuery(tenant, name, &alive),
	)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, noGroup(name)
	case !announced && join:
		return nil, domain.Errorf(domain.CodeTooManyRequests, "", "group %q has %d members, which is the maximum", name, domain.MaxGroupMembers)
	case !announced:
		return nil, domain.Errorf(domain.CodeNotFound, "memberId", "group %q has no member %s, or it was silent for too long; join again", name, member.ID)
	}
	if join || swept {
		s.NotifyGroup(tenant, name) // partitions are reassigned
	}
	return alive, nil
}

// GroupMembers returns the alive members of a group, ordered by id, or domain.CodeNotFound if there is no such group.
func (s *Postgres) GroupMembers(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error) {
	var group domain.Group
	var alive []domain.GroupMember
	err := s.db.Read(ctx, tenant, func() { group, alive = domain.Group{}, nil }, groupQuery(tenant, name, &group), groupMembersQuery(tenant, name, &alive))
	if err == nil && group.Name == "" {
		err = noGroup(name)
	}
	return alive, err
}

func groupMembersQuery(tenant domain.TenantID, name string, members *[]domain.GroupMember) pg.Query {
	return pg.Query{Statement: &groupMembers, Params: [][]byte{pg.TenantParam(tenant), []byte(name), deadAfter()}, Row: func(values [][]byte) error {
		*members = append(*members, domain.GroupMember{
			ID: pg.UUIDValue(values[0]), Label: string(values[1]), JoinedAt: pg.TimeValue(values[2]), AliveAt: pg.TimeValue(values[3]),
		})
		return nil
	}}
}

// RemoveGroupMember ends a membership. It returns domain.CodeNotFound if there is no such member or group.
func (s *Postgres) RemoveGroupMember(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error {
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		if err := holdGroup(ctx, tx, tenant, name); err != nil {
			return err
		}
		gone, err := tx.Exec(ctx, "delete from subscription_members as m where m.tenant_id = $1 and m.name = $2 and m.member_id = $3", tenant, name, id)
		switch {
		case err != nil:
			return fmt.Errorf("remove a group's member: %w", err)
		case gone.RowsAffected() == 0:
			return domain.Errorf(domain.CodeNotFound, "memberId", "group %q has no member %s", name, id)
		}
		return nil
	})
	if err == nil {
		s.NotifyGroup(tenant, name)
	}
	return err
}
