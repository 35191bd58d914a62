package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/rebuild"
)

func (s operations) ListProjections(ctx context.Context, caller access.Caller, _ openapi.ListProjectionsRequest) (*openapi.Response, error) {
	projections, err := s.config.Projections.List(ctx, caller.Tenant)
	if err != nil {
		return nil, err
	}
	answer := openapi.ProjectionList{Projections: []openapi.Projection{}}
	for _, p := range projections {
		one, err := projectionAnswer(p)
		if err != nil {
			return nil, err
		}
		answer.Projections = append(answer.Projections, one)
	}
	return openapi.OK(answer), nil
}

func (s operations) CreateProjection(ctx context.Context, caller access.Caller, request openapi.CreateProjectionRequest) (*openapi.Response, error) {
	if request.Body.Name == "" {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "name", "required: the projection's name")
	}
	definition, err := definitionOf(request.Body)
	if err != nil {
		return nil, err
	}
	if err := allowTotals(caller, &definition); err != nil {
		return nil, err
	}
	p, err := s.config.Projections.Create(ctx, caller.Tenant, definition, caller.By())
	if err != nil {
		return nil, err
	}
	answer, err := projectionAnswer(p)
	return openapi.Created(answer).With("Location", "/v1/projections/"+p.Name), err
}

func (s operations) PlanProjections(ctx context.Context, caller access.Caller, request openapi.PlanProjectionsRequest) (*openapi.Response, error) {
	definitions := make([]domain.Definition, len(request.Body.Definitions))
	var err error
	for i, body := range request.Body.Definitions {
		if definitions[i], err = definitionOf(body); err != nil {
			return nil, err
		}
	}
	aggregates := make(map[string]folding.AggregateRules, len(request.Body.Aggregates))
	for i, body := range request.Body.Aggregates {
		if body.Category == nil {
			return nil, domain.Errorf(domain.CodeInvalidRequest, fmt.Sprintf("aggregates[%d].category", i), "required: the category")
		}
		definition, err := aggregateOf(*body.Category, body)
		if err == nil {
			err = s.config.Aggregates.Check(ctx, caller.Tenant, definition)
		}
		if err != nil {
			return nil, domain.Within(fmt.Sprintf("aggregates[%d]", i), err)
		}
		aggregates[*body.Category] = folding.AggregateRules{Initial: body.Initial, On: body.On}
	}
	plan, err := s.config.Projections.Plan(ctx, caller.Tenant, definitions, request.Body.Remove, aggregates)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.PlanResult{Changes: convert(plan, plannedChangeAnswer)}), nil
}

func plannedChangeAnswer(change projection.PlannedChange) openapi.PlannedChange {
	answer := openapi.PlannedChange{Name: change.Name, Action: string(change.Action), Changes: convert(change.Changes, changeAnswer)}
	if change.Counted {
		answer.Events = &change.Events
	}
	for _, e := range change.Errors {
		answer.Errors = append(answer.Errors, openapi.DefinitionError{Field: e.Where, Message: e.Message})
	}
	return answer
}

func (s operations) PreviewProjection(ctx context.Context, caller access.Caller, request openapi.PreviewProjectionRequest) (*openapi.Response, error) {
	source := request.Body.Source
	if len(source.Events) == 0 && caller.Tenant != domain.Everyone {
		// The result of a fold reveals the events' content.
		if err := caller.Credential.Require(auth.ScopeEventsRead); err != nil {
			return nil, err
		}
	}
	definition, err := definitionOf(request.Body.Definition)
	if err != nil {
		return nil, err
	}
	given, err := givenEvents("source.events", source.Events)
	if err != nil {
		return nil, err
	}
	preview, err := s.config.Projections.Preview(ctx, caller.Tenant, projection.PreviewQuery{
		Definition: definition, Stream: source.Stream, Last: source.Last, Given: given,
	})
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.PreviewResult{Steps: convert(preview.Steps, previewStep), Documents: convert(preview.Documents, documentAnswer)}), nil
}

