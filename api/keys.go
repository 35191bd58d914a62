package api

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// Keys authenticates keys and tickets. *auth.Keys implements it.
type Keys interface {
	Authenticate(ctx context.Context, token string) (auth.Credential, error)
	// AuthenticateTicket returns the credential of the key that a ticket replaces.
	AuthenticateTicket(ctx context.Context, token string) (auth.Credential, error)
	// Again reads the current state of a credential's key.
	Again(ctx context.Context, of auth.Credential) (auth.Credential, error)
}

func (s generated) ListTenantKeys(ctx context.Context, request openapi.ListTenantKeysRequestObject) (openapi.ListTenantKeysResponseObject, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	list, link, err := s.keysOf(ctx, tenant.ID, "/v1/tenants/"+request.TenantId+"/keys", request.Params.PageSize, request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	return openapi.ListTenantKeys200JSONResponse{Body: list, Headers: openapi.ListTenantKeys200ResponseHeaders{Link: link}}, nil
}

func (s generated) CreateTenantKey(ctx context.Context, request openapi.CreateTenantKeyRequestObject) (openapi.CreateTenantKeyResponseObject, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	if tenant.State == domain.TenantDeleting || tenant.State == domain.TenantDeleted {
		return nil, domain.Errorf(domain.CodeConflict, "path tenantId", "the tenant is %s; it can no longer get keys", tenant.State)
	}
	created, err := s.newKey(ctx, tenant.ID, *request.Body)
	if err != nil {
		return nil, err
	}
	return openapi.CreateTenantKey201JSONResponse(created), nil
}

func (s generated) RevokeTenantKey(ctx context.Context, request openapi.RevokeTenantKeyRequestObject) (openapi.RevokeTenantKeyResponseObject, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	if err := s.revoke(ctx, tenant.ID, request.KeyId); err != nil {
		return nil, err
	}
	return openapi.RevokeTenantKey204Response{}, nil
}

func (s generated) ListKeys(ctx context.Context, request openapi.ListKeysRequestObject) (openapi.ListKeysResponseObject, error) {
	list, link, err := s.keysOf(ctx, callerOf(ctx).tenant, "/v1/keys", request.Params.PageSize, request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	return openapi.ListKeys200JSONResponse{Body: list, Headers: openapi.ListKeys200ResponseHeaders{Link: link}}, nil
}

func (s generated) CreateKey(ctx context.Context, request openapi.CreateKeyRequestObject) (openapi.CreateKeyResponseObject, error) {
	created, err := s.newKey(ctx, callerOf(ctx).tenant, *request.Body)
	if err != nil {
		return nil, err
	}
	return openapi.CreateKey201JSONResponse(created), nil
}

func (s generated) RevokeKey(ctx context.Context, request openapi.RevokeKeyRequestObject) (openapi.RevokeKeyResponseObject, error) {
	if err := s.revoke(ctx, callerOf(ctx).tenant, request.KeyId); err != nil {
		return nil, err
	}
	return openapi.RevokeKey204Response{}, nil
}

// keysOf returns a page of a tenant's keys, and the link to the next page if there is one. path is the path of the
// list.
func (s generated) keysOf(ctx context.Context, tenant domain.TenantID, path string, pageSize *int, token *string) (list openapi.KeyList, link *string, err error) {
	text, err := pageToken(token)
	if err != nil {
		return list, nil, err
	}
	var after domain.KeyID
	if text != "" {
		if after, err = domain.ParseKeyID(text); err != nil {
			return list, nil, domain.Errorf(domain.CodeInvalidRequest, "query pageToken", "not a token of this list; take it from the Link header, or leave it out to begin with the first page")
		}
	}
	size := pageSizeOf(pageSize)
	keys, err := s.config.Tenants.Keys(ctx, tenant, after, size+1)
	if err != nil {
		return list, nil, err
	}
	if len(keys) > size {
		keys = keys[:size]
		link = pageLink(path, url.Values{"pageSize": {strconv.Itoa(size)}}, tokenOf(keys[size-1].ID.String()))
	}
	list.Keys = []openapi.Key{}
	for _, key := range keys {
		list.Keys = append(list.Keys, openapi.Key{
			Id: key.ID.String(), Name: key.Name, Scopes: key.Grants.Texts(),
			CreatedAt: openapi.At(key.CreatedAt), RevokedAt: moment(key.RevokedAt),
		})
	}
	return list, link, nil
}

func (s generated) newKey(ctx context.Context, tenant domain.TenantID, body openapi.NewKey) (openapi.CreatedKey, error) {
	name, err := label("name", body.Name)
	if err != nil {
		return openapi.CreatedKey{}, err
	}
	grants, err := domain.ParseGrants("scopes", body.Scopes)
	if err != nil {
		return openapi.CreatedKey{}, err
	}
	key, token := auth.NewKey(tenant, name, grants)
	key.CreatedAt = time.Now().Truncate(time.Microsecond) // the precision of the database
	if err := s.config.Tenants.CreateKey(ctx, key); err != nil {
		return openapi.CreatedKey{}, err
	}
	return openapi.CreatedKey{
		Id: key.ID.String(), Name: key.Name, Scopes: key.Grants.Texts(), CreatedAt: openapi.At(key.CreatedAt), Key: token,
	}, nil
}

func (s generated) revoke(ctx context.Context, tenant domain.TenantID, text string) error {
	id, err := domain.ParseKeyID(text)
	if err != nil {
		return domain.Errorf(domain.CodeInvalidRequest, "path keyId", "%s", err)
	}
	return s.config.Tenants.RevokeKey(ctx, tenant, id)
}
