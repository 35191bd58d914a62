package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/upcasting"
)

// Upcasters manages the upcasters of tenants and, with domain.Everyone, the shared ones. *upcasting.Upcasters
// implements it.
type Upcasters interface {
	// List returns a tenant's own upcasters and the shared ones.
	List(ctx context.Context, tenant domain.TenantID) ([]domain.Upcaster, error)
	// Get returns the upcaster that is in force for a tenant.
	Get(ctx context.Context, tenant domain.TenantID, eventType string, version int64) (domain.Upcaster, error)
	// Put stores an upcaster, and replaces its owner's upcaster for the same type and version. It returns
	// domain.CodeInvalidDefinition for an upcaster that cannot work.
	Put(ctx context.Context, upcaster domain.Upcaster) (kept domain.Upcaster, created bool, err error)
	Delete(ctx context.Context, owner domain.TenantID, eventType string, version int64) error
	// Touched returns the projections that fold events of the type.
	Touched(ctx context.Context, owner domain.TenantID, eventType string) ([]domain.Projection, error)
	Preview(ctx context.Context, tenant domain.TenantID, tried *domain.Upcaster, source upcasting.Source) ([]upcasting.Step, error)
}

func (s generated) ListUpcasters(ctx context.Context, _ openapi.ListUpcastersRequestObject) (openapi.ListUpcastersResponseObject, error) {
	upcasters, err := s.config.Upcasters.List(ctx, callerOf(ctx).tenant)
	if err != nil {
		return nil, err
	}
	answer := upcastersAnswer{Upcasters: make([]openapi.Upcaster, len(upcasters))}
	for i, one := range upcasters {
		answer.Upcasters[i] = upcasterBody(one)
	}
	return answer, nil
}

func (s generated) GetUpcaster(ctx context.Context, request openapi.GetUpcasterRequestObject) (openapi.GetUpcasterResponseObject, error) {
	found, err := s.config.Upcasters.Get(ctx, callerOf(ctx).tenant, request.Type, request.Version)
	if err != nil {
		return nil, err
	}
	return upcasterAnswer(upcasterBody(found)), nil
}

func (s generated) PutUpcaster(ctx context.Context, request openapi.PutUpcasterRequestObject) (openapi.PutUpcasterResponseObject, error) {
	caller := callerOf(ctx)
	kept, created, err := s.config.Upcasters.Put(ctx, domain.Upcaster{
		Owner: caller.tenant, Type: request.Type, Version: request.Version, Expression: request.Body.Expression, By: caller.by(),
	})
	if err != nil {
		return nil, err
	}
	touches, err := s.touches(ctx, caller, request.Type, request.Body.Rebuild)
	if err != nil {
		return nil, err
	}
	body := upcasterBody(kept)
	change := openapi.UpcasterChange{Upcaster: &body, Touches: touches}
	if created {
		return openapi.PutUpcaster201JSONResponse(change), nil
	}
	return openapi.PutUpcaster200JSONResponse(change), nil
}

func (s generated) DeleteUpcaster(ctx context.Context, request openapi.DeleteUpcasterRequestObject) (openapi.DeleteUpcasterResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.config.Upcasters.Delete(ctx, caller.tenant, request.Type, request.Version); err != nil {
		return nil, err
	}
	touches, err := s.touches(ctx, caller, request.Type, value(request.Params.Rebuild))
	if err != nil {
		return nil, err
	}
	return openapi.DeleteUpcaster200JSONResponse{Touches: touches}, nil
}

// touches returns the projections and aggregates that fold events of a type, and rebuilds them if again is set. A
// projection that cannot be rebuilt now reports an error and does not prevent the others.
func (s generated) touches(ctx context.Context, caller caller, eventType string, again bool) (openapi.UpcasterTouches, error) {
	touched, err := s.config.Upcasters.Touched(ctx, caller.tenant, eventType)
	if err != nil {
		return openapi.UpcasterTouches{}, err
	}
	touches := openapi.UpcasterTouches{Projections: []openapi.TouchedProjection{}, Aggregates: []string{}}
	for _, p := range touched {
		if folding.BuiltIn(p.ProjectionID) {
			continue // it folds events as they are in the log
		}
		one := openapi.TouchedProjection{Name: p.Name, Shared: p.Shared()}
		switch {
		case !again, p.Owner != caller.tenant, p.Definition.Mode == domain.ModeLive: // a live projection is folded on request
		default:
			rebuild, err := s.startRebuild(ctx, p.ProjectionID, caller.by())
			if err != nil {
				if _, ok := errors.AsType[*domain.Error](err); !ok {
					s.log.Error("a rebuild for a changed upcaster was not started", "projection", p.Name, "error", err)
				}
				one.Error = domain.ClientMessage(err)
			} else {
				one.Rebuild = rebuild.ID.String()
			}
		}
		touches.Projections = append(touches.Projections, one)
	}
	if caller.tenant == domain.Everyone {
		return touches, nil // tenants renew their own aggregates
	}
	aggregates, err := s.config.Aggregates.Definitions(ctx, caller.tenant)
	if err != nil {
		return openapi.UpcasterTouches{}, err
	}
	for _, a := range aggregates {
		if !a.Folds(eventType) {
			continue
		}
		touches.Aggregates = append(touches.Aggregates, a.Category)
		if again {
			s.config.Aggregates.Renew(caller.tenant, a.Category)
		}
	}
	return touches, nil
}

