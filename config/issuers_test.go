package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/config"
)

const aTenant = "3f8a9a52-6a1f-4a3e-9a8e-0b6f1c2d3e4f"

func TestIssuers(t *testing.T) {
	t.Parallel()
	c, err := config.Load(write(t, "manifold.yaml", `
database: {url: postgres://db:5432/manifold}
issuers:
  company:
    issuer: https://id.example.com/realms/company
    audience: [manifold]
    algorithms: [ES256, EdDSA]
    clockSkew: 5s
    require: [{claim: email_verified, value: true}, {claim: azp, any: true}]
    tenantClaim: /organization/id
    tenants: {acme: `+aTenant+`}
    grants:
      - {claim: /realm_access/roles, value: shop, scopes: ['events:append:order', 'events:read']}
      - {scopes: ['documents:read']}
    operators: [{claim: groups, value: ops, role: operate}]
    signIn: {title: Company, consoleClient: console, cliClient: cli, scopes: [openid, offline_access], parameters: {audience: manifold}}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Issuer{
		Issuer: "https://id.example.com/realms/company", Audience: []string{"manifold"}, Algorithms: []string{"ES256", "EdDSA"}, ClockSkew: new(5 * time.Second),
		Require:     []config.Claim{{Claim: "email_verified", Value: "true"}, {Claim: "azp", Any: true}},
		TenantClaim: "/organization/id", Tenants: map[string]string{"acme": aTenant},
		Grants:    []config.ClaimScopes{{Claim: "/realm_access/roles", Value: "shop", Scopes: []string{"events:append:order", "events:read"}}, {Scopes: []string{"documents:read"}}},
		Operators: []config.ClaimRole{{Claim: "groups", Value: "ops", Role: "operate"}},
		SignIn:    config.SignIn{Title: "Company", ConsoleClient: "console", CLIClient: "cli", Scopes: []string{"openid", "offline_access"}, Parameters: map[string]string{"audience": "manifold"}},
	}
	if !reflect.DeepEqual(c.Issuers["company"], want) {
		t.Errorf("it holds %+v", c.Issuers)
	}
	if _, err := config.Load("", []string{url, `MANIFOLD_ISSUERS={"a": {issuer: "http://127.0.0.1:9000", audience: [m], operators: [{claim: groups, value: ops, role: admin}]}}`}); err != nil {
		t.Errorf("in a variable: %v", err)
	}
}

func TestIssuersThatCannotWork(t *testing.T) {
	t.Parallel()
	const good = `issuer: "https://id.example.com", audience: [m]`
	const tenant = `tenant: ` + aTenant + `, grants: [{scopes: ['events:read']}]`
	for issuers, want := range map[string]string{
		`a: {}`: `issuers.a.issuer: it is not a URL`,
		`a: {issuer: "http://id.example.com", audience: [m], ` + tenant + `}`:                        `issuers.a.issuer: it is not encrypted`,
		`a: {issuer: "https://id.example.com?a=b", audience: [m]}`:                                   `issuers.a.issuer: it has a query`,
		`a: {issuer: "https://id.example.com", ` + tenant + `}`:                                      `issuers.a.audience: missing`,
		`A: {` + good + `, ` + tenant + `}`:                                                          `issuers.A: `,
		`a: {` + good + `, algorithms: [none], ` + tenant + `}`:                                      `issuers.a.algorithms: "none" cannot be allowed; write some of RS256, `,
		`a: {` + good + `, algorithms: [HS256], ` + tenant + `}`:                                     `issuers.a.algorithms: "HS256" cannot be allowed`,
		`a: {` + good + `, clockSkew: 1h, ` + tenant + `}`:                                           `issuers.a.clockSkew: 1h0m0s is not between`,
		`a: {` + good + `, require: [{claim: x}], ` + tenant + `}`:                                   `issuers.a.require: the claim x needs a value, or any: true`,
		`a: {` + good + `, require: [{claim: x, value: null}], ` + tenant + `}`:                      `issuers.a.require: the claim x needs a value, or any: true`,
		`a: {` + good + `, require: [{claim: x, value: y, any: true}], ` + tenant + `}`:              `issuers.a.require: the claim x needs a value, or any: true`,
		`a: {` + good + `, tenant: ` + aTenant + `, grants: [{claim: r, scopes: [a]}]}`:              `issuers.a.grants: the claim r needs a value, or any: true`,
		`a: {` + good + `, tenant: ` + aTenant + `, grants: [{any: true, scopes: [a]}]}`:             `issuers.a.grants: any: true has no claim`,
		`a: {` + good + `, tenantClaim: t, tenants: {}, grants: [{scopes: [a]}]}`:                    `issuers.a.tenants: it is empty`,
		`a: {` + good + `, tenantClaim: t, tenants: {'': ` + aTenant + `}, grants: [{scopes: [a]}]}`: `issuers.a.tenants: a tenant has no value`,
		`a: {` + good + `, clockSkew: soon, ` + tenant + `}`:                                         `issuers.a.clockSkew: "soon" is not a duration`,
		`a: {` + good + `, require: [{value: x}], ` + tenant + `}`:                                   `issuers.a.require: a claim has no name`,
		`a: {` + good + `}`: `issuers.a.grants: missing: without grants or operators`,
		`a: {` + good + `, tenantClaim: t, operators: [{claim: g, value: v, role: read}]}`:       `issuers.a.grants: missing: its tenants`,
		`a: {` + good + `, grants: [{scopes: ['events:read']}]}`:                                 `issuers.a.tenantClaim: give the claim`,
		`a: {` + good + `, tenantClaim: t, ` + tenant + `}`:                                      `issuers.a.tenantClaim: give the claim`,
		`a: {` + good + `, tenant: acme, grants: [{scopes: ['events:read']}]}`:                   `issuers.a.tenant: "acme" is not a tenant's id`,
		`a: {` + good + `, tenantClaim: t, tenants: {x: ''}, grants: [{scopes: [a]}]}`:           `issuers.a.tenants.x: "" is not a tenant's id`,
		`a: {` + good + `, tenants: {x: ` + aTenant + `}, ` + tenant + `}`:                       `issuers.a.tenants: they are for the values of tenantClaim`,
		`a: {` + good + `, tenant: ` + aTenant + `, grants: [{value: x, scopes: [a]}]}`:          `issuers.a.grants: the value "x" has no claim`,
		`a: {` + good + `, operators: [{role: admin}]}`:                                          `issuers.a.operators: each needs a claim`,
		`a: {` + good + `, signIn: {title: x}, ` + tenant + `}`:                                  `issuers.a.signIn: no client can use it`,
		`a: {` + good + `, audiences: [x]}`:                                                      `there is no setting issuers.a.audiences`,
		`a: {` + good + `, ` + tenant + "}\n  b: {" + good + `, ` + tenant + `}`:                 `issuers.b.audience: "m" of the same issuer is also in issuers.a`,
		`a: {` + good + `, tenant: ` + aTenant + `, grants: [{claim: r, scope: [events:read]}]}`: `unknown field`,
	} {
		_, err := config.Load(write(t, "manifold.yaml", "database: {url: postgres://db:5432/manifold}\nissuers:\n  "+issuers+"\n"), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v\nwant %s", issuers, err, want)
		}
	}
}
