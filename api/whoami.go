package api

import (
	"context"
	"net/netip"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
)

func (s operations) Whoami(ctx context.Context, caller access.Caller, _ openapi.WhoamiRequest) (*openapi.Response, error) {
	credential := caller.Credential
	answer := openapi.Caller{Scopes: credential.Grants.Texts()}
	if !credential.Operator {
		tenant, err := s.config.Tenants.Tenant(ctx, caller.Tenant)
		if err != nil {
			return nil, err
		}
		answer.Tenant = &openapi.Named{Id: tenant.ID.String(), Name: tenant.Name}
		answer.Key = &openapi.CallersKey{
			Id: credential.KeyID.String(), Name: credential.Name, Networks: convert(credential.Networks, netip.Prefix.String), ExpiresAt: moment(credential.ExpiresAt),
		}
	}
	return openapi.OK(answer), nil
}
