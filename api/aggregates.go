package api

import (
	"cmp"
	"context"
	"fmt"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

func (s operations) ListAggregates(ctx context.Context, caller access.Caller, _ openapi.ListAggregatesRequest) (*openapi.Response, error) {
	definitions, err := s.config.Aggregates.Definitions(ctx, caller.Tenant)
	if err != nil {
		return nil, err
	}
	answer := openapi.AggregateList{Aggregates: []openapi.Aggregate{}}
	for _, definition := range definitions {
		if caller.Allow(definition.Category, auth.ScopeEventsRead, auth.ScopeProjectionsWrite) == nil {
			one, err := aggregateAnswer(definition)
			if err != nil {
				return nil, err
			}
			answer.Aggregates = append(answer.Aggregates, one)
		}
	}
	return openapi.OK(answer), nil
}

func (s operations) PutAggregate(ctx context.Context, caller access.Caller, request openapi.PutAggregateRequest) (*openapi.Response, error) {
	body := request.Body
	if body.Category != nil && *body.Category != request.Category {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "category", "it is %s, but the path says %s; leave it out", domain.Clip(*body.Category, 60), request.Category)
	}
	definition := aggregate.Definition{
		Category: request.Category, Initial: body.Initial, On: body.On, SnapshotEvery: body.SnapshotEvery,
	}
	var err error
	if definition.Commands, err = aggregate.ParseCommands(body.Commands); err != nil {
		return nil, err
	}
	if err := s.config.Aggregates.Put(ctx, caller.Tenant, definition); err != nil {
		return nil, err
	}
	if definition, err = s.config.Aggregates.Definition(ctx, caller.Tenant, request.Category); err != nil {
		return nil, err
	}
	return aggregateAnswered(definition)
}

func (s operations) GetAggregate(ctx context.Context, caller access.Caller, request openapi.GetAggregateRequest) (*openapi.Response, error) {
	if err := caller.Allow(request.Category, auth.ScopeEventsRead, auth.ScopeProjectionsWrite); err != nil {
		return nil, problem.At("path category", err)
	}
	definition, err := s.config.Aggregates.Definition(ctx, caller.Tenant, request.Category)
	if err != nil {
		return nil, err
	}
	return aggregateAnswered(definition)
}

func (s operations) DeleteAggregate(ctx context.Context, caller access.Caller, request openapi.DeleteAggregateRequest) (*openapi.Response, error) {
	return openapi.NoContent(), s.config.Aggregates.Delete(ctx, caller.Tenant, request.Category)
}

func (s operations) GetState(ctx context.Context, caller access.Caller, request openapi.GetStateRequest) (*openapi.Response, error) {
	if err := caller.AllowStream(request.StreamId, auth.ScopeEventsRead); err != nil {
		return nil, err
	}
	switch params := request.Params; {
	case params.At != nil && params.Version != nil:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "query at", "give version or at, not both")
	case params.OccurredAt != nil && (params.Version != nil || params.At != nil):
		return nil, domain.Errorf(domain.CodeInvalidRequest, "query occurredAt", "give version, at or occurredAt: one of them")
	}
	for where, at := range map[string]*openapi.Time{"query at": request.Params.At, "query occurredAt": request.Params.OccurredAt} {
		if at != nil {
			if err := wire.CheckTime(where, at.Time); err != nil {
				return nil, err
			}
		}
	}
	state, err := s.config.Aggregates.Load(ctx, caller.Tenant, request.StreamId, aggregate.At{
		Version: value(request.Params.Version), Time: value(request.Params.At).Time, OccurredAt: value(request.Params.OccurredAt).Time, AcceptLoss: value(request.Params.AcceptLoss),
	})
	if err != nil {
		return nil, err
	}
	answer := openapi.State{
		Stream: request.StreamId, Version: state.Version, State: state.Data,
		SnapshotVersion: state.Snapshot, EventsRead: state.EventsRead,
	}
	if state.RemovedTo > 0 {
		answer.Loss = &openapi.StateLoss{RemovedTo: state.RemovedTo}
	}
	return openapi.OK(answer).With("ETag", etag(state.Version)), nil
}

func aggregateAnswered(definition aggregate.Definition) (*openapi.Response, error) {
	answer, err := aggregateAnswer(definition)
	if err != nil {
		return nil, err
	}
	return openapi.OK(answer), nil
}

func aggregateAnswer(definition aggregate.Definition) (openapi.Aggregate, error) {
	answer := openapi.Aggregate{
		Category: &definition.Category, Initial: definition.Initial, On: definition.On,
		SnapshotEvery: cmp.Or(definition.SnapshotEvery, aggregate.DefaultSnapshotEvery),
	}
	if answer.Initial == nil {
		answer.Initial = []byte("{}")
	}
	if len(definition.Commands) > 0 {
		var err error
		if answer.Commands, err = aggregate.MarshalCommands(definition.Commands); err != nil {
			return openapi.Aggregate{}, fmt.Errorf("write the commands of %s: %w", definition.Category, err)
		}
	}
	return answer, nil
}
