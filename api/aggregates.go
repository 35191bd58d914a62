package api

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
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
	definition, err := aggregateOf(request.Category, body)
	if err != nil {
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

// aggregateOf returns the definition of a category in a body.
func aggregateOf(category string, body openapi.Aggregate) (definition aggregate.Definition, err error) {
	definition = aggregate.Definition{Category: category, Initial: body.Initial, On: body.On, SnapshotEvery: body.SnapshotEvery}
	definition.Commands, err = aggregate.ParseCommands(body.Commands)
	return definition, err
}

func (s operations) PreviewAggregate(ctx context.Context, caller access.Caller, request openapi.PreviewAggregateRequest) (*openapi.Response, error) {
	query, err := aggregatePreview(request.Body)
	if err != nil {
		return nil, err
	}
	if query.Events == nil {
		// States reveal the events' content.
		if err := problem.At("stream", caller.Allow(domain.Category(query.Stream), auth.ScopeEventsRead)); err != nil {
			return nil, err
		}
		if c := query.Command; c != nil && len(query.Definition.Commands[c.Name].Boundary) > 0 {
			if err := problem.At("command.name", caller.Allow("", auth.ScopeEventsRead)); err != nil {
				return nil, err
			}
		}
	}
	result, err := s.config.Aggregates.Preview(ctx, caller.Tenant, query)
	if err != nil {
		return nil, err
	}
	answer := openapi.AggregatePreviewResult{Steps: convert(result.Steps, aggregatePreviewStep), State: result.State}
	if result.Outcome != nil {
		answer.Outcome = wire.AppendOutcome(nil, *result.Outcome, true)
	}
	if result.Failure != nil {
		part := problem.Part(result.Failure)
		answer.Problem = &part
	}
	return openapi.OK(answer), nil
}

// aggregatePreview returns the preview that a body asks for.
func aggregatePreview(body openapi.AggregatePreview) (query aggregate.PreviewQuery, err error) {
	if body.Definition.Category == nil {
		return query, domain.Errorf(domain.CodeInvalidRequest, "definition.category", "required: the category")
	}
	query = aggregate.PreviewQuery{Stream: body.Stream, Version: body.Version}
	if query.Definition, err = aggregateOf(*body.Definition.Category, body.Definition); err != nil {
		return query, domain.Within("definition", err)
	}
	switch {
	case body.Events == nil && body.Stream == "":
		return query, domain.Errorf(domain.CodeInvalidRequest, "stream", "required: a stream of the log, or else events; give [] for a stream without events")
	case body.Events != nil && body.Version != 0:
		return query, domain.Errorf(domain.CodeInvalidRequest, "version", "give it or events, not both")
	case body.Stream == "":
		query.Stream = query.Definition.Category + "-1"
	}
	if c := body.Command; c != nil {
		query.Command = &aggregate.TrialCommand{
			Name: c.Name, Data: c.Data, Metadata: c.Metadata, Now: time.Now().UTC().Truncate(time.Microsecond), UUID: domain.NewEventID().String(),
		}
	}
	if body.Events == nil {
		return query, nil
	}
	for i := range body.Events {
		body.Events[i].Stream = cmp.Or(body.Events[i].Stream, query.Stream)
	}
	query.Events = []domain.Event{}
	if len(body.Events) > 0 {
		given, err := givenEvents("events", body.Events)
		if err != nil {
			return query, err
		}
		query.Events, err = folding.GivenEvents("events", given)
		return query, err
	}
	return query, nil
}

func aggregatePreviewStep(step aggregate.TrialStep) openapi.AggregatePreviewStep {
	e := step.Event
	answer := openapi.AggregatePreviewStep{Event: e.ID.String(), Stream: e.Stream, Version: e.Version, Position: e.Position, Type: e.Type, Data: e.Data, State: step.State}
	if step.Fault != nil {
		answer.Fault = &openapi.StateFault{Where: step.Fault.Where, Message: step.Fault.Message}
	}
	return answer
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
