package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/auth/oidc"
	"github.com/manifold-es/manifold/auth/oidc/oidctest"
	"github.com/manifold-es/manifold/domain"
)

// tokenRules are what the tokens of a world's provider may do: its claim roles gives grants, and groups roles of
// operators.
var tokenRules = map[string]auth.TokenRules{"company": {
	TenantClaim: "tenant",
	Grants: []auth.GrantRule{
		{Claim: auth.Claim{Name: "roles", Value: "all"}, Grants: auth.GrantsOf(auth.TenantScopes[:]...)},
		{Claim: auth.Claim{Name: "roles", Value: "ledger"}, Grants: auth.KeptGrants([]string{
			"!events:append:billing", "events:append:ledger", "events:read:ledger", "events:consume:ledger", "commands:send:ledger", "subscriptions:write:ledger",
		})},
	},
	Operators: []auth.RoleRule{
		{Claim: auth.Claim{Name: "groups", Value: "read"}, Role: auth.RoleRead},
		{Claim: auth.Claim{Name: "groups", Value: "operate"}, Role: auth.RoleOperate},
		{Claim: auth.Claim{Name: "groups", Value: "admin"}, Role: auth.RoleAdmin},
	},
}}

// verifier returns a running verifier of the provider's tokens. It tolerates hardly any difference between clocks.
func verifier(t testing.TB, provider *oidctest.Provider) *oidc.Verifier {
	t.Helper()
	v := oidc.New(oidc.Config{Issuers: []oidc.Issuer{{Name: "company", URL: provider.URL, Audience: []string{"manifold"}, Skew: time.Millisecond}}})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = v.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return v
}

// token returns a token of the world's provider for a tenant.
func (w *world) token(tenant string, roles ...any) string {
	w.t.Helper()
	return w.tokens.Token(oidctest.Claims{"tenant": tenant, "roles": list(roles), "name": "Ann"})
}

// Whatever takes a key takes a token.
func TestTokensWorkAsKeys(t *testing.T) {
	t.Parallel()
	w := setup{tokens: oidctest.Start(t)}.start(t)
	byKey := w.tenant("acme")
	a := &actor{w, w.token(byKey.tenantID, "all"), byKey.tenantID}
	a.append("order-1", 1)
	whoami := a.get("/v1/whoami").want(200)
	equal(t, "the tenant", whoami.at("tenant", "name"), "acme")
	equal(t, "the issuer", whoami.at("token", "issuer"), "company")
	equal(t, "the subject", whoami.at("token", "subject"), "subject-1")
	equal(t, "the name", whoami.at("token", "name"), "Ann")
	equal(t, "the scopes", len(whoami.at("scopes").(list)), len(auth.TenantScopes))
	if _, hasKey := whoami.json()["key"]; hasKey {
		t.Errorf("a token has a key: %s", whoami.body)
	}
	a.send("PUT", "/v1/projections/p", object{"on": object{"*": "doc"}}).want(201, 200)
	equal(t, "who created it", a.get("/v1/projections/p/versions").at("versions", 0, "by"), `token "Ann" ("subject-1" of company)`)

	ticket := a.post("/v1/tickets", nil).want(201).text("ticket")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow, err := web.Do((&actor{w, "", ""}).request("GET", "/v1/subscribe/$all?ticket="+ticket, nil).WithContext(ctx))
	must(t, err)
	defer follow.Body.Close()
	equal(t, "following with a ticket", follow.StatusCode, 200)

	for what, g := range map[string]*gatewayClient{
		"the header": a.gateway(), "a ticket": a.dialGateway("/v1/ws?ticket="+ticket, http.Header{}), "AUTH": (&actor{w, "", ""}).gateway(),
	} {
		if what == "AUTH" {
			g.ask("AUTH", object{"key": a.key})
		}
		g.ask("PUBLISH", object{"message": object{"topic": "order", "payload": 1}})
	}

	operator := (&actor{w, w.tokens.Token(oidctest.Claims{"groups": list{"operate"}}), ""}).get("/v1/whoami").want(200)
	equal(t, "the operator's role", operator.at("role"), "operate")
	equal(t, "the operator's scopes", operator.at("scopes"), list{"operator:operate", "operator:read"})
	equal(t, "the role of the operator's key", w.operator().get("/v1/whoami").at("role"), "admin")
	equal(t, "the scopes of the operator's key", w.operator().get("/v1/whoami").at("scopes"), list{"operator", "operator:operate", "operator:read"})
}

