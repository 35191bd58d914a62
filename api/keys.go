package api

import (
	"context"
	"net/netip"
	"time"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

func (s operations) ListTenantKeys(ctx context.Context, caller access.Caller, request openapi.ListTenantKeysRequest) (*openapi.Response, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	list, link, err := s.keysOf(ctx, tenant.ID, "/v1/tenants/"+request.TenantId+"/keys", request.Params.PageSize, request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	return openapi.OK(list).With("Link", link), nil
}

func (s operations) CreateTenantKey(ctx context.Context, caller access.Caller, request openapi.CreateTenantKeyRequest) (*openapi.Response, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	if tenant.State == domain.TenantDeleting || tenant.State == domain.TenantDeleted {
		return nil, domain.Errorf(domain.CodeConflict, "path tenantId", "the tenant is %s; it can no longer get keys", tenant.State)
	}
	created, err := s.newKey(ctx, caller, tenant.ID, request.Body)
	return openapi.Created(created), err
}

func (s operations) RevokeTenantKey(ctx context.Context, caller access.Caller, request openapi.RevokeTenantKeyRequest) (*openapi.Response, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	return openapi.NoContent(), s.revoke(ctx, tenant.ID, request.KeyId)
}

func (s operations) RotateTenantKey(ctx context.Context, caller access.Caller, request openapi.RotateTenantKeyRequest) (*openapi.Response, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	created, err := s.rotate(ctx, caller, tenant.ID, request.KeyId, request.Body)
	return openapi.Created(created), err
}

func (s operations) ListKeys(ctx context.Context, caller access.Caller, request openapi.ListKeysRequest) (*openapi.Response, error) {
	list, link, err := s.keysOf(ctx, caller.Tenant, "/v1/keys", request.Params.PageSize, request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	return openapi.OK(list).With("Link", link), nil
}

func (s operations) CreateKey(ctx context.Context, caller access.Caller, request openapi.CreateKeyRequest) (*openapi.Response, error) {
	created, err := s.newKey(ctx, caller, caller.Tenant, request.Body)
	return openapi.Created(created), err
}

func (s operations) RevokeKey(ctx context.Context, caller access.Caller, request openapi.RevokeKeyRequest) (*openapi.Response, error) {
	return openapi.NoContent(), s.revoke(ctx, caller.Tenant, request.KeyId)
}

func (s operations) RotateKey(ctx context.Context, caller access.Caller, request openapi.RotateKeyRequest) (*openapi.Response, error) {
	created, err := s.rotate(ctx, caller, caller.Tenant, request.KeyId, request.Body)
	return openapi.Created(created), err
}

func (s operations) LimitTenantKey(ctx context.Context, caller access.Caller, request openapi.LimitTenantKeyRequest) (*openapi.Response, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	key, err := s.limitKey(ctx, tenant.ID, request.KeyId, request.Body)
	return openapi.OK(key), err
}

func (s operations) LimitKey(ctx context.Context, caller access.Caller, request openapi.LimitKeyRequest) (*openapi.Response, error) {
	key, err := s.limitKey(ctx, caller.Tenant, request.KeyId, request.Body)
	return openapi.OK(key), err
}

func (s operations) limitKey(ctx context.Context, tenant domain.TenantID, text string, body openapi.Limits) (openapi.Key, error) {
	id, err := parseAt("path keyId", text, auth.ParseKeyID)
	if err != nil {
		return openapi.Key{}, err
	}
	limits, err := limitsOf("", &body)
	if err != nil {
		return openapi.Key{}, err
	}
	var to *domain.Limits
	if limits != (domain.Limits{}) {
		to = &limits
	}
	key, err := s.config.KeyTables.SetKeyLimits(ctx, tenant, id, to)
	return shownKey(key), err
}

// keysOf returns a page of a tenant's keys, and the Link header for the next page. path is the path of the list.
func (s operations) keysOf(ctx context.Context, tenant domain.TenantID, path string, pageSize *int, token *string) (list openapi.KeyList, link string, err error) {
	page, err := listPageOf(pageSize, token, auth.ParseKeyID)
	if err != nil {
		return list, "", err
	}
	keys, err := s.config.KeyTables.Keys(ctx, tenant, page.after, page.size+1)
	if err != nil {
		return list, "", err
	}
	keys, link = cutPage(keys, page.size, func(key auth.APIKey) string { return key.ID.String() }, path, nil)
	list.Keys = convert(keys, shownKey)
	return list, link, nil
}

// shownKey returns a key without its secret.
func shownKey(key auth.APIKey) openapi.Key {
	shown := openapi.Key{
		Id: key.ID.String(), Name: key.Name, Scopes: key.Grants.Texts(), Networks: convert(key.Networks, netip.Prefix.String),
		CreatedAt: openapi.At(key.CreatedAt), LastUsedAt: moment(key.LastUsedAt), ExpiresAt: moment(key.ExpiresAt), RevokedAt: moment(key.RevokedAt),
	}
	if key.RotatedTo != (auth.KeyID{}) {
		shown.RotatedTo = key.RotatedTo.String()
	}
	if key.Limits != nil {
		shown.Limits = new(limitsAnswer(*key.Limits))
	}
	return shown
}

func (s operations) newKey(ctx context.Context, caller access.Caller, tenant domain.TenantID, body openapi.NewKey) (openapi.CreatedKey, error) {
	name, err := label("name", body.Name)
	if err != nil {
		return openapi.CreatedKey{}, err
	}
	grants, err := auth.ParseGrants("scopes", body.Scopes)
	if err != nil {
		return openapi.CreatedKey{}, err
	}
	networks, err := auth.ParseNetworks("networks", body.Networks)
	if err != nil {
		return openapi.CreatedKey{}, err
	}
	key, token := auth.NewKey(tenant, name, grants)
	key.Networks = networks
	key.CreatedAt = time.Now().Truncate(time.Microsecond) // the precision of the database
	if body.ExpiresAt != nil {
		key.ExpiresAt = body.ExpiresAt.Truncate(time.Microsecond)
		if err := auth.CheckExpiry("expiresAt", key.ExpiresAt, key.CreatedAt); err != nil {
			return openapi.CreatedKey{}, err
		}
	}
	if body.Limits != nil {
		limits, err := limitsOf("limits", body.Limits)
		if err != nil {
			return openapi.CreatedKey{}, err
		}
		key.Limits = &limits
	}
	if err := s.config.KeyTables.CreateKey(ctx, key); err != nil {
		return openapi.CreatedKey{}, err
	}
	return s.createdKey(caller, key, token), nil
}

// defaultOverlap is how long a rotated key still works unless the request says otherwise.
const defaultOverlap = 24 * time.Hour

// rotate replaces a key with a new one.
func (s operations) rotate(ctx context.Context, caller access.Caller, tenant domain.TenantID, text string, body openapi.KeyRotation) (openapi.CreatedKey, error) {
	id, err := parseAt("path keyId", text, auth.ParseKeyID)
	if err != nil {
		return openapi.CreatedKey{}, err
	}
	overlap := defaultOverlap
	if body.Overlap != nil {
		overlap = time.Duration(*body.Overlap) * time.Second
	}
	replacement, token := auth.NewKey(tenant, "", nil)
	created, err := s.config.KeyTables.RotateKey(ctx, id, replacement, overlap)
	if err != nil {
		return openapi.CreatedKey{}, err
	}
	return s.createdKey(caller, created, token), nil
}

// createdKey returns a new key with its token, and logs who created it: it may outlive the caller's credential.
func (s operations) createdKey(caller access.Caller, key auth.APIKey, token string) openapi.CreatedKey {
	s.log.Info("a key was created", "tenant", key.Tenant, "key", key.ID.String(), "by", caller.By())
	return openapi.CreatedKey{
		Id: key.ID.String(), Name: key.Name, Scopes: key.Grants.Texts(), Networks: convert(key.Networks, netip.Prefix.String),
		CreatedAt: openapi.At(key.CreatedAt), ExpiresAt: moment(key.ExpiresAt), Key: token,
	}
}

func (s operations) revoke(ctx context.Context, tenant domain.TenantID, text string) error {
	id, err := parseAt("path keyId", text, auth.ParseKeyID)
	if err != nil {
		return err
	}
	return s.config.KeyTables.RevokeKey(ctx, tenant, id)
}
