package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// Projections manages the projections that a tenant sees: its own and the shared ones. domain.Everyone means the
// operator, who sees the shared ones. *projection.Catalog implements it.
type Projections interface {
	Create(ctx context.Context, owner domain.TenantID, definition domain.Definition, by string) (domain.Projection, error)
	Get(ctx context.Context, tenant domain.TenantID, name string) (domain.Projection, error)
	List(ctx context.Context, tenant domain.TenantID) ([]domain.Projection, error)
	Delete(ctx context.Context, owner domain.TenantID, name, by string) error
	Reset(ctx context.Context, owner domain.TenantID, name, by string, acceptLoss bool) (domain.Projection, error)
	Plan(ctx context.Context, owner domain.TenantID, definitions []domain.Definition, remove bool) ([]projection.PlannedChange, error)
	Preview(ctx context.Context, tenant domain.TenantID, q projection.PreviewQuery) (folding.Preview, error)
	Versions(ctx context.Context, tenant domain.TenantID, name string) ([]projection.Version, error)
	Status(ctx context.Context, tenant domain.TenantID, name string) (projection.Status, error)
	Positions(ctx context.Context, tenant domain.TenantID) ([]projection.Position, error)
	CatchUp(ctx context.Context, tenant domain.TenantID, name string, wait time.Duration) (projection.Status, error)
	Document(ctx context.Context, tenant domain.TenantID, name, id string, fresh projection.Freshness) (domain.Document, error)
	Documents(ctx context.Context, tenant domain.TenantID, name string, query projection.DocumentsQuery) (projection.DocumentsPage, error)
	AllDocuments(ctx context.Context, name string, query projection.AllDocumentsQuery) (projection.AllDocumentsPage, error)
	Explain(ctx context.Context, tenant domain.TenantID, name string, query projection.DocumentsQuery) (projection.Explanation, error)
	Faults
}

func (s generated) ListProjections(ctx context.Context, _ openapi.ListProjectionsRequestObject) (openapi.ListProjectionsResponseObject, error) {
	projections, err := s.config.Projections.List(ctx, callerOf(ctx).tenant)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListProjections200JSONResponse{Projections: []openapi.Projection{}}
	for _, p := range projections {
		one, err := projectionAnswer(p)
		if err != nil {
			return nil, err
		}
		answer.Projections = append(answer.Projections, one)
	}
	return answer, nil
}

func (s generated) CreateProjection(ctx context.Context, request openapi.CreateProjectionRequestObject) (openapi.CreateProjectionResponseObject, error) {
	if request.Body.Name == "" {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "name", "required: the projection's name")
	}
	definition, err := definitionOf(*request.Body)
	if err != nil {
		return nil, err
	}
	caller := callerOf(ctx)
	p, err := s.config.Projections.Create(ctx, caller.tenant, definition, caller.by())
	if err != nil {
		return nil, err
	}
	answer, err := projectionAnswer(p)
	if err != nil {
		return nil, err
	}
	location := "/v1/projections/" + p.Name
	return openapi.CreateProjection201JSONResponse{
		Body: answer, Headers: openapi.CreateProjection201ResponseHeaders{Location: &location},
	}, nil
}

func (s generated) PlanProjections(ctx context.Context, request openapi.PlanProjectionsRequestObject) (openapi.PlanProjectionsResponseObject, error) {
	definitions := make([]domain.Definition, len(request.Body.Definitions))
	var err error
	for i, body := range request.Body.Definitions {
		if definitions[i], err = definitionOf(body); err != nil {
			return nil, err
		}
	}
	plan, err := s.config.Projections.Plan(ctx, callerOf(ctx).tenant, definitions, request.Body.Remove)
	if err != nil {
		return nil, err
	}
	answer := planAnswer{Changes: make([]openapi.PlannedChange, len(plan))}
	for i, change := range plan {
		answer.Changes[i] = openapi.PlannedChange{Name: change.Name, Action: string(change.Action), Changes: changesAnswer(change.Changes)}
		if change.Counted {
			answer.Changes[i].Events = &change.Events
		}
		for _, e := range change.Errors {
			answer.Changes[i].Errors = append(answer.Changes[i].Errors, openapi.DefinitionError{Field: e.Where, Message: e.Message})
		}
	}
	return answer, nil
}

func (s generated) PreviewProjection(ctx context.Context, request openapi.PreviewProjectionRequestObject) (openapi.PreviewProjectionResponseObject, error) {
	caller, source := callerOf(ctx), request.Body.Source
	if len(source.Events) == 0 && caller.tenant != domain.Everyone {
		// The result of a fold reveals the events' content.
		if err := caller.credential.Require(domain.ScopeEventsRead); err != nil {
			return nil, err
		}
	}
	q := projection.PreviewQuery{Stream: source.Stream, Last: source.Last, Given: make([]folding.GivenEvent, len(source.Events))}
	var err error
	if q.Definition, err = definitionOf(request.Body.Definition); err != nil {
		return nil, err
	}
	for i, e := range source.Events {
		q.Given[i] = folding.GivenEvent{Stream: e.Stream, Type: e.Type, Data: e.Data, Metadata: e.Metadata, OccurredAt: value(e.OccurredAt).Time}
		if e.Id != "" {
			if q.Given[i].ID, err = domain.ParseEventID(e.Id); err != nil {
				return nil, domain.Errorf(domain.CodeInvalidRequest, fmt.Sprintf("source.events[%d].id", i), "%s", err)
			}
		}
	}
	preview, err := s.config.Projections.Preview(ctx, caller.tenant, q)
	if err != nil {
		return nil, err
	}
	answer := previewAnswer{Steps: make([]openapi.PreviewStep, len(preview.Steps)), Documents: make([]openapi.Document, len(preview.Documents))}
	for i, step := range preview.Steps {
		answer.Steps[i] = previewStep(step)
	}
	for i, d := range preview.Documents {
		answer.Documents[i] = openapi.Document{Id: d.ID, Position: d.Version, Document: d.Data}
	}
	return answer, nil
}

