package api

import (
	"context"
	"errors"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/upcasting"
)

func (s operations) ListUpcasters(ctx context.Context, caller access.Caller, _ openapi.ListUpcastersRequest) (*openapi.Response, error) {
	upcasters, err := s.config.Upcasters.List(ctx, caller.Tenant)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.UpcasterList{Upcasters: convert(upcasters, upcasterAnswer)}), nil
}

func (s operations) GetUpcaster(ctx context.Context, caller access.Caller, request openapi.GetUpcasterRequest) (*openapi.Response, error) {
	found, err := s.config.Upcasters.Get(ctx, caller.Tenant, request.Type, request.Version)
	return openapi.OK(upcasterAnswer(found)), err
}

func (s operations) PutUpcaster(ctx context.Context, caller access.Caller, request openapi.PutUpcasterRequest) (*openapi.Response, error) {
	kept, created, err := s.config.Upcasters.Put(ctx, domain.Upcaster{
		Owner: caller.Tenant, Type: request.Type, Version: request.Version, Expression: request.Body.Expression, By: caller.By(),
	})
	if err != nil {
		return nil, err
	}
	touches, err := s.touches(ctx, caller, request.Type, request.Body.Rebuild)
	if err != nil {
		return nil, err
	}
	return openapi.CreatedIf(created, openapi.UpcasterChange{Upcaster: new(upcasterAnswer(kept)), Touches: touches}), nil
}

func (s operations) DeleteUpcaster(ctx context.Context, caller access.Caller, request openapi.DeleteUpcasterRequest) (*openapi.Response, error) {
	if err := s.config.Upcasters.Delete(ctx, caller.Tenant, request.Type, request.Version); err != nil {
		return nil, err
	}
	touches, err := s.touches(ctx, caller, request.Type, value(request.Params.Rebuild))
	return openapi.OK(openapi.UpcasterChange{Touches: touches}), err
}

// touches returns the projections and aggregates that fold events of a type, and rebuilds them if rebuildAll is set. A
// projection that cannot be rebuilt now reports an error and does not prevent the others.
func (s operations) touches(
	ctx context.Context, caller access.Caller, eventType string, rebuildAll bool,
) (openapi.UpcasterTouches, error) {
	touched, err := s.config.Upcasters.Touched(ctx, caller.Tenant, eventType)
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
		case !rebuildAll, p.Owner != caller.Tenant:
		case p.Definition.Mode == domain.ModeLive: // it is folded on request
		default:
			rebuild, err := s.startRebuild(ctx, p.ProjectionID, caller.By())
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
	if caller.Tenant == domain.Everyone {
		return touches, nil // tenants renew their own aggregates
	}
	aggregates, err := s.config.Aggregates.Definitions(ctx, caller.Tenant)
	if err != nil {
		return openapi.UpcasterTouches{}, err
	}
	for _, a := range aggregates {
		if !a.Folds(eventType) {
			continue
		}
		touches.Aggregates = append(touches.Aggregates, a.Category)
		if rebuildAll {
			s.config.Aggregates.Renew(caller.Tenant, a.Category)
		}
	}
	return touches, nil
}

// startRebuild starts a rebuild with the projection's current definition.
func (s operations) startRebuild(ctx context.Context, id domain.ProjectionID, by string) (domain.Rebuild, error) {
	return s.config.Rebuilds.Start(ctx, id, rebuild.Request{By: by})
}

func (s operations) PreviewUpcaster(ctx context.Context, caller access.Caller, request openapi.PreviewUpcasterRequest) (*openapi.Response, error) {
	body := request.Body
	if len(body.Source.Events) == 0 && caller.Tenant != domain.Everyone {
		// The preview shows the events' data.
		if err := caller.Credential.Require(auth.ScopeEventsRead); err != nil {
			return nil, err
		}
	}
	var tried *domain.Upcaster
	if body.Type != "" || body.Version != 0 || body.Expression != "" {
		if body.Type == "" || body.Version == 0 || body.Expression == "" {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "expression", "to try an upcaster, give its type, version and expression: all three, or none")
		}
		tried = &domain.Upcaster{Owner: caller.Tenant, Type: body.Type, Version: body.Version, Expression: body.Expression}
	}
	source := upcasting.Source{Stream: body.Source.Stream, Last: body.Source.Last}
	if len(body.Source.Events) > 0 {
		given, err := givenEvents("source.events", body.Source.Events)
		if err != nil {
			return nil, err
		}
		if source.Events, err = folding.GivenEvents("source.events", given); err != nil {
			return nil, err
		}
	}
	steps, err := s.config.Upcasters.Preview(ctx, caller.Tenant, tried, source)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.UpcasterPreviewResult{Steps: convert(steps, upcastStepAnswer)}), nil
}

func upcastStepAnswer(step upcasting.Step) openapi.UpcastStep {
	answer := openapi.UpcastStep{
		Event: step.Event.ID.String(), Type: step.Event.Type, VersionBefore: step.VersionBefore, VersionAfter: step.VersionAfter,
		Before: step.Event.Data, After: step.After,
	}
	if step.Fault != nil {
		answer.Error = step.Fault.Error()
	}
	return answer
}

func upcasterAnswer(u domain.Upcaster) openapi.Upcaster {
	return openapi.Upcaster{
		Type: u.Type, Version: u.Version, Expression: u.Expression, Shared: u.Owner == domain.Everyone,
		Revision: u.Revision, By: u.By, UpdatedAt: openapi.At(u.UpdatedAt),
	}
}
