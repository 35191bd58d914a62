package service_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/auth/oidc/oidctest"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/service"
)

// A service starts while an issuer is down, reports that, and accepts keys and the tokens of other issuers.
func TestAnIssuerMayBeDownAtTheStart(t *testing.T) {
	t.Parallel()
	up, down := oidctest.Start(t), oidctest.Start(t)
	down.SetDown(true)
	c := configuration(pgtest.Database(t))
	issuer := func(url string) config.Issuer {
		return config.Issuer{Issuer: url, Audience: []string{"manifold"}, TenantClaim: "tenant", Grants: []config.ClaimScopes{{Claim: "roles", Value: "reader", Scopes: []string{"events:read"}}}}
	}
	c.Issuers = map[string]config.Issuer{"up": issuer(up.URL), "down": issuer(down.URL)}
	p := start(t, c)
	byKey, err := as(t, p, newTenant(t, p, "acme")).WhoamiWithResponse(t.Context())
	if err != nil || byKey.JSON200 == nil {
		t.Fatalf("with a key: %v, %s", err, byKey.Body)
	}
	claims := oidctest.Claims{"tenant": byKey.JSON200.Tenant.Id, "roles": []string{"reader"}}
	for provider, want := range map[*oidctest.Provider]int{up: http.StatusOK, down: http.StatusServiceUnavailable} {
		got, err := as(t, p, provider.Token(claims)).ReadAllWithResponse(t.Context(), &client.ReadAllParams{})
		if err != nil || got.StatusCode() != want {
			t.Errorf("a token of an issuer, for which %d is right: %v, %s", want, err, got.Body)
		}
	}
	ready, err := http.Get("http://" + p.Address() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Body.Close()
	said, err := io.ReadAll(ready.Body)
	if err != nil || ready.StatusCode != http.StatusOK || !strings.Contains(string(said), `{"name":"issuer: up","ok":true}`) ||
		!strings.Contains(string(said), `{"name":"issuer: down","ok":false,"message":"its keys could not be loaded"}`) || strings.Contains(string(said), down.URL) {
		t.Errorf("/readyz: %d %s, %v", ready.StatusCode, said, err)
	}
}

// What cannot work is refused before the process waits for a database.
func TestScopesAndRolesOfIssuersAreChecked(t *testing.T) {
	t.Parallel()
	tenant := "3f8a9a52-6a1f-4a3e-9a8e-0b6f1c2d3e4f"
	for want, of := range map[string]config.Issuer{
		`issuers.a.grants[0].scopes[0]: "everything" is not a scope`: {Tenant: tenant, Grants: []config.ClaimScopes{{Scopes: []string{"everything"}}}},
		`issuers.a.grants[0].scopes[0]: "operator" is not a scope`:   {Tenant: tenant, Grants: []config.ClaimScopes{{Scopes: []string{"operator"}}}},
		`issuers.a.operators[0].role: "root" is not a role`:          {Operators: []config.ClaimRole{{Claim: "groups", Value: "a", Role: "root"}}},
	} {
		if _, err := service.TokenRules(config.Config{Issuers: map[string]config.Issuer{"a": of}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
