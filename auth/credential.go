package auth

import (
	"fmt"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// Credential is who is calling, and what they may do. It must not be changed.
type Credential struct {
	Tenant   domain.TenantID // whose key it is; domain.Everyone for an operator's
	KeyID    domain.KeyID    // zero for an operator's
	Name     string          // the key's name, for people
	Scopes   []domain.Scope
	Operator bool
}

// Require returns nil where the credential has one of the scopes, and else a *domain.Error with domain.CodeForbidden
// that names them.
func (c Credential) Require(scopes ...domain.Scope) error {
	for _, scope := range scopes {
		if slices.Contains(c.Scopes, scope) {
			return nil
		}
	}
	forTenants := slices.DeleteFunc(slices.Clone(scopes), func(scope domain.Scope) bool { return scope == domain.ScopeOperator })
	switch {
	case c.Operator:
		return domain.Errorf(domain.CodeForbidden, "Authorization", "this needs a tenant's key with the scope %s; an operator's key acts for no tenant", anyOf(forTenants))
	case len(forTenants) == 0:
		return domain.Errorf(domain.CodeForbidden, "Authorization", "this needs an operator's key, which is in the configuration; this key is a tenant's")
	}
	return domain.Errorf(domain.CodeForbidden, "Authorization", "this needs the scope %s; the key %q has %s only", anyOf(forTenants), c.Name, scopeList(c.Scopes))
}

// ParseScopes reads the scopes that a tenant's new key is to have: at least one, each of domain.TenantScopes, and none
// twice. It returns them in that order. Errors are *domain.Error with domain.CodeInvalidRequest.
func ParseScopes(where string, texts []string) ([]domain.Scope, error) {
	if len(texts) == 0 {
		return nil, domain.Errorf(domain.CodeInvalidRequest, where, "a key needs at least one scope of %s", scopeList(domain.TenantScopes[:]))
	}
	for i, text := range texts {
		place := fmt.Sprintf("%s[%d]", where, i)
		if !slices.Contains(domain.TenantScopes[:], domain.Scope(text)) {
			return nil, domain.Errorf(domain.CodeInvalidRequest, place, "%.40q is not a scope; there are %s", text, scopeList(domain.TenantScopes[:]))
		}
		if slices.Contains(texts[:i], text) {
			return nil, domain.Errorf(domain.CodeInvalidRequest, place, "the scope %s is there twice", text)
		}
	}
	var scopes []domain.Scope
	for _, scope := range domain.TenantScopes {
		if slices.Contains(texts, string(scope)) {
			scopes = append(scopes, scope)
		}
	}
	return scopes, nil
}

func anyOf(scopes []domain.Scope) string {
	return strings.ReplaceAll(scopeList(scopes), ", ", " or ")
}

func scopeList(scopes []domain.Scope) string {
	if len(scopes) == 0 {
		return "no scope"
	}
	texts := make([]string, len(scopes))
	for i, scope := range scopes {
		texts[i] = string(scope)
	}
	return strings.Join(texts, ", ")
}
