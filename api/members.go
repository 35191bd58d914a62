package api

import (
	"context"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

// Member is a process that works on projections, with the number of tenants whose projections it owns.
type Member struct {
	domain.Member
	Tenants int64
}

// Members lists the processes that work on projections, in the order in which they started.
type Members interface {
	Members(ctx context.Context) ([]Member, error)
}

func (s generated) ListMembers(ctx context.Context, _ openapi.ListMembersRequestObject) (openapi.ListMembersResponseObject, error) {
	members, err := s.config.Members.Members(ctx)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListMembers200JSONResponse{Members: []openapi.Member{}}
	for _, member := range members {
		answer.Members = append(answer.Members, openapi.Member{
			Id: member.ID.String(), Name: member.Name, Version: member.Version,
			StartedAt: openapi.At(member.StartedAt), AliveAt: openapi.At(member.AliveAt), Tenants: member.Tenants,
		})
	}
	return answer, nil
}