// givenEvents returns the events of a preview that do not have to be in the log. where is their place in the request.
func givenEvents(where string, given []openapi.GivenEvent) (events []folding.GivenEvent, err error) {
	events = make([]folding.GivenEvent, len(given))
	for i, e := range given {
		events[i] = folding.GivenEvent{Stream: e.Stream, Type: e.Type, Data: e.Data, Metadata: e.Metadata, Tags: e.Tags, OccurredAt: value(e.OccurredAt).Time}
		if e.Id != "" {
			if events[i].ID, err = parseAt(fmt.Sprintf("%s[%d].id", where, i), e.Id, domain.ParseEventID); err != nil {
				return nil, err
			}
		}
	}
	return events, nil
}

func previewStep(step folding.PreviewStep) openapi.PreviewStep {
	e := step.Event
	answer := openapi.PreviewStep{
		Event: e.ID.String(), Position: e.Position, Stream: e.Stream, Type: e.Type, Data: e.Data,
		DocumentId: step.DocumentID, Item: step.Item, Document: step.Document, Parked: step.Parked,
	}
	if step.Removed {
		answer.Document = json.RawMessage("null")
	}
	if step.Fault != nil {
		failure := step.Fault.Failure()
		answer.Fault = &openapi.Fault{
			Position: e.Position, EventId: e.ID.String(), Stream: e.Stream, Type: e.Type, DocumentId: failure.DocumentID, Where: failure.Where,
			Expression: failure.Expression, Message: failure.Message, Before: failure.Before, At: openapi.At(e.RecordedAt),
		}
	}
	return answer
}

func (s operations) GetProjection(ctx context.Context, caller access.Caller, request openapi.GetProjectionRequest) (*openapi.Response, error) {
	p, err := s.config.Projections.Get(ctx, caller.Tenant, request.Name)
	if err != nil {
		return nil, err
	}
	answer, err := projectionAnswer(p)
	return openapi.OK(answer).With("ETag", etag(p.Revision)), err
}

func (s operations) PutProjection(ctx context.Context, caller access.Caller, request openapi.PutProjectionRequest) (*openapi.Response, error) {
	definition, err := definitionFor("", request.Name, request.Body)
	if err != nil {
		return nil, err
	}
	acceptLoss := value(request.Params.AcceptLoss)
	if err := errors.Join(allowTotals(caller, &definition), allowLoss(caller, acceptLoss)); err != nil {
		return nil, err
	}
	revision, err := expectedRevision(request.Params)
	if err != nil {
		return nil, err
	}
	var deployed rebuild.Deployment
	if revision == nil {
		deployed, err = s.config.Rebuilds.Deploy(ctx, caller.Tenant, definition, caller.By(), acceptLoss)
	} else {
		deployed, err = s.config.Rebuilds.DeployTo(ctx, caller.Tenant, *revision, definition, caller.By(), acceptLoss)
	}
	if err != nil {
		return nil, err
	}
	if deployed.Rebuild != nil {
		return openapi.Accepted(rebuildAnswer(*deployed.Rebuild)).With("Location", rebuildPath(*deployed.Rebuild)), nil
	}
	answer, err := projectionAnswer(deployed.Projection)
	return openapi.CreatedIf(deployed.Created, answer), err
}

// expectedRevision returns the revision that the projection must have; 0: there must be none; nil: no requirement. The
// contract has checked the form of both headers.
func expectedRevision(params openapi.PutProjectionParams) (*int64, error) {
	switch {
	case params.IfMatch != nil && params.IfNoneMatch != nil:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "If-Match", "give If-Match or If-None-Match, not both")
	case params.IfNoneMatch != nil:
		return new(int64), nil
	case params.IfMatch != nil:
		revision, err := strconv.ParseInt(strings.Trim(*params.IfMatch, `"`), 10, 64)
		return &revision, err
	}
	return nil, nil
}

func (s operations) DeleteProjection(ctx context.Context, caller access.Caller, request openapi.DeleteProjectionRequest) (*openapi.Response, error) {
	return openapi.NoContent(), s.config.Projections.Delete(ctx, caller.Tenant, request.Name, caller.By())
}

func (s operations) ResetProjection(ctx context.Context, caller access.Caller, request openapi.ResetProjectionRequest) (*openapi.Response, error) {
	acceptLoss := value(request.Params.AcceptLoss)
	if err := allowLoss(caller, acceptLoss); err != nil {
		return nil, err
	}
	p, err := s.config.Projections.Reset(ctx, caller.Tenant, request.Name, caller.By(), acceptLoss)
	if err != nil {
		return nil, err
	}
	answer, err := projectionAnswer(p)
	return openapi.OK(answer), err
}

