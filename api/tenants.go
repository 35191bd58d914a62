package api

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

// Tenants manages tenants and their keys.
type Tenants interface {
	CreateTenant(ctx context.Context, tenant domain.Tenant) error
	Tenant(ctx context.Context, id domain.TenantID) (domain.Tenant, error)
	// Tenants returns tenants with ids greater than after, in order.
	Tenants(ctx context.Context, after domain.TenantID, limit int) ([]domain.Tenant, error)
	SetTenantState(ctx context.Context, id domain.TenantID, state domain.TenantState) error
	// SetTenantShare changes the values that are not nil.
	SetTenantShare(ctx context.Context, id domain.TenantID, weight, ceiling *int) error

	CreateKey(ctx context.Context, key domain.APIKey) error
	Keys(ctx context.Context, tenant domain.TenantID, after domain.KeyID, limit int) ([]domain.APIKey, error)
	RevokeKey(ctx context.Context, tenant domain.TenantID, id domain.KeyID) error

	// RedactEvent removes the data of an unreadable event. It returns domain.CodeConflict if the event is readable.
	RedactEvent(ctx context.Context, tenant domain.TenantID, position int64, reason string) (domain.Event, error)
}

func (s generated) ListTenants(ctx context.Context, request openapi.ListTenantsRequestObject) (openapi.ListTenantsResponseObject, error) {
	text, err := pageToken(request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	var after domain.TenantID
	if text != "" {
		if after, err = parseTenantID("query pageToken", text); err != nil {
			return nil, err
		}
	}
	size := pageSizeOf(request.Params.PageSize)
	tenants, err := s.config.Tenants.Tenants(ctx, after, size+1)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListTenants200JSONResponse{Body: openapi.TenantList{Tenants: []openapi.Tenant{}}}
	if len(tenants) > size {
		tenants = tenants[:size]
		answer.Headers.Link = pageLink("/v1/tenants", url.Values{"pageSize": {strconv.Itoa(size)}}, tokenOf(tenants[size-1].ID.String()))
	}
	for _, tenant := range tenants {
		answer.Body.Tenants = append(answer.Body.Tenants, tenantAnswer(tenant))
	}
	return answer, nil
}

func (s generated) CreateTenant(ctx context.Context, request openapi.CreateTenantRequestObject) (openapi.CreateTenantResponseObject, error) {
	name, err := label("name", request.Body.Name)
	if err != nil {
		return nil, err
	}
	tenant := domain.Tenant{ID: domain.NewTenantID(), Name: name, State: domain.TenantActive, CreatedAt: time.Now()}
	if err := s.config.Tenants.CreateTenant(ctx, tenant); err != nil {
		return nil, err
	}
	if tenant, err = s.config.Tenants.Tenant(ctx, tenant.ID); err != nil {
		return nil, err
	}
	location := "/v1/tenants/" + tenant.ID.String()
	return openapi.CreateTenant201JSONResponse{
		Body: tenantAnswer(tenant), Headers: openapi.CreateTenant201ResponseHeaders{Location: &location},
	}, nil
}

func (s generated) GetTenant(ctx context.Context, request openapi.GetTenantRequestObject) (openapi.GetTenantResponseObject, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	return openapi.GetTenant200JSONResponse(tenantAnswer(tenant)), nil
}

func (s generated) ChangeTenant(ctx context.Context, request openapi.ChangeTenantRequestObject) (openapi.ChangeTenantResponseObject, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	change := request.Body
	if change.Weight != 0 || change.Ceiling != nil {
		var weight *int
		if change.Weight != 0 {
			weight = &change.Weight
		}
		if err := s.config.Tenants.SetTenantShare(ctx, tenant.ID, weight, change.Ceiling); err != nil {
			return nil, err
		}
	}
	if change.State != "" {
		if err := s.config.Tenants.SetTenantState(ctx, tenant.ID, domain.TenantState(change.State)); err != nil {
			return nil, err
		}
	}
	if tenant, err = s.config.Tenants.Tenant(ctx, tenant.ID); err != nil {
		return nil, err
	}
	return openapi.ChangeTenant200JSONResponse(tenantAnswer(tenant)), nil
}

func (s generated) DeleteTenant(ctx context.Context, request openapi.DeleteTenantRequestObject) (openapi.DeleteTenantResponseObject, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	if request.Params.Confirm != tenant.Name {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "query confirm", "to confirm, give the tenant's name, %q: all its data is removed permanently", tenant.Name)
	}
	// On a repeated request the tenant is being deleted or already deleted, and both satisfy the request.
	if tenant.State != domain.TenantDeleting && tenant.State != domain.TenantDeleted {
		if tenant, err = s.setState(ctx, request.TenantId, domain.TenantDeleting); err != nil {
			return nil, err
		}
	}
	return openapi.DeleteTenant202JSONResponse(tenantAnswer(tenant)), nil
}

func (s generated) RedactEvent(ctx context.Context, request openapi.RedactEventRequestObject) (openapi.RedactEventResponseObject, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	event, err := s.config.Tenants.RedactEvent(ctx, tenant.ID, request.Position, request.Body.Reason)
	if err != nil {
		return nil, err
	}
	s.log.Warn("the operator has redacted an event", "tenant", tenant.ID.String(), "position", event.Position, "event", event.ID.String(),
		"stream", event.Stream, "version", event.Version, "type", event.Type, "reason", request.Body.Reason, "by", callerOf(ctx).by())
	return openapi.RedactEvent200JSONResponse(eventAnswer(event)), nil
}

func (s generated) setState(ctx context.Context, text string, state domain.TenantState) (domain.Tenant, error) {
	id, err := parseTenantID("path tenantId", text)
	if err != nil {
		return domain.Tenant{}, err
	}
	if err := s.config.Tenants.SetTenantState(ctx, id, state); err != nil {
		return domain.Tenant{}, err
	}
	return s.config.Tenants.Tenant(ctx, id)
}

func (s generated) tenant(ctx context.Context, text string) (domain.Tenant, error) {
	id, err := parseTenantID("path tenantId", text)
	if err != nil {
		return domain.Tenant{}, err
	}
	return s.config.Tenants.Tenant(ctx, id)
}

func parseTenantID(where, text string) (domain.TenantID, error) {
	id, err := domain.ParseTenantID(text)
	if err != nil {
		return id, domain.Errorf(domain.CodeInvalidRequest, where, "%s", err)
	}
	if id == domain.Everyone {
		return id, domain.Errorf(domain.CodeNotFound, where, "there is no tenant %s", text)
	}
	return id, nil
}

// label checks the display name of a tenant or a key.
func label(where, text string) (string, error) {
	if strings.TrimSpace(text) != text || len(text) > domain.MaxNameBytes {
		return "", domain.Errorf(domain.CodeInvalidRequest, where, "it needs 1 to %d bytes, and no blanks around it", domain.MaxNameBytes)
	}
	for _, r := range text {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return "", domain.Errorf(domain.CodeInvalidRequest, where, "it has a character %q, which cannot be shown", r)
		}
	}
	return text, nil
}

func tenantAnswer(tenant domain.Tenant) openapi.Tenant {
	answer := openapi.Tenant{
		Id: tenant.ID.String(), Name: tenant.Name, State: string(tenant.State), Ceiling: tenant.Ceiling,
		CreatedAt: openapi.At(tenant.CreatedAt), DeletedAt: moment(tenant.DeletedAt),
	}
	if tenant.Weight != 1 {
		answer.Weight = tenant.Weight
	}
	return answer
}
