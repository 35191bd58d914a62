package config

import (
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/auth/oidc"
	"github.com/manifold-es/manifold/domain"
)

// Issuer configures an OpenID Connect issuer whose tokens are accepted, and what they may do.
type Issuer struct {
	Issuer     string         `yaml:"issuer"` // its URL, exactly as in the claim iss
	Audience   []string       `yaml:"audience"`
	Algorithms []string       `yaml:"algorithms"` // none: RS256 and ES256
	ClockSkew  *time.Duration `yaml:"clockSkew"`  // nil: 30s

	Require     []Claim           `yaml:"require"`     // claims that every token must have
	Tenant      string            `yaml:"tenant"`      // the id of the tenant for which every token acts
	TenantClaim string            `yaml:"tenantClaim"` // the claim that names the tenant
	Tenants     map[string]string `yaml:"tenants"`     // ids by values of the claim; none: the values are ids
	Grants      []ClaimScopes     `yaml:"grants"`
	Operators   []ClaimRole       `yaml:"operators"`

	SignIn SignIn `yaml:"signIn"`
}

// Claim selects tokens by the value of a claim.
type Claim struct {
	Claim string `yaml:"claim"` // its name, or a JSON Pointer such as /realm_access/roles
	Value string `yaml:"value"` // or an element of a list
	Any   bool   `yaml:"any"`   // instead of Value: any except null, false and an empty text
}

// ClaimScopes gives the selected tokens scopes. Without a claim it selects all.
type ClaimScopes struct {
	Claim  string   `yaml:"claim"`
	Value  string   `yaml:"value"`
	Any    bool     `yaml:"any"`
	Scopes []string `yaml:"scopes"`
}

// ClaimRole makes the selected tokens those of operators.
type ClaimRole struct {
	Claim string `yaml:"claim"`
	Value string `yaml:"value"`
	Role  string `yaml:"role"` // read, operate or admin
}

// SignIn configures how people get a token of an issuer. All of it is public.
type SignIn struct {
	Title         string            `yaml:"title"`         // for people; empty: the issuer's name
	ConsoleClient string            `yaml:"consoleClient"` // the id of the console's client; empty: no button in the console
	CLIClient     string            `yaml:"cliClient"`     // the id of the client of `manifold login`; empty: none
	Scopes        []string          `yaml:"scopes"`        // of OAuth, to ask for; none: openid
	Parameters    map[string]string `yaml:"parameters"`    // to add to requests for a sign-in, such as audience
}

// maxClockSkew is the largest ClockSkew. An expired token works for as long.
const maxClockSkew = 5 * time.Minute

// check reports settings that cannot work, except scopes and roles. It passes refuse the setting's name within the
// issuer.
func (i Issuer) check(refuse func(setting, format string, args ...any)) {
	if err := oidc.CheckURL(i.Issuer); err != nil {
		refuse("issuer", "%s", err)
	} else if strings.Contains(i.Issuer, "?") {
		refuse("issuer", "it has a query; remove it")
	}
	if len(i.Audience) == 0 || slices.Contains(i.Audience, "") {
		refuse("audience", "missing; write what the issuer puts into the claim aud of tokens for this service")
	}
	for _, algorithm := range i.Algorithms {
		if !slices.Contains(oidc.Algorithms, algorithm) {
			refuse("algorithms", "%q cannot be allowed; write some of %s", algorithm, strings.Join(oidc.Algorithms, ", "))
		}
	}
	if skew := i.ClockSkew; skew != nil && (*skew < 0 || *skew > maxClockSkew) {
		refuse("clockSkew", "%s is not between 0s and %s", *skew, maxClockSkew)
	}
	for _, claim := range i.Require {
		if claim.Claim == "" {
			refuse("require", "a claim has no name")
		}
		claim.checkValue("require", refuse)
	}
	for _, rule := range i.Grants {
		switch {
		case rule.Claim != "":
			Claim{rule.Claim, rule.Value, rule.Any}.checkValue("grants", refuse)
		case rule.Value != "":
			refuse("grants", "the value %q has no claim", rule.Value)
		case rule.Any:
			refuse("grants", "any: true has no claim; remove it if the grant is for every token")
		}
	}
	for _, rule := range i.Operators {
		if rule.Claim == "" || rule.Value == "" {
			refuse("operators", "each needs a claim and its value: otherwise every token would be an operator's")
		}
	}
	i.checkTenants(refuse)
	if i.SignIn.ConsoleClient == "" && i.SignIn.CLIClient == "" && (i.SignIn.Title != "" || len(i.SignIn.Scopes) > 0 || len(i.SignIn.Parameters) > 0) {
		refuse("signIn", "no client can use it; add consoleClient, cliClient or both")
	}
}

// checkValue refuses a claim that has no value by mistake: it would match more tokens than intended.
func (c Claim) checkValue(setting string, refuse func(setting, format string, args ...any)) {
	if c.Claim != "" && (c.Value == "") != c.Any {
		refuse(setting, "the claim %s needs a value, or any: true for any value", c.Claim)
	}
}

func (i Issuer) checkTenants(refuse func(setting, format string, args ...any)) {
	switch {
	case len(i.Grants) == 0 && len(i.Operators) == 0:
		refuse("grants", "missing: without grants or operators, its tokens give access to nothing")
	case len(i.Grants) == 0 && (i.Tenant != "" || i.TenantClaim != ""):
		refuse("grants", "missing: its tenants' tokens give access to nothing")
	case len(i.Grants) > 0 && (i.Tenant == "") == (i.TenantClaim == ""):
		refuse("tenantClaim", "give the claim that names the tenant of a token, or one tenant for all")
	}
	switch _, nameless := i.Tenants[""]; {
	case i.Tenants != nil && len(i.Tenants) == 0:
		refuse("tenants", "it is empty; remove it if the values of the claim are ids")
	case nameless:
		refuse("tenants", "a tenant has no value of the claim")
	case len(i.Tenants) > 0 && i.TenantClaim == "":
		refuse("tenants", "they are for the values of tenantClaim, which is missing")
	}
	ids := map[string]string{"tenant": i.Tenant}
	for value, id := range i.Tenants {
		ids["tenants."+value] = id
	}
	for setting, text := range ids {
		if id, err := domain.ParseTenantID(text); text != "" || setting != "tenant" {
			if err != nil || id == domain.Everyone {
				refuse(setting, "%q is not a tenant's id", text)
			}
		}
	}
}

// checkIssuers reports issuers that cannot work.
func (c *Config) checkIssuers(refuse func(setting, format string, args ...any)) {
	audiences := make(map[[2]string]string) // names by issuers' URLs and audiences
	for name, issuer := range c.Issuers {
		if err := domain.CheckName("issuers", name); err != nil {
			refuse("issuers."+name, "%s", err)
		}
		issuer.check(func(setting, format string, args ...any) { refuse("issuers."+name+"."+setting, format, args...) })
		for _, audience := range issuer.Audience {
			at := [2]string{issuer.Issuer, audience}
			if other, taken := audiences[at]; taken {
				refuse("issuers."+max(name, other)+".audience", "%q of the same issuer is also in issuers.%s", audience, min(name, other))
			}
			audiences[at] = name
		}
	}
}
