package api

import (
	"context"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

func (s generated) ListSubscriptionMembers(ctx context.Context, request openapi.ListSubscriptionMembersRequestObject) (openapi.ListSubscriptionMembersResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.allowGroup(ctx, caller, request.Name, groupReaders...); err != nil {
		return nil, err
	}
	members, err := s.config.Groups.Members(ctx, caller.tenant, request.Name)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListSubscriptionMembers200JSONResponse{Members: make([]openapi.SubscriptionMember, len(members))}
	for i, member := range members {
		answer.Members[i] = memberAnswer(member)
	}
	return answer, nil
}

func (s generated) JoinSubscription(ctx context.Context, request openapi.JoinSubscriptionRequestObject) (openapi.JoinSubscriptionResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.allowOwnGroup(ctx, caller, request.Name, domain.ScopeEventsConsume); err != nil {
		return nil, err
	}
	var name string
	if request.Body != nil && request.Body.Label != "" {
		var err error
		if name, err = label("label", request.Body.Label); err != nil {
			return nil, err
		}
	}
	member, err := s.config.Groups.Join(ctx, caller.tenant, request.Name, name)
	if err != nil {
		return nil, err
	}
	return openapi.JoinSubscription201JSONResponse(memberAnswer(member)), nil
}

func (s generated) HeartbeatSubscription(ctx context.Context, request openapi.HeartbeatSubscriptionRequestObject) (openapi.HeartbeatSubscriptionResponseObject, error) {
	caller, id, err := s.memberOf(ctx, request.Name, request.MemberId)
	if err != nil {
		return nil, err
	}
	member, err := s.config.Groups.Heartbeat(ctx, caller.tenant, request.Name, id)
	if err != nil {
		return nil, err
	}
	return openapi.HeartbeatSubscription200JSONResponse(memberAnswer(member)), nil
}

func (s generated) LeaveSubscription(ctx context.Context, request openapi.LeaveSubscriptionRequestObject) (openapi.LeaveSubscriptionResponseObject, error) {
	caller, id, err := s.memberOf(ctx, request.Name, request.MemberId)
	if err != nil {
		return nil, err
	}
	if err := s.config.Groups.Leave(ctx, caller.tenant, request.Name, id); err != nil {
		return nil, err
	}
	return openapi.LeaveSubscription204Response{}, nil
}

// memberOf parses a member's id for a caller that may receive from the group.
func (s generated) memberOf(ctx context.Context, name, text string) (caller, domain.GroupMemberID, error) {
	caller := callerOf(ctx)
	id, err := domain.ParseGroupMemberID(text)
	if err != nil {
		return caller, id, domain.Errorf(domain.CodeInvalidRequest, "path memberId", "%s", err)
	}
	return caller, id, s.allowOwnGroup(ctx, caller, name, domain.ScopeEventsConsume)
}

func memberAnswer(member domain.GroupMember) openapi.SubscriptionMember {
	return openapi.SubscriptionMember{
		MemberId: member.ID.String(), Label: member.Label, JoinedAt: openapi.At(member.JoinedAt), AliveAt: openapi.At(member.AliveAt),
		Partitions: append([]int{}, member.Partitions...),
	}
}
