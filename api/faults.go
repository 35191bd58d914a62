package api

import (
	"context"
	"net/url"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

func (s operations) RetryProjection(ctx context.Context, caller access.Caller, request openapi.RetryProjectionRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	status, err := s.config.Projections.Retry(ctx, tenant, request.Name)
	return openapi.Accepted(projectionState(request.Name, status)), err
}

func (s operations) SkipEvent(ctx context.Context, caller access.Caller, request openapi.SkipEventRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	skipped, err := s.config.Projections.Skip(ctx, tenant, request.Name, request.Body.Position, request.Body.Reason, caller.By())
	return openapi.OK(skippedAnswer(skipped)), err
}

func (s operations) ListSkippedEvents(ctx context.Context, caller access.Caller, request openapi.ListSkippedEventsRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	skipped, err := s.config.Projections.Skipped(ctx, tenant, request.Name)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.SkippedEventList{Skipped: convert(skipped, skippedAnswer)}), nil
}

func (s operations) WithdrawSkip(ctx context.Context, caller access.Caller, request openapi.WithdrawSkipRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	return openapi.NoContent(), s.config.Projections.WithdrawSkip(ctx, tenant, request.Name, request.Position)
}

func (s operations) ListParkedDocuments(ctx context.Context, caller access.Caller, request openapi.ListParkedDocumentsRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	page, err := namePageOf(request.Params.PageSize, request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	parked, err := s.config.Projections.Parked(ctx, tenant, request.Name, page.after, page.size+1)
	if err != nil {
		return nil, err
	}
	parked, link := cutPage(parked, page.size, func(d domain.ParkedDocument) string { return d.ID },
		"/v1/projections/"+request.Name+"/parked", url.Values{"tenant": optional(request.Params.Tenant)})
	return openapi.OK(openapi.ParkedDocumentList{Parked: convert(parked, parkedAnswer)}).With("Link", link), nil
}

func parkedAnswer(d domain.ParkedDocument) openapi.ParkedDocument {
	return openapi.ParkedDocument{Id: d.ID, Events: d.Events, Fault: faultAnswer(domain.Fault{
		Position: d.Position, EventID: d.EventID, Failure: d.Failure, At: d.ParkedAt, Retries: d.Retries, RetryAt: d.RetryAt,
	})}
}

func (s operations) ReplayParkedDocuments(ctx context.Context, caller access.Caller, request openapi.ReplayParkedDocumentsRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	replayed, err := s.config.Projections.ReplayAllParked(ctx, tenant, request.Name)
	return openapi.OK(openapi.Replayed(replayed)), err
}

func (s operations) ReplayParkedDocument(ctx context.Context, caller access.Caller, request openapi.ReplayParkedDocumentRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	replayed, err := s.config.Projections.ReplayParked(ctx, tenant, request.Name, request.DocumentId)
	return openapi.OK(openapi.Replayed(replayed)), err
}

func (s operations) DiscardParkedDocument(ctx context.Context, caller access.Caller, request openapi.DiscardParkedDocumentRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	return openapi.NoContent(), s.config.Projections.DiscardParked(ctx, tenant, request.Name, request.DocumentId, caller.By())
}

// onBehalf returns the tenant that a request concerns. A tenant's key acts for its tenant, and an operator's key names
// one.
func (s operations) onBehalf(ctx context.Context, caller access.Caller, named *openapi.UUID) (domain.TenantID, error) {
	if caller.Tenant != domain.Everyone {
		if named != nil && *named != caller.Tenant.String() {
			return domain.TenantID{}, domain.Errorf(domain.CodeForbidden, "query tenant", "a tenant's key acts only for its tenant; leave it out")
		}
		return caller.Tenant, nil
	}
	if named == nil {
		return domain.TenantID{}, domain.Errorf(domain.CodeInvalidRequest, "query tenant", "required with the operator's key: the id of the tenant")
	}
	return s.undeletedTenant(ctx, *named)
}

// undeletedTenant returns the id of the tenant that the parameter names, unless it is being deleted.
func (s operations) undeletedTenant(ctx context.Context, named string) (domain.TenantID, error) {
	id, err := parseTenantID("query tenant", named)
	if err != nil {
		return id, err
	}
	tenant, err := s.config.Tenants.Tenant(ctx, id)
	if err == nil && (tenant.State == domain.TenantDeleting || tenant.State == domain.TenantDeleted) {
		err = domain.Errorf(domain.CodeNotFound, "query tenant", "the tenant %s is deleted", id)
	}
	return id, err
}

func faultAnswer(fault domain.Fault) openapi.Fault {
	return openapi.Fault{
		Position: fault.Position, EventId: fault.EventID.String(), Stream: fault.Stream, Type: fault.EventType, DocumentId: fault.DocumentID,
		Where: fault.Where, Expression: fault.Expression, Message: fault.Message, Before: fault.Before, At: openapi.At(fault.At),
		Retries: fault.Retries, NextRetryAt: moment(fault.RetryAt),
	}
}

func skippedAnswer(e domain.SkippedEvent) openapi.SkippedEvent {
	return openapi.SkippedEvent{
		Position: e.Position, EventId: e.EventID.String(), Version: e.Version, Lasting: e.Lasting, Message: e.Message, Reason: e.Reason, By: e.By, At: openapi.At(e.At),
		Documents: e.Documents,
	}
}

// projectionState converts a projection's status for the answer.
func projectionState(name string, status projection.Status) openapi.ProjectionState {
	answer := openapi.ProjectionState{
		Name: name, State: string(status.State), Build: status.Projection.Build, Head: status.Head, Error: status.Error,
		Parked: status.Parked, Loss: lossAnswer(status.Loss), Since: moment(status.Since), NextTry: moment(status.NextTry),
	}
	if status.Known {
		answer.Checkpoint, answer.LagPositions = new(status.Checkpoint), new(max(0, status.Head-status.Checkpoint))
		answer.LagEvents, answer.LagSeconds = new(status.LagEvents), new(status.Lag.Seconds())
	}
	if behind := status.Projection.Fault; behind != nil {
		answer.LeftBehind = &openapi.TenantFault{Reason: behind.Reason, Position: behind.Position}
	}
	if status.Fault != nil {
		answer.Fault = new(faultAnswer(*status.Fault))
	}
	return answer
}
