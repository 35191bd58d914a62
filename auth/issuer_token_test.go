package auth

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/auth/oidc"
	"github.com/manifold-es/manifold/auth/oidc/oidctest"
	"github.com/manifold-es/manifold/domain"
)

// beginTokens is begin with an issuer, "company", whose tokens follow the rules.
func beginTokens(t *testing.T, rules func(tenant domain.TenantID) TokenRules) (*counted, *Keys, *clock, *oidctest.Provider, domain.TenantID) {
	t.Helper()
	provider := oidctest.Start(t)
	verifier := oidc.New(oidc.Config{Issuers: []oidc.Issuer{{Name: "company", URL: provider.URL, Audience: []string{"manifold"}}}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = verifier.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	s, k, at := begin(t, Config{Tokens: verifier, TTL: time.Hour})
	at.move(time.Duration(time.Now().UnixNano()))
	tenant := newTenant(t, s)
	k.config.TokenRules = map[string]TokenRules{"company": rules(tenant)}
	return s, k, at, provider, tenant
}

// usual are rules with tenants by their ids, roles and operators.
func usual(domain.TenantID) TokenRules {
	return TokenRules{
		Require:     []Claim{{Name: "email_verified", Value: "true"}},
		TenantClaim: "tenant",
		Grants: []GrantRule{
			{Claim{"/realm_access/roles", "limited"}, Grants{{Scope: ScopeEventsRead, Categories: "billing", Deny: true}, {Scope: ScopeEventsRead}}},
			{Claim{"/realm_access/roles", "reader"}, GrantsOf(ScopeEventsRead, ScopeDocumentsRead)},
		},
		Operators: []RoleRule{{Claim{"groups", "support"}, RoleRead}, {Claim{"groups", "ops"}, RoleAdmin}},
	}
}

func claimsOf(tenant domain.TenantID, more oidctest.Claims, roles ...string) oidctest.Claims {
	claims := oidctest.Claims{"tenant": tenant.String(), "email_verified": true, "realm_access": oidctest.Claims{"roles": roles}}
	for name, value := range more {
		claims[name] = value
	}
	return claims
}

func TestClaimsBecomeGrants(t *testing.T) {
	t.Parallel()
	_, k, _, provider, tenant := beginTokens(t, usual)
	got, err := k.Authenticate(t.Context(), provider.Token(claimsOf(tenant, oidctest.Claims{"preferred_username": "ann", "sub": "u1"}, "reader", "other")))
	must(t, err)
	if got.Tenant != tenant || got.Operator || got.Issuer != "company" || got.Subject != "u1" || got.Name != "ann" || !got.Known() || got.ExpiresAt.IsZero() {
		t.Errorf("got %+v", got)
	}
	must(t, got.RequireFor("billing", ScopeEventsRead))
	err = got.Require(ScopeEventsAppend)
	if code(err) != domain.CodeForbidden || !strings.Contains(err.Error(), `the token "ann" has`) {
		t.Errorf("a scope that it has not: %v", err)
	}
	if err := got.Require(ScopeOperatorRead, ScopeOperator); code(err) != domain.CodeForbidden {
		t.Errorf("what is the operator's: %v", err)
	}
	limited, err := k.Authenticate(t.Context(), provider.Token(claimsOf(tenant, nil, "reader", "limited")))
	must(t, err)
	if limited.RequireFor("billing", ScopeEventsRead) == nil || limited.RequireFor("order", ScopeEventsRead) != nil || limited.Name != "subject-1" {
		t.Errorf("of several matching rules the first decides: %+v", limited)
	}
}

func TestNamesOfTokensAreOneLineOfText(t *testing.T) {
	t.Parallel()
	_, k, _, provider, tenant := beginTokens(t, usual)
	for given, want := range map[string]string{"ann\x00": "ann", "ann\nbob\x1b[1m": "ann bob [1m", "\u202e\t": "subject-1", "Åsa Ö": "Åsa Ö"} {
		got, err := k.Authenticate(t.Context(), provider.Token(claimsOf(tenant, oidctest.Claims{"name": given}, "reader")))
		must(t, err)
		if got.Name != want {
			t.Errorf("%q becomes %q, want %q", given, got.Name, want)
		}
	}
}

func TestTokensNeedTheirClaims(t *testing.T) {
	t.Parallel()
	s, k, _, provider, tenant := beginTokens(t, usual)
	suspended := newTenant(t, s)
	must(t, s.SetTenantState(t.Context(), suspended, domain.TenantSuspended))
	for what, c := range map[string]struct {
		claims oidctest.Claims
		code   domain.Code
		reason string
	}{
		"a required claim is missing":      {claimsOf(tenant, oidctest.Claims{"email_verified": nil}, "reader"), domain.CodeForbidden, "email_verified"},
		"a required claim has another":     {claimsOf(tenant, oidctest.Claims{"email_verified": false}, "reader"), domain.CodeForbidden, "email_verified"},
		"no role":                          {claimsOf(tenant, nil), domain.CodeForbidden, "none of the claims that grant"},
		"an unknown role":                  {claimsOf(tenant, nil, "readers"), domain.CodeForbidden, "none of the claims that grant"},
		"no tenant":                        {claimsOf(tenant, oidctest.Claims{"tenant": nil}, "reader"), domain.CodeForbidden, "names no tenant"},
		"a tenant that is no id":           {claimsOf(tenant, oidctest.Claims{"tenant": "acme"}, "reader"), domain.CodeForbidden, "names no tenant"},
		"several tenants":                  {claimsOf(tenant, oidctest.Claims{"tenant": []string{tenant.String()}}, "reader"), domain.CodeForbidden, "names no tenant"},
		"everyone":                         {claimsOf(domain.Everyone, nil, "reader"), domain.CodeForbidden, "names no tenant"},
		"a tenant that does not exist":     {claimsOf(domain.NewTenantID(), nil, "reader"), domain.CodeForbidden, "does not exist"},
		"a suspended tenant":               {claimsOf(suspended, nil, "reader"), domain.CodeTenantSuspended, "suspended"},
		"a role in a name of its own":      {claimsOf(tenant, oidctest.Claims{"groups": "my ops"}), domain.CodeForbidden, "none of the claims that grant"},
		"an operator without the required": {oidctest.Claims{"groups": []string{"ops"}}, domain.CodeForbidden, "email_verified"},
	} {
		got, err := k.Authenticate(t.Context(), provider.Token(c.claims))
		if code(err) != c.code || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	// Without an issuer a token is just an unknown key.
	k.config.Tokens = nil
	if _, err := k.Authenticate(t.Context(), provider.Token(claimsOf(tenant, nil, "reader"))); code(err) != domain.CodeUnauthenticated {
		t.Errorf("without issuers: %v", err)
	}
}

func TestTenantsOfTokensMayBeMapped(t *testing.T) {
	t.Parallel()
	read := []GrantRule{{Grants: GrantsOf(ScopeEventsRead)}}
	_, k, _, provider, tenant := beginTokens(t, func(tenant domain.TenantID) TokenRules {
		return TokenRules{TenantClaim: "org", Tenants: map[string]domain.TenantID{"acme": tenant}, Grants: read}
	})
	got, err := k.Authenticate(t.Context(), provider.Token(oidctest.Claims{"org": "acme"}))
	must(t, err)
	if got.Tenant != tenant {
		t.Errorf("got %+v", got)
	}
	for _, org := range []any{"other", tenant.String(), nil} {
		if _, err := k.Authenticate(t.Context(), provider.Token(oidctest.Claims{"org": org})); code(err) != domain.CodeForbidden {
			t.Errorf("the claim %v: %v", org, err)
		}
	}
	k.config.TokenRules = map[string]TokenRules{"company": {Tenant: tenant, Grants: read}}
	got, err = k.Authenticate(t.Context(), provider.Token(nil))
	must(t, err)
	if got.Tenant != tenant {
		t.Errorf("with a fixed tenant: %+v", got)
	}
	k.config.TokenRules = map[string]TokenRules{"company": {Grants: read}}
	if _, err := k.Authenticate(t.Context(), provider.Token(nil)); code(err) != domain.CodeForbidden {
		t.Errorf("without any tenant: %v", err)
	}
}

func TestOperatorsHaveRoles(t *testing.T) {
	t.Parallel()
	s, k, _, provider, tenant := beginTokens(t, usual)
	for _, c := range []struct {
		groups []string
		role   Role
		may    []Scope
	}{
		{[]string{"support"}, RoleRead, []Scope{ScopeOperatorRead}},
		{[]string{"ops", "support"}, RoleAdmin, []Scope{ScopeOperatorRead, ScopeOperatorOperate, ScopeOperator}},
	} {
		got, err := k.Authenticate(t.Context(), provider.Token(claimsOf(tenant, oidctest.Claims{"groups": c.groups}, "reader")))
		must(t, err)
		if !got.Operator || got.Role != c.role || got.Tenant != domain.Everyone || len(got.Grants) != len(c.may) {
			t.Errorf("%v: %+v", c.groups, got)
		}
		for _, scope := range []Scope{ScopeOperatorRead, ScopeOperatorOperate, ScopeOperator, ScopeEventsRead} {
			allowed := got.Require(scope) == nil
			if want := slices.Contains(c.may, scope); allowed != want {
				t.Errorf("%v may %s: %t", c.groups, scope, allowed)
			}
		}
		if err := got.Require(ScopeOperator); c.role == RoleRead && !strings.Contains(err.Error(), "with the role admin") {
			t.Errorf("the refusal is %v", err)
		}
	}
	if n := s.asked.Load(); n != 0 {
		t.Errorf("operators' tokens caused %d look-ups", n)
	}
}

// A token's connections and tickets end when it expires, and when its tenant is suspended. Tenants are cached.
func TestTokensExpire(t *testing.T) {
	t.Parallel()
	s, k, at, provider, tenant := beginTokens(t, usual)
	ctx, cancel := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	ready := make(chan struct{}, 10)
	listening.Go(func() {
		_ = s.ListenKeys(ctx, func(tenant domain.TenantID) {
			k.Forget(tenant)
			if tenant == domain.Everyone {
				ready <- struct{}{}
			}
		})
	})
	<-ready
	token := provider.Token(claimsOf(tenant, oidctest.Claims{"name": "Ann"}, "limited"))
	holder, err := k.Authenticate(t.Context(), token)
	must(t, err)
	ticket := newTicket(t, s, holder, TicketLife)
	byTicket, err := k.AuthenticateTicket(t.Context(), ticket)
	must(t, err)
	if byTicket.Tenant != tenant || byTicket.Subject != holder.Subject || byTicket.Issuer != "company" || byTicket.Name != "Ann" || !byTicket.ExpiresAt.Equal(holder.ExpiresAt) ||
		byTicket.RequireFor("billing", ScopeEventsRead) == nil || byTicket.RequireFor("order", ScopeEventsRead) != nil {
		t.Errorf("the ticket gives %+v, and the token %+v", byTicket, holder)
	}
	tries := map[string]func() (Credential, error){
		"the token":  func() (Credential, error) { return k.Authenticate(t.Context(), token) },
		"a refresh":  func() (Credential, error) { return k.Refresh(t.Context(), holder) },
		"its ticket": func() (Credential, error) { return k.AuthenticateTicket(t.Context(), ticket) },
	}
	want := func(when string, want domain.Code) {
		t.Helper()
		for what, try := range tries {
			if _, err := try(); code(err) != want {
				t.Errorf("%s: %s: %v", when, what, err)
			}
		}
	}
	want("at first", "")
	must(t, s.SetTenantState(t.Context(), tenant, domain.TenantSuspended))
	want("while the tenant is suspended", domain.CodeTenantSuspended)
	must(t, s.SetTenantState(t.Context(), tenant, domain.TenantActive))
	want("when it is active again", "")
	at.since.Store(holder.ExpiresAt.UnixNano())
	delete(tries, "the token") // its verifier has another clock
	s.network.Cut()
	if _, err := k.Refresh(t.Context(), holder); code(err) != domain.CodeUnauthenticated || !strings.Contains(err.Error(), "this token expired") {
		t.Errorf("a refresh after the expiry, while the database is away: %v", err)
	}
}
