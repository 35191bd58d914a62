package auth

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Credential identifies the caller and holds its grants. It must not be modified.
type Credential struct {
	Tenant    domain.TenantID // domain.Everyone for an operator
	KeyID     KeyID           // zero for an operator's key and for a token
	Issuer    string          // the configured name of a token's issuer; empty for a key
	Subject   string          // a token's claim sub
	Name      string          // of the key, or of the person or program with the token
	Grants    Grants
	Networks  []netip.Prefix // the client addresses from which the key works; empty: all
	ExpiresAt time.Time      // when it stops working; zero: never
	Operator  bool
	Role      Role           // of an operator
	Limits    *domain.Limits // of the key, within those of the tenant; nil: none
}

// Known reports whether the credential is of an authenticated caller. The zero value is not.
func (c Credential) Known() bool { return c.Operator || c.KeyID != KeyID{} || c.IsToken() }

// IsToken reports whether the credential is a token of an issuer, rather than a key.
func (c Credential) IsToken() bool { return c.Issuer != "" }

// kind returns what the credential is, for use in a sentence.
func (c Credential) kind() string {
	if c.IsToken() {
		return "token"
	}
	return "key"
}

// Require returns nil if the credential has one of the scopes for all categories. Otherwise it returns a *domain.Error
// with domain.CodeForbidden that names the scopes.
func (c Credential) Require(scopes ...Scope) error {
	return c.RequireFor("", scopes...)
}

// RequireSome checks that the credential has one of the scopes for at least one category. It is for calls that use
// RequireFor later, once they know the category. Errors are those of Require.
func (c Credential) RequireSome(scopes ...Scope) error {
	for _, scope := range scopes {
		if c.Grants.AllowSome(scope) {
			return nil
		}
	}
	return c.refuse(scopes, "")
}

// RequireFor is Require for one category. An empty category means all categories.
func (c Credential) RequireFor(category string, scopes ...Scope) error {
	for _, scope := range scopes {
		if c.Grants.Allow(scope, category) {
			return nil
		}
	}
	return c.refuse(scopes, category)
}

// refuse returns the error that names the missing scopes, for a category or for all.
func (c Credential) refuse(scopes []Scope, category string) error {
	var forTenants []string
	some := false // the credential has one of the scopes for some category
	for _, scope := range scopes {
		if roleFor([]Scope{scope}) == "" {
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
	switch role := roleFor(scopes); {
	case c.Operator && role != "":
		return domain.Errorf(domain.CodeForbidden, "Authorization", "this needs an operator with the role %s; %q has the role %s", role, c.Name, c.Role)
	case c.Operator:
		return domain.Errorf(domain.CodeForbidden, "Authorization", "a tenant's key with the scope %s is required; an operator's key acts for no tenant", needed)
	case len(forTenants) == 0:
		return domain.Errorf(domain.CodeForbidden, "Authorization", "this needs an operator's key, which is in the configuration; this %s is a tenant's", c.kind())
	}
	return domain.Errorf(domain.CodeForbidden, "Authorization", "this needs the scope %s; the %s %q has %s only", needed, c.kind(), c.Name, grantList(c.Grants))
}

// grantsShown is how many grants an error names: the maximum that a key without patterns has.
const grantsShown = len(TenantScopes)

func grantList(grants Grants) string {
	if len(grants) == 0 {
		return "no scope"
	}
	texts := grants.Texts()
	if more := len(texts) - grantsShown; more > 0 {
		texts = slices.Concat(texts[:grantsShown], []string{fmt.Sprintf("%d more", more)})
	}
	return strings.Join(texts, ", ")
}