func (s operations) ListProjectionVersions(ctx context.Context, caller access.Caller, request openapi.ListProjectionVersionsRequest) (*openapi.Response, error) {
	versions, err := s.config.Projections.Versions(ctx, caller.Tenant, request.Name)
	if err != nil {
		return nil, err
	}
	answer := openapi.ProjectionVersionList{Versions: make([]openapi.ProjectionVersion, len(versions))}
	for i, v := range versions {
		definition, err := definitionAnswer(v.Definition)
		if err != nil {
			return nil, err
		}
		answer.Versions[i] = openapi.ProjectionVersion{
			Version: v.Version, Cause: string(v.Cause), By: v.By, At: openapi.At(v.At), Definition: definition, Changes: convert(v.Changes, changeAnswer),
		}
		if v.Owner != caller.Tenant {
			answer.Versions[i].By = "" // a tenant must not learn the names of the operator's users
		}
		if v.Rebuild != (domain.RebuildID{}) {
			answer.Versions[i].Rebuild = v.Rebuild.String()
		}
	}
	return openapi.OK(answer), nil
}

func changeAnswer(change folding.FieldChange) openapi.FieldChange { return openapi.FieldChange(change) }

func (s operations) GetProjectionState(ctx context.Context, caller access.Caller, request openapi.GetProjectionStateRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	status, err := s.config.Projections.Status(ctx, tenant, request.Name)
	return openapi.OK(projectionState(request.Name, status)), err
}

func (s operations) CatchUpProjection(ctx context.Context, caller access.Caller, request openapi.CatchUpProjectionRequest) (*openapi.Response, error) {
	status, err := s.config.Projections.CatchUp(ctx, caller.Tenant, request.Name, freshness(nil, request.Params.Timeout).Wait)
	return openapi.OK(projectionState(request.Name, status)), err
}

// allowLoss returns an error if the caller accepts a loss and is an operator without the highest role: what is lost
// cannot be restored. Tenants decide about their own documents.
func allowLoss(caller access.Caller, acceptLoss bool) error {
	if !acceptLoss || !caller.Credential.Operator {
		return nil
	}
	return problem.At("acceptLoss", caller.Credential.Require(auth.ScopeOperator))
}

// allowTotals returns an error if the definition has totals by a field, whose values operators of all roles see, and
// the caller is an operator who may not read all documents.
func allowTotals(caller access.Caller, definition *domain.Definition) error {
	if definition == nil || definition.Totals == nil || definition.Totals.By == "" || !caller.Credential.Operator {
		return nil
	}
	return problem.At("totals.by", caller.Credential.Require(auth.ScopeOperator))
}

// definitionFor returns the definition in a body, at the given place, for the projection that the path names.
func definitionFor(place, name string, body openapi.Definition) (domain.Definition, error) {
	switch body.Name {
	case "":
		body.Name = name
	case name:
	default:
		return domain.Definition{}, domain.Errorf(domain.CodeInvalidRequest, place+"name", "it is %s, but the path says %s; leave it out", body.Name, name)
	}
	return definitionOf(body)
}

// definitionOf and definitionAnswer convert by way of JSON, which both types share. A test fails if one of them lacks a
// field. The answer is the definition as it was put, without an aggregate's rules.
func definitionOf(body openapi.Definition) (definition domain.Definition, err error) {
	text, err := json.Marshal(body)
	if err == nil {
		err = json.Unmarshal(text, &definition)
	}
	if err != nil {
		return definition, fmt.Errorf("translate definition %q: %w", body.Name, err)
	}
	return definition, nil
}

func definitionAnswer(definition domain.Definition) (body openapi.Definition, err error) {
	text, err := json.Marshal(folding.WithoutRules(definition))
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		return body, fmt.Errorf("translate definition %q: %w", definition.Name, err)
	}
	return body, nil
}

func projectionAnswer(p domain.Projection) (openapi.Projection, error) {
	definition, err := definitionAnswer(p.Definition)
	return openapi.Projection{
		Name: p.Name, Shared: p.Shared(), Definition: definition, Version: p.Version, Build: p.Build, Revision: p.Revision,
		CreatedAt: openapi.At(p.CreatedAt), UpdatedAt: openapi.At(p.UpdatedAt),
	}, err
}