// startRebuild starts a rebuild with the projection's current definition.
func (s generated) startRebuild(ctx context.Context, id domain.ProjectionID, by string) (domain.Rebuild, error) {
	return s.config.Rebuilds.Start(ctx, id, rebuild.Request{By: by})
}

func (s generated) PreviewUpcaster(ctx context.Context, request openapi.PreviewUpcasterRequestObject) (openapi.PreviewUpcasterResponseObject, error) {
	caller, body := callerOf(ctx), request.Body
	if len(body.Source.Events) == 0 && caller.tenant != domain.Everyone {
		// The preview shows the events' data.
		if err := caller.credential.Require(domain.ScopeEventsRead); err != nil {
			return nil, err
		}
	}
	var tried *domain.Upcaster
	if body.Type != "" || body.Version != 0 || body.Expression != "" {
		if body.Type == "" || body.Version == 0 || body.Expression == "" {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "expression", "to try an upcaster, give its type, version and expression: all three, or none")
		}
		tried = &domain.Upcaster{Owner: caller.tenant, Type: body.Type, Version: body.Version, Expression: body.Expression}
	}
	source := upcasting.Source{Stream: body.Source.Stream, Last: body.Source.Last}
	if len(body.Source.Events) > 0 {
		var err error
		if source.Events, err = givenEvents(body.Source.Events); err != nil {
			return nil, err
		}
	}
	steps, err := s.config.Upcasters.Preview(ctx, caller.tenant, tried, source)
	if err != nil {
		return nil, err
	}
	answer := upcastAnswer{Steps: make([]openapi.UpcastStep, len(steps))}
	for i, step := range steps {
		answer.Steps[i] = openapi.UpcastStep{
			Event: step.Event.ID.String(), Type: step.Event.Type, VersionBefore: step.VersionBefore, VersionAfter: step.VersionAfter,
			Before: step.Event.Data, After: step.After,
		}
		if step.Fault != nil {
			answer.Steps[i].Error = step.Fault.Error()
		}
	}
	return answer, nil
}

// givenEvents returns the events in a preview's source, which do not have to be in the log.
func givenEvents(given []openapi.GivenEvent) ([]domain.Event, error) {
	events := make([]folding.GivenEvent, len(given))
	for i, e := range given {
		events[i] = folding.GivenEvent{Stream: e.Stream, Type: e.Type, Data: e.Data, Metadata: e.Metadata, OccurredAt: value(e.OccurredAt).Time}
		if e.Id != "" {
			var err error
			if events[i].ID, err = domain.ParseEventID(e.Id); err != nil {
				return nil, domain.Errorf(domain.CodeInvalidRequest, fmt.Sprintf("source.events[%d].id", i), "%s", err)
			}
		}
	}
	return folding.GivenEvents("source.events", events)
}

func upcasterBody(u domain.Upcaster) openapi.Upcaster {
	return openapi.Upcaster{
		Type: u.Type, Version: u.Version, Expression: u.Expression, Shared: u.Owner == domain.Everyone,
		Revision: u.Revision, By: u.By, UpdatedAt: openapi.At(u.UpdatedAt),
	}
}

// The answers that show expressions and data as they were written; see writeVerbatim.
type (
	upcastersAnswer openapi.UpcasterList
	upcasterAnswer  openapi.Upcaster
	upcastAnswer    openapi.UpcasterPreviewResult
)

func (a upcastersAnswer) VisitListUpcastersResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}

func (a upcasterAnswer) VisitGetUpcasterResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}

func (a upcastAnswer) VisitPreviewUpcasterResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}
