package api

import (
	"context"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

func (s generated) ListAggregates(ctx context.Context, _ openapi.ListAggregatesRequestObject) (openapi.ListAggregatesResponseObject, error) {
	caller := callerOf(ctx)
	definitions, err := s.config.Aggregates.Definitions(ctx, caller.tenant)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListAggregates200JSONResponse{Aggregates: []openapi.Aggregate{}}
	for _, definition := range definitions {
		if caller.allow(definition.Category, domain.ScopeEventsRead, domain.ScopeProjectionsWrite) == nil {
			answer.Aggregates = append(answer.Aggregates, aggregateAnswer(definition))
		}
	}
	return answer, nil
}

func (s generated) PutAggregate(ctx context.Context, request openapi.PutAggregateRequestObject) (openapi.PutAggregateResponseObject, error) {
	tenant := callerOf(ctx).tenant
	body := request.Body
	if body.Category != nil && *body.Category != request.Category {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "category", "it is %s, but the path says %s; leave it out", clip(*body.Category, 60), request.Category)
	}
	definition := domain.Aggregate{
		Category: request.Category, Initial: body.Initial, On: body.On, SnapshotEvery: body.SnapshotEvery,
	}
	if err := s.config.Aggregates.Put(ctx, tenant, definition); err != nil {
		return nil, err
	}
	definition, err := s.config.Aggregates.Definition(ctx, tenant, request.Category)
	if err != nil {
		return nil, err
	}
	return openapi.PutAggregate200JSONResponse(aggregateAnswer(definition)), nil
}

func (s generated) GetAggregate(ctx context.Context, request openapi.GetAggregateRequestObject) (openapi.GetAggregateResponseObject, error) {
	caller := callerOf(ctx)
	if err := caller.allow(request.Category, domain.ScopeEventsRead, domain.ScopeProjectionsWrite); err != nil {
		return nil, inPlace("path category", err)
	}
	definition, err := s.config.Aggregates.Definition(ctx, caller.tenant, request.Category)
	if err != nil {
		return nil, err
	}
	return openapi.GetAggregate200JSONResponse(aggregateAnswer(definition)), nil
}

func (s generated) DeleteAggregate(ctx context.Context, request openapi.DeleteAggregateRequestObject) (openapi.DeleteAggregateResponseObject, error) {
	if err := s.config.Aggregates.Delete(ctx, callerOf(ctx).tenant, request.Category); err != nil {
		return nil, err
	}
	return openapi.DeleteAggregate204Response{}, nil
}

func (s generated) GetState(ctx context.Context, request openapi.GetStateRequestObject) (openapi.GetStateResponseObject, error) {
	caller := callerOf(ctx)
	if err := domain.CheckStream("path streamId", request.StreamId); err != nil {
		return nil, err
	}
	if err := caller.allow(domain.Category(request.StreamId), domain.ScopeEventsRead); err != nil {
		return nil, inPlace("path streamId", err)
	}
	switch params := request.Params; {
	case params.At != nil && params.Version != nil:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "query at", "give version or at, not both")
	case params.OccurredAt != nil && (params.Version != nil || params.At != nil):
		return nil, domain.Errorf(domain.CodeInvalidRequest, "query occurredAt", "give version, at or occurredAt: one of them")
	}
	for where, at := range map[string]*openapi.Time{"query at": request.Params.At, "query occurredAt": request.Params.OccurredAt} {
		if at != nil {
			if err := checkTime(where, at.Time); err != nil {
				return nil, err
			}
		}
	}
	state, err := s.config.Aggregates.Load(ctx, caller.tenant, request.StreamId, aggregate.At{
		Version: value(request.Params.Version), Time: value(request.Params.At).Time, OccurredAt: value(request.Params.OccurredAt).Time, AcceptLoss: value(request.Params.AcceptLoss),
	})
	if err != nil {
		return nil, err
	}
	tag := etag(state.Version)
	var loss *openapi.StateLoss
	if state.RemovedTo > 0 {
		loss = &openapi.StateLoss{RemovedTo: state.RemovedTo}
	}
	return stateAnswer{
		Body: openapi.State{
			Stream: request.StreamId, Version: state.Version, State: state.Data,
			SnapshotVersion: state.Snapshot, EventsRead: state.EventsRead, Loss: loss,
		},
		Headers: openapi.GetState200ResponseHeaders{ETag: &tag},
	}, nil
}

func aggregateAnswer(definition domain.Aggregate) openapi.Aggregate {
	every := definition.SnapshotEvery
	if every == 0 {
		every = domain.DefaultSnapshotEvery
	}
	initial := definition.Initial
	if initial == nil {
		initial = []byte("{}")
	}
	return openapi.Aggregate{Category: &definition.Category, Initial: initial, On: definition.On, SnapshotEvery: every}
}
