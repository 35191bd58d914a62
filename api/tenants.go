package api

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

func (s operations) ListTenants(ctx context.Context, caller access.Caller, request openapi.ListTenantsRequest) (*openapi.Response, error) {
	page, err := listPageOf(request.Params.PageSize, request.Params.PageToken, domain.ParseTenantID)
	if err != nil {
		return nil, err
	}
	tenants, err := s.config.Tenants.Tenants(ctx, page.after, page.size+1)
	if err != nil {
		return nil, err
	}
	tenants, link := cutPage(tenants, page.size, func(tenant domain.Tenant) string { return tenant.ID.String() }, "/v1/tenants", nil)
	return openapi.OK(openapi.TenantList{Tenants: convert(tenants, tenantAnswer)}).With("Link", link), nil
}

func (s operations) CreateTenant(ctx context.Context, caller access.Caller, request openapi.CreateTenantRequest) (*openapi.Response, error) {
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
	return openapi.Created(tenantAnswer(tenant)).With("Location", "/v1/tenants/"+tenant.ID.String()), nil
}

func (s operations) GetTenant(ctx context.Context, caller access.Caller, request openapi.GetTenantRequest) (*openapi.Response, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	return openapi.OK(tenantAnswer(tenant)), err
}

func (s operations) ChangeTenant(ctx context.Context, caller access.Caller, request openapi.ChangeTenantRequest) (*openapi.Response, error) {
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
	return openapi.OK(tenantAnswer(tenant)), nil
}

func (s operations) DeleteTenant(ctx context.Context, caller access.Caller, request openapi.DeleteTenantRequest) (*openapi.Response, error) {
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
	return openapi.Accepted(tenantAnswer(tenant)), nil
}

func (s operations) setState(ctx context.Context, text string, state domain.TenantState) (domain.Tenant, error) {
	id, err := parseTenantID("path tenantId", text)
	if err != nil {
		return domain.Tenant{}, err
	}
	if err := s.config.Tenants.SetTenantState(ctx, id, state); err != nil {
		return domain.Tenant{}, err
	}
	return s.config.Tenants.Tenant(ctx, id)
}

func (s operations) tenant(ctx context.Context, text string) (domain.Tenant, error) {
	id, err := parseTenantID("path tenantId", text)
	if err != nil {
		return domain.Tenant{}, err
	}
	return s.config.Tenants.Tenant(ctx, id)
}

func parseTenantID(where, text string) (domain.TenantID, error) {
	id, err := parseAt(where, text, domain.ParseTenantID)
	if err == nil && id == domain.Everyone {
		err = domain.Errorf(domain.CodeNotFound, where, "there is no tenant %s", text)
	}
	return id, err
}

// label checks the display name of a tenant or a key.
func label(where, text string) (string, error) {
	if strings.TrimSpace(text) != text || len(text) > domain.MaxNameBytes {
		return "", domain.Errorf(domain.CodeInvalidRequest, where, "it must have 1 to %d bytes, without leading or trailing spaces", domain.MaxNameBytes)
	}
	for _, r := range text {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return "", domain.Errorf(domain.CodeInvalidRequest, where, "unprintable character %q; remove it", r)
		}
	}
	return text, nil
}

func tenantAnswer(tenant domain.Tenant) openapi.Tenant {
	answer := openapi.Tenant{
		Id: tenant.ID.String(), Name: tenant.Name, State: string(tenant.State), Ceiling: tenant.Ceiling,
		CreatedAt: openapi.At(tenant.CreatedAt), DeletedAt: moment(tenant.DeletedAt),
	}
	if tenant.State == domain.TenantDeleted {
		answer.Receipt = tenant.Receipt // of what has ended
	}
	if tenant.Weight != 1 {
		answer.Weight = tenant.Weight
	}
	return answer
}
