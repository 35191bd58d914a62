package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// caller is who a request acts for.
type caller struct {
	tenant   domain.TenantID // domain.Everyone for the operator
	operator bool
}

// authenticate finds the request's caller, and refuses one whose key has none of the scopes. Where no scope is named,
// anybody may.
func (s *Server) authenticate(request *http.Request, scopes []domain.Scope) (caller, error) {
	if len(scopes) == 0 {
		return caller{}, nil
	}
	header := request.Header.Get("Authorization")
	kind, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(kind, "Bearer") || token == "" {
		return caller{}, domain.Errorf(domain.CodeUnauthenticated, "Authorization", "a key is needed: Authorization: Bearer <key>")
	}
	credential, err := s.config.Keys.Authenticate(request.Context(), strings.TrimSpace(token))
	if err != nil {
		return caller{}, err
	}
	if !mayAny(credential, scopes) {
		return caller{}, domain.Errorf(domain.CodeForbidden, "Authorization", "the key lacks the scope: %s is needed here", scopeList(scopes))
	}
	if credential.Operator {
		return caller{tenant: domain.Everyone, operator: true}, nil
	}
	return caller{tenant: credential.Tenant}, nil
}

// mayAny says whether the credential has one of the scopes. The operator has that of the operator alone: it acts for no
// tenant.
func mayAny(credential auth.Credential, scopes []domain.Scope) bool {
	if credential.Operator {
		return slices.Contains(scopes, domain.ScopeOperator)
	}
	for _, scope := range scopes {
		if scope != domain.ScopeOperator && slices.Contains(credential.Scopes, scope) {
			return true
		}
	}
	return false
}

func scopeList(scopes []domain.Scope) string {
	names := make([]string, len(scopes))
	for i, scope := range scopes {
		names[i] = string(scope)
		if scope == domain.ScopeOperator {
			names[i] = "the operator's key"
		}
	}
	return strings.Join(names, " or ")
}

type callerKey struct{}

// withCaller hands the caller through what is generated, whose handlers take a context and the request's fields only.
// Each takes it out in its first line, and from there on the tenant is an argument.
func withCaller(ctx context.Context, caller caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

func callerOf(ctx context.Context) caller {
	found, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		panic("a generated handler was called without a caller")
	}
	return found
}
