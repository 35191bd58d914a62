package service

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/auth/oidc"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/domain"
)

// TokenVerifier returns the verifier for the tokens of the configured issuers, or nil if there are none.
func TokenVerifier(c config.Config, log *slog.Logger) *oidc.Verifier {
	if len(c.Issuers) == 0 {
		return nil
	}
	issuers := make([]oidc.Issuer, 0, len(c.Issuers))
	for _, name := range slices.Sorted(maps.Keys(c.Issuers)) {
		of := c.Issuers[name]
		issuers = append(issuers, oidc.Issuer{Name: name, URL: of.Issuer, Audience: of.Audience, Algorithms: of.Algorithms, Skew: skewOf(of)})
	}
	return oidc.New(oidc.Config{Issuers: issuers, Log: log})
}

// skewOf returns by how much an issuer's clock may differ. A configured zero means none at all, but zero in package
// oidc means the default.
func skewOf(of config.Issuer) time.Duration {
	if of.ClockSkew == nil {
		return 0
	}
	return max(*of.ClockSkew, time.Nanosecond)
}

// TokenRules returns what the tokens of each configured issuer may do, by its name.
func TokenRules(c config.Config) (map[string]auth.TokenRules, error) {
	all := make(map[string]auth.TokenRules, len(c.Issuers))
	for name, of := range c.Issuers {
		rules := auth.TokenRules{TenantClaim: of.TenantClaim}
		for _, claim := range of.Require {
			rules.Require = append(rules.Require, auth.Claim{Name: claim.Claim, Value: claim.Value})
		}
		for i, rule := range of.Grants {
			grants, err := auth.ParseGrants(fmt.Sprintf("issuers.%s.grants[%d].scopes", name, i), rule.Scopes)
			if err != nil {
				return nil, err
			}
			rules.Grants = append(rules.Grants, auth.GrantRule{Claim: auth.Claim{Name: rule.Claim, Value: rule.Value}, Grants: grants})
		}
		for i, rule := range of.Operators {
			role, err := auth.ParseRole(rule.Role)
			if err != nil {
				return nil, fmt.Errorf("issuers.%s.operators[%d].role: %w", name, i, err)
			}
			rules.Operators = append(rules.Operators, auth.RoleRule{Claim: auth.Claim{Name: rule.Claim, Value: rule.Value}, Role: role})
		}
		rules.Tenant, _ = domain.ParseTenantID(of.Tenant) // the configuration was checked
		for value, text := range of.Tenants {
			if rules.Tenants == nil {
				rules.Tenants = make(map[string]domain.TenantID, len(of.Tenants))
			}
			rules.Tenants[value], _ = domain.ParseTenantID(text)
		}
		all[name] = rules
	}
	return all, nil
}

// signIns returns how people sign in with the configured issuers, sorted by name.
func (p *Process) signIns() []api.SignIn {
	if p.tokens == nil {
		return nil
	}
	var all []api.SignIn
	for _, name := range slices.Sorted(maps.Keys(p.config.Issuers)) {
		of := p.config.Issuers[name]
		if of.SignIn.ConsoleClient != "" || of.SignIn.CLIClient != "" {
			all = append(all, api.SignIn{
				Name: name, Title: of.SignIn.Title, Issuer: of.Issuer, ConsoleClient: of.SignIn.ConsoleClient, CLIClient: of.SignIn.CLIClient,
				Scopes: of.SignIn.Scopes, Parameters: of.SignIn.Parameters,
			})
		}
	}
	return all
}

// issuerChecks returns the state of each issuer of tokens. The service works without it, with keys and the tokens of
// other issuers.
func (p *Process) issuerChecks() []api.Check {
	if p.tokens == nil {
		return nil
	}
	var checks []api.Check
	for _, state := range p.tokens.States() {
		check := api.Check{Name: "issuer: " + state.Name, Optional: true}
		switch { // its error may name internal addresses
		case state.Err != nil && state.LoadedAt.IsZero():
			check.Err = errors.New("its keys could not be loaded")
		case state.Err != nil:
			check.Err = fmt.Errorf("its keys are those of %s; they could not be loaded again", state.LoadedAt.UTC().Format(time.RFC3339))
		}
		checks = append(checks, check)
	}
	return checks
}

// issuerKeysAge yields how old the keys of each issuer are, or how long they have been missing.
func (p *Process) issuerKeysAge(yield func(issuer string, age time.Duration)) {
	if p.tokens == nil {
		return
	}
	for _, state := range p.tokens.States() {
		yield(state.Name, state.Age)
	}
}
