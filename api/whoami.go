package api

import (
	"context"
	"net/netip"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
)

func (s operations) Whoami(ctx context.Context, caller access.Caller, _ openapi.WhoamiRequest) (*openapi.Response, error) {
	credential := caller.Credential
	answer := openapi.Caller{Scopes: credential.Grants.Texts(), Role: string(credential.Role)}
	if credential.IsToken() {
		answer.Token = &openapi.CallersToken{Issuer: credential.Issuer, Subject: credential.Subject, Name: credential.Name, ExpiresAt: openapi.At(credential.ExpiresAt)}
	}
	if !credential.Operator {
		tenant, err := s.config.Tenants.Tenant(ctx, caller.Tenant)
		if err != nil {
			return nil, err
		}
		answer.Tenant = &openapi.Named{Id: tenant.ID.String(), Name: tenant.Name}
	}
	if credential.KeyID != (auth.KeyID{}) {
		answer.Key = &openapi.CallersKey{
			Id: credential.KeyID.String(), Name: credential.Name, Networks: convert(credential.Networks, netip.Prefix.String), ExpiresAt: moment(credential.ExpiresAt),
		}
	}
	return openapi.OK(answer), nil
}
