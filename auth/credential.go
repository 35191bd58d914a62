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
	Grants   domain.Grants
	Operator bool
}

// Require returns nil where the credential has one of the scopes for every category there can be, and else a
// *domain.Error with domain.CodeForbidden that names them.
func (c Credential) Require(scopes ...domain.Scope) error {
	return c.RequireFor("", scopes...)
}

// RequireSome is Require for what asks RequireFor later, when it is known which categories it is about: the credential
// must have one of the scopes for some category.
func (c Credential) RequireSome(scopes ...domain.Scope) error {
	for _, scope := range scopes {
		if c.Grants.AllowSome(scope) {
			return nil
		}
	}
	return c.refuse(scopes, "")
}

// RequireFor is Require for one category only; the empty one stands for every category.
func (c Credential) RequireFor(category string, scopes ...domain.Scope) error {
	for _, scope := range scopes {
		if c.Grants.Allow(scope, category) {
			return nil
		}
	}
	return c.refuse(scopes, category)
}

// refuse says what is missing: scopes, for a category or for all.
func (c Credential) refuse(scopes []domain.Scope, category string) error {
	var forTenants []string
	some := false // of some category, there is one
	for _, scope := range scopes {
		if scope != domain.ScopeOperator {
			forTenants = append(forTenants, string(scope))
		}
		some = some || c.Grants.AllowSome(scope)
	}
	needed := strings.Join(forTenants, " or ")
	switch {
	case category != "":
		needed += " for the category " + category
	case some:
		needed += " for every category"
	}
	switch {
	case c.Operator:
		return domain.Errorf(domain.CodeForbidden, "Authorization", "this needs a tenant's key with the scope %s; an operator's key acts for no tenant", needed)
	case len(forTenants) == 0:
		return domain.Errorf(domain.CodeForbidden, "Authorization", "this needs an operator's key, which is in the configuration; this key is a tenant's")
	}
	return domain.Errorf(domain.CodeForbidden, "Authorization", "this needs the scope %s; the key %q has %s only", needed, c.Name, grantList(c.Grants))
}

// grantsShown is how many grants a refusal names: as many as a key without patterns has at most.
const grantsShown = len(domain.TenantScopes)

func grantList(grants domain.Grants) string {
	if len(grants) == 0 {
		return "no scope"
	}
	texts := grants.Texts()
	if more := len(texts) - grantsShown; more > 0 {
		texts = slices.Concat(texts[:grantsShown], []string{fmt.Sprintf("%d more", more)})
	}
	return strings.Join(texts, ", ")
}
