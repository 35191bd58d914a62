package api

import (
	"context"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

func (s operations) ListSubscriptionMembers(ctx context.Context, caller access.Caller, request openapi.ListSubscriptionMembersRequest) (*openapi.Response, error) {
	if err := caller.AllowGroup(ctx, s.config.Groups, request.Name, groupReaders...); err != nil {
		return nil, err
	}
	members, err := s.config.Groups.Members(ctx, caller.Tenant, request.Name)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.SubscriptionMemberList{Members: convert(members, memberAnswer)}), nil
}

func (s operations) JoinSubscription(ctx context.Context, caller access.Caller, request openapi.JoinSubscriptionRequest) (*openapi.Response, error) {
	if err := caller.AllowOwnGroup(ctx, s.config.Groups, request.Name, auth.ScopeEventsConsume); err != nil {
		return nil, err
	}
	var name string
	if request.Body.Label != "" {
		var err error
		if name, err = label("label", request.Body.Label); err != nil {
			return nil, err
		}
	}
	member, err := s.config.Groups.Join(ctx, caller.Tenant, request.Name, name)
	return openapi.Created(memberAnswer(member)), err
}

func (s operations) HeartbeatSubscription(ctx context.Context, caller access.Caller, request openapi.HeartbeatSubscriptionRequest) (*openapi.Response, error) {
	id, err := s.memberOf(ctx, caller, request.Name, request.MemberId)
	if err != nil {
		return nil, err
	}
	member, err := s.config.Groups.Heartbeat(ctx, caller.Tenant, request.Name, id)
	return openapi.OK(memberAnswer(member)), err
}

func (s operations) LeaveSubscription(ctx context.Context, caller access.Caller, request openapi.LeaveSubscriptionRequest) (*openapi.Response, error) {
	id, err := s.memberOf(ctx, caller, request.Name, request.MemberId)
	if err != nil {
		return nil, err
	}
	return openapi.NoContent(), s.config.Groups.Leave(ctx, caller.Tenant, request.Name, id)
}

// memberOf parses a member's id for a caller that may receive from the group.
func (s operations) memberOf(ctx context.Context, caller access.Caller, name, text string) (domain.GroupMemberID, error) {
	id, err := parseAt("path memberId", text, domain.ParseGroupMemberID)
	if err == nil {
		err = caller.AllowOwnGroup(ctx, s.config.Groups, name, auth.ScopeEventsConsume)
	}
	return id, err
}

func memberAnswer(member domain.GroupMember) openapi.SubscriptionMember {
	return openapi.SubscriptionMember{
		MemberId: member.ID.String(), Label: member.Label, JoinedAt: openapi.At(member.JoinedAt), AliveAt: openapi.At(member.AliveAt),
		Partitions: append([]int{}, member.Partitions...),
	}
}
