package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// Faults manages the events that a tenant's projections cannot fold, including its part of a shared projection.
type Faults interface {
	Retry(ctx context.Context, tenant domain.TenantID, name string) (projection.Status, error)
	Skip(ctx context.Context, tenant domain.TenantID, name string, position int64, reason, by string) (domain.SkippedEvent, error)
	Skipped(ctx context.Context, tenant domain.TenantID, name string) ([]domain.SkippedEvent, error)
	WithdrawSkip(ctx context.Context, tenant domain.TenantID, name string, position int64) error
	// Parked returns the first limit parked documents whose ids come after after, by id.
	Parked(ctx context.Context, tenant domain.TenantID, name, after string, limit int) ([]domain.ParkedDocument, error)
	ReplayParked(ctx context.Context, tenant domain.TenantID, name, document string) (projection.Replayed, error)
	ReplayAllParked(ctx context.Context, tenant domain.TenantID, name string) (projection.Replayed, error)
	DiscardParked(ctx context.Context, tenant domain.TenantID, name, document, by string) error
}

func (s generated) RetryProjection(ctx context.Context, request openapi.RetryProjectionRequestObject) (openapi.RetryProjectionResponseObject, error) {
	tenant, err := s.onBehalf(ctx, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	status, err := s.config.Projections.Retry(ctx, tenant, request.Name)
	if err != nil {
		return nil, err
	}
	return statusAnswer{http.StatusAccepted, projectionState(request.Name, status)}, nil
}

func (s generated) SkipEvent(ctx context.Context, request openapi.SkipEventRequestObject) (openapi.SkipEventResponseObject, error) {
	tenant, err := s.onBehalf(ctx, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	skipped, err := s.config.Projections.Skip(ctx, tenant, request.Name, request.Body.Position, request.Body.Reason, callerOf(ctx).by())
	if err != nil {
		return nil, err
	}
	return openapi.SkipEvent200JSONResponse(skippedAnswer(skipped)), nil
}

func (s generated) ListSkippedEvents(ctx context.Context, request openapi.ListSkippedEventsRequestObject) (openapi.ListSkippedEventsResponseObject, error) {
	tenant, err := s.onBehalf(ctx, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	skipped, err := s.config.Projections.Skipped(ctx, tenant, request.Name)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListSkippedEvents200JSONResponse{Skipped: make([]openapi.SkippedEvent, len(skipped))}
	for i, event := range skipped {
		answer.Skipped[i] = skippedAnswer(event)
	}
	return answer, nil
}

func (s generated) WithdrawSkip(ctx context.Context, request openapi.WithdrawSkipRequestObject) (openapi.WithdrawSkipResponseObject, error) {
	tenant, err := s.onBehalf(ctx, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	if err := s.config.Projections.WithdrawSkip(ctx, tenant, request.Name, request.Position); err != nil {
		return nil, err
	}
	return openapi.WithdrawSkip204Response{}, nil
}

func (s generated) ListParkedDocuments(ctx context.Context, request openapi.ListParkedDocumentsRequestObject) (openapi.ListParkedDocumentsResponseObject, error) {
	tenant, err := s.onBehalf(ctx, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	after, err := pageToken(request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	size := pageSizeOf(request.Params.PageSize)
	parked, err := s.config.Projections.Parked(ctx, tenant, request.Name, after, size+1)
	if err != nil {
		return nil, err
	}
	var answer parkedAnswer
	if len(parked) > size {
		parked = parked[:size]
		answer.Headers.Link = pageLink("/v1/projections/"+request.Name+"/parked", url.Values{
			"tenant": values(request.Params.Tenant), "pageSize": {strconv.Itoa(size)},
		}, tokenOf(parked[size-1].ID))
	}
	answer.Body.Parked = make([]openapi.ParkedDocument, len(parked))
	for i, d := range parked {
		answer.Body.Parked[i] = openapi.ParkedDocument{Id: d.ID, Events: d.Events, Fault: faultAnswer(domain.Fault{
			Position: d.Position, EventID: d.EventID, Failure: d.Failure, At: d.ParkedAt,
		})}
	}
	return answer, nil
}

func (s generated) ReplayParkedDocuments(ctx context.Context, request openapi.ReplayParkedDocumentsRequestObject) (openapi.ReplayParkedDocumentsResponseObject, error) {
	tenant, err := s.onBehalf(ctx, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	replayed, err := s.config.Projections.ReplayAllParked(ctx, tenant, request.Name)
	if err != nil {
		return nil, err
	}
	return openapi.ReplayParkedDocuments200JSONResponse(replayed), nil
}

func (s generated) ReplayParkedDocument(ctx context.Context, request openapi.ReplayParkedDocumentRequestObject) (openapi.ReplayParkedDocumentResponseObject, error) {
	tenant, err := s.onBehalf(ctx, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	replayed, err := s.config.Projections.ReplayParked(ctx, tenant, request.Name, request.DocumentId)
	if err != nil {
		return nil, err
	}
	return openapi.ReplayParkedDocument200JSONResponse(replayed), nil
}

func (s generated) DiscardParkedDocument(ctx context.Context, request openapi.DiscardParkedDocumentRequestObject) (openapi.DiscardParkedDocumentResponseObject, error) {
	tenant, err := s.onBehalf(ctx, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	if err := s.config.Projections.DiscardParked(ctx, tenant, request.Name, request.DocumentId, callerOf(ctx).by()); err != nil {
		return nil, err
	}
	return openapi.DiscardParkedDocument204Response{}, nil
}

// onBehalf returns the tenant that a request about faults concerns. A tenant's key acts for its tenant, and an operator
// key names one.
func (s generated) onBehalf(ctx context.Context, named *openapi.UUID) (domain.TenantID, error) {
	caller := callerOf(ctx)
	if caller.tenant != domain.Everyone {
		if named != nil && *named != caller.tenant.String() {
			return domain.TenantID{}, domain.Errorf(domain.CodeForbidden, "query tenant", "a tenant's key acts only for its tenant; leave it out")
		}
		return caller.tenant, nil
	}
	if named == nil {
		return domain.TenantID{}, domain.Errorf(domain.CodeInvalidRequest, "query tenant", "required with the operator's key: the id of the tenant")
	}
	id, err := parseTenantID("query tenant", *named)
	if err != nil {
		return domain.TenantID{}, err
	}
	tenant, err := s.config.Tenants.Tenant(ctx, id)
	if err != nil {
		return domain.TenantID{}, err
	}
	if tenant.State == domain.TenantDeleting || tenant.State == domain.TenantDeleted {
		return domain.TenantID{}, domain.Errorf(domain.CodeNotFound, "query tenant", "the tenant %s is deleted", tenant.ID)
	}
	return tenant.ID, nil
}

func faultAnswer(fault domain.Fault) openapi.Fault {
	return openapi.Fault{
		Position: fault.Position, EventId: fault.EventID.String(), Stream: fault.Stream, Type: fault.EventType, DocumentId: fault.DocumentID,
		Where: fault.Where, Expression: fault.Expression, Message: fault.Message, Before: fault.Before, At: openapi.At(fault.At),
	}
}

func skippedAnswer(e domain.SkippedEvent) openapi.SkippedEvent {
	return openapi.SkippedEvent{
		Position: e.Position, EventId: e.EventID.String(), Version: e.Version, Lasting: e.Lasting, Message: e.Message, Reason: e.Reason, By: e.By, At: openapi.At(e.At),
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