// Connections end when their token expires.
func TestConnectionsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	w := setup{tokens: oidctest.Start(t), change: func(c *api.Config) { c.Recheck = 20 * time.Millisecond }}.start(t)
	tenant := w.tenant("acme").tenantID
	expires := time.Now().Add(8 * time.Second).Truncate(time.Second)
	a := &actor{w, w.tokens.Token(oidctest.Claims{"tenant": tenant, "roles": list{"all"}, "exp": expires.Unix()}), tenant}
	ticket := a.post("/v1/tickets", nil).want(201).text("ticket")
	var open sync.WaitGroup
	for what, follower := range map[string]*actor{"the token": a, "its ticket": {w, "", tenant}} {
		path := "/v1/subscribe/$all"
		if follower.key == "" {
			path += "?ticket=" + ticket
		}
		response := follower.open("GET", path, nil)
		open.Go(func() {
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body)
			if time.Now().Before(expires) {
				t.Errorf("a follower with %s ended before its expiry", what)
			}
		})
	}
	socket := a.gateway()
	open.Go(func() {
		if reason := socket.ended(websocket.StatusPolicyViolation); time.Now().Before(expires) {
			t.Errorf("the gateway ended before the expiry with %s", reason)
		}
	})
	open.Wait()
	problem := a.get("/v1/whoami").wantProblem(401, domain.CodeUnauthenticated, "Authorization")
	if detail := problem["detail"].(string); !strings.Contains(detail, "expired at") {
		t.Errorf("after the expiry: %s", detail)
	}
	(&actor{w, "", tenant}).get("/v1/subscribe/$all?ticket="+ticket).wantProblem(401, domain.CodeUnauthenticated, "")
}

// Anybody may ask how to sign in. Issuers that have not answered are left out.
func TestSignIn(t *testing.T) {
	t.Parallel()
	provider, down := oidctest.Start(t), oidctest.Start(t)
	down.SetDown(true)
	v := oidc.New(oidc.Config{Issuers: []oidc.Issuer{
		{Name: "company", URL: provider.URL, Audience: []string{"manifold"}}, {Name: "down", URL: down.URL, Audience: []string{"manifold"}},
	}})
	v.Load(t.Context())
	w := newWorld(t, func(c *api.Config) {
		c.Tokens = v
		c.SignIns = []api.SignIn{
			{Name: "company", Issuer: provider.URL, ConsoleClient: "console", CLIClient: "cli", Parameters: map[string]string{"audience": "manifold"}},
			{Name: "down", Issuer: down.URL, ConsoleClient: "console"},
		}
	})
	nobody := &actor{w, "", ""}
	equal(t, "how to sign in", nobody.get("/v1/sign-in").want(200).at("issuers"), list{object{
		"name": "company", "title": "company", "issuer": provider.URL, "consoleClient": "console", "cliClient": "cli", "scopes": list{"openid"},
		"parameters": object{"audience": "manifold"}, "authorizationEndpoint": provider.URL + "/authorize", "tokenEndpoint": provider.URL + "/token",
		"deviceAuthorizationEndpoint": provider.URL + "/device",
	}})
	if policy := nobody.get("/console").header.Get("Content-Security-Policy"); !strings.Contains(policy, "connect-src 'self' "+provider.URL+";") {
		t.Errorf("the console's policy is %s", policy)
	}
}
