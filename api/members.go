package api

import (
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/members"
)

func (s operations) ListMembers(ctx context.Context, caller access.Caller, _ openapi.ListMembersRequest) (*openapi.Response, error) {
	alive, err := s.config.Members.Members(ctx, members.Dead)
	if err != nil {
		return nil, err
	}
	heads, err := s.config.Log.Heads(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	heads = slices.DeleteFunc(heads, func(head domain.Head) bool { return head.Tenant.IsAuditLog() })
	owned := members.Count(convert(heads, func(head domain.Head) domain.TenantID { return head.Tenant }), alive)
	answer := openapi.MemberList{Members: make([]openapi.Member, len(alive))}
	for i, member := range alive {
		answer.Members[i] = openapi.Member{
			Id: member.ID.String(), Name: member.Name, Version: member.Version,
			StartedAt: openapi.At(member.StartedAt), AliveAt: openapi.At(member.AliveAt), Tenants: owned[i],
		}
	}
	return openapi.OK(answer), nil
}
