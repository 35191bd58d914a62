package auth

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"github.com/manifold-es/manifold/auth/oidc"
	"github.com/manifold-es/manifold/domain"
)

// TokenRules say what the tokens of an issuer may do. A token is an operator's if it matches one of Operators; it then
// has the highest of their roles, and acts for no tenant. Any other token acts for one tenant, with the grants of every
// GrantRule that it matches, in their order.
type TokenRules struct {
	Require     []Claim                    // every token must match all of them
	Tenant      domain.TenantID            // for which all tokens act; domain.Everyone: TenantClaim says
	TenantClaim string                     // the claim that names the tenant: by its id, or by a key of Tenants
	Tenants     map[string]domain.TenantID // by values of TenantClaim; nil: the values are ids
	Grants      []GrantRule
	Operators   []RoleRule
}

// Claim matches tokens by the value of a claim, as oidc.Claims.Has does. The zero value matches every token.
type Claim struct{ Name, Value string }

// GrantRule gives grants to the tokens that match its Claim.
type GrantRule struct {
	Claim  Claim
	Grants Grants
}

// RoleRule makes operators of the tokens that match its Claim.
type RoleRule struct {
	Claim Claim
	Role  Role
}

func (c Claim) matches(claims oidc.Claims) bool { return c == Claim{} || claims.Has(c.Name, c.Value) }

// maxNameBytes limits the name that a token gives its holder.
const maxNameBytes = 200

// nameOf returns what people call the holder of a token, on one line without control characters.
func nameOf(token oidc.Token) string {
	for _, claim := range []string{"preferred_username", "email", "name"} {
		text, _ := token.Claims.Text(claim)
		if name := strings.TrimSpace(strings.Map(printable, text)); name != "" {
			return domain.Clip(name, maxNameBytes)
		}
	}
	return token.Subject
}

// printable replaces characters that logs, terminals or PostgreSQL do not take as text.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

// authenticateToken returns the credential of an issuer's token.
func (k *Keys) authenticateToken(ctx context.Context, text string) (Credential, error) {
	token, err := k.config.Tokens.Verify(ctx, text)
	if err != nil {
		return Credential{}, err
	}
	credential, err := k.config.TokenRules[token.Issuer].credential(token)
	if err != nil {
		return Credential{}, err
	}
	return k.refreshToken(ctx, credential)
}

// refreshToken returns a token's credential, if its tenant may send requests.
func (k *Keys) refreshToken(ctx context.Context, of Credential) (Credential, error) {
	if of.Operator {
		return of, nil
	}
	found, err := k.find(ctx, keyName{tenant: of.Tenant})
	if err == nil && !found.found {
		err = domain.Errorf(domain.CodeForbidden, "Authorization", "this token is for the tenant %s, which does not exist", of.Tenant)
	}
	if err == nil {
		err = checkState(found.tenant, "token")
	}
	if err != nil {
		return Credential{}, err
	}
	return of, nil
}

// credential returns what a verified token may do, or domain.CodeForbidden if that is nothing.
func (r TokenRules) credential(token oidc.Token) (Credential, error) {
	for _, claim := range r.Require {
		if !claim.matches(token.Claims) {
			return Credential{}, domain.Errorf(domain.CodeForbidden, "Authorization", "this token lacks the claim %s with the value that the service requires; ask the operator", claim.Name)
		}
	}
	credential := Credential{}
	for _, rule := range r.Operators {
		if rule.Claim.matches(token.Claims) && roleRank(rule.Role) > roleRank(credential.Role) {
			credential = operatorCredential("", rule.Role)
		}
	}
	credential.Issuer, credential.Subject, credential.Name, credential.ExpiresAt = token.Issuer, token.Subject, nameOf(token), token.ExpiresAt
	if credential.Operator {
		return credential, nil
	}
	for _, rule := range r.Grants {
		if rule.Claim.matches(token.Claims) {
			credential.Grants = slices.Concat(credential.Grants, rule.Grants)
		}
	}
	if len(credential.Grants) == 0 {
		return Credential{}, domain.Errorf(domain.CodeForbidden, "Authorization", "this token has none of the claims that grant something here; ask the operator which roles are mapped")
	}
	var err error
	credential.Tenant, err = r.tenantOf(token.Claims)
	return credential, err
}

// tenantOf returns the tenant that a token names.
func (r TokenRules) tenantOf(claims oidc.Claims) (domain.TenantID, error) {
	if r.Tenant != domain.Everyone {
		return r.Tenant, nil
	}
	value, _ := claims.Text(r.TenantClaim)
	tenant, known := r.Tenants[value]
	if r.Tenants == nil {
		id, err := domain.ParseTenantID(value)
		tenant, known = id, err == nil
	}
	switch {
	case r.TenantClaim == "":
		return tenant, domain.Errorf(domain.CodeForbidden, "Authorization", "this token is not an operator's, and its issuer has no tenants here")
	case !known || tenant == domain.Everyone:
		return tenant, domain.Errorf(domain.CodeForbidden, "Authorization", "this token names no tenant: its claim %s is %q", r.TenantClaim, domain.Clip(value, 60))
	}
	return tenant, nil
}