func previewStep(step folding.PreviewStep) openapi.PreviewStep {
	e := step.Event
	answer := openapi.PreviewStep{
		Event: e.ID.String(), Position: e.Position, Stream: e.Stream, Type: e.Type, Data: e.Data,
		DocumentId: step.DocumentID, Document: step.Document, Parked: step.Parked,
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

func (s generated) GetProjection(ctx context.Context, request openapi.GetProjectionRequestObject) (openapi.GetProjectionResponseObject, error) {
	p, err := s.config.Projections.Get(ctx, callerOf(ctx).tenant, request.Name)
	if err != nil {
		return nil, err
	}
	answer, err := projectionAnswer(p)
	if err != nil {
		return nil, err
	}
	tag := etag(p.Revision)
	return openapi.GetProjection200JSONResponse{Body: answer, Headers: openapi.GetProjection200ResponseHeaders{ETag: &tag}}, nil
}

func (s generated) PutProjection(ctx context.Context, request openapi.PutProjectionRequestObject) (openapi.PutProjectionResponseObject, error) {
	caller := callerOf(ctx)
	definition, err := definitionFor("", request.Name, *request.Body)
	if err != nil {
		return nil, err
	}
	deployed, err := s.config.Rebuilds.Deploy(ctx, caller.tenant, definition, caller.by(), value(request.Params.AcceptLoss))
	if err != nil {
		return nil, err
	}
	if deployed.Rebuild != nil {
		location := rebuildPath(*deployed.Rebuild)
		return openapi.PutProjection202JSONResponse{
			Body: rebuildAnswer(*deployed.Rebuild), Headers: openapi.PutProjection202ResponseHeaders{Location: &location},
		}, nil
	}
	answer, err := projectionAnswer(deployed.Projection)
	if err != nil {
		return nil, err
	}
	if deployed.Created {
		return openapi.PutProjection201JSONResponse(answer), nil
	}
	return openapi.PutProjection200JSONResponse(answer), nil
}

func (s generated) DeleteProjection(ctx context.Context, request openapi.DeleteProjectionRequestObject) (openapi.DeleteProjectionResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.config.Projections.Delete(ctx, caller.tenant, request.Name, caller.by()); err != nil {
		return nil, err
	}
	return openapi.DeleteProjection204Response{}, nil
}

func (s generated) ResetProjection(ctx context.Context, request openapi.ResetProjectionRequestObject) (openapi.ResetProjectionResponseObject, error) {
	caller := callerOf(ctx)
	p, err := s.config.Projections.Reset(ctx, caller.tenant, request.Name, caller.by(), value(request.Params.AcceptLoss))
	if err != nil {
		return nil, err
	}
	answer, err := projectionAnswer(p)
	if err != nil {
		return nil, err
	}
	return openapi.ResetProjection200JSONResponse(answer), nil
}

func (s generated) ListProjectionVersions(ctx context.Context, request openapi.ListProjectionVersionsRequestObject) (openapi.ListProjectionVersionsResponseObject, error) {
	caller := callerOf(ctx)
	versions, err := s.config.Projections.Versions(ctx, caller.tenant, request.Name)
	if err != nil {
		return nil, err
	}
	answer := versionsAnswer{Versions: make([]openapi.ProjectionVersion, len(versions))}
	for i, v := range versions {
		definition, err := definitionAnswer(v.Definition)
		if err != nil {
			return nil, err
		}
		answer.Versions[i] = openapi.ProjectionVersion{
			Version: v.Version, Cause: string(v.Cause), By: v.By, At: openapi.At(v.At), Definition: definition, Changes: changesAnswer(v.Changes),
		}
		if v.Owner != caller.tenant {
			answer.Versions[i].By = "" // a tenant must not learn the names of the operator's users
		}
		if v.Rebuild != (domain.RebuildID{}) {
			answer.Versions[i].Rebuild = v.Rebuild.String()
		}
	}
	return answer, nil
}

func changesAnswer(changes []folding.FieldChange) []openapi.FieldChange {
	answer := make([]openapi.FieldChange, len(changes))
	for i, c := range changes {
		answer[i] = openapi.FieldChange(c)
	}
	return answer
}

func (s generated) GetProjectionState(ctx context.Context, request openapi.GetProjectionStateRequestObject) (openapi.GetProjectionStateResponseObject, error) {
	status, err := s.config.Projections.Status(ctx, callerOf(ctx).tenant, request.Name)
	if err != nil {
		return nil, err
	}
	return statusAnswer{http.StatusOK, projectionState(request.Name, status)}, nil
}

func (s generated) CatchUpProjection(ctx context.Context, request openapi.CatchUpProjectionRequestObject) (openapi.CatchUpProjectionResponseObject, error) {
	status, err := s.config.Projections.CatchUp(ctx, callerOf(ctx).tenant, request.Name, freshness(nil, request.Params.Timeout).Wait)
	if err != nil {
		return nil, err
	}
	return statusAnswer{http.StatusOK, projectionState(request.Name, status)}, nil
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
// field.
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
	text, err := json.Marshal(definition)
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
