package auth

import (
	"fmt"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// Grant allows or denies a key one scope. Its text is [!]scope[:pattern]:
//
//	events:append                 everywhere
//	events:append:heartbeat.*     with the events of some categories
//	!events:read:billing.**       not with those of some categories, whatever follows
type Grant struct {
	Scope      Scope
	Categories CategoryPattern // the categories it applies to; the zero value is every category
	Deny       bool
	unread     bool // written by a release with scopes or forms unknown to this one: Scope is the text
}

// MaxGrants limits the number of a key's grants.
const MaxGrants = 100

// ParseGrant parses a grant. Only scopes that concern events take a pattern. A denial requires one, because whatever is
// not granted is denied anyway. The error says what is wrong.
func ParseGrant(text string) (Grant, error) {
	var grant Grant
	rest, deny := strings.CutPrefix(text, "!")
	grant.Deny = deny
	resource, action, _ := strings.Cut(rest, ":")
	action, pattern, hasPattern := strings.Cut(action, ":")
	grant.Scope = Scope(resource + ":" + action)
	switch {
	case !grant.Scope.ofTenants() || !hasPattern && rest != string(grant.Scope):
		return Grant{}, fmt.Errorf("%q is not a scope; there are %s", domain.Clip(text, 60), scopeList(TenantScopes[:]))
	case (hasPattern || deny) && !grant.Scope.ByCategory():
		return Grant{}, fmt.Errorf("%s is granted as a whole, without ! and without categories; those are for %s", grant.Scope, scopeList(categoryScopes[:]))
	case deny && !hasPattern:
		return Grant{}, fmt.Errorf("%q needs categories, as in !%s:billing.**; to deny all, leave it out: only granted scopes are allowed", domain.Clip(text, 60), grant.Scope)
	case !hasPattern:
		return grant, nil
	}
	var err error
	if grant.Categories, err = ParseCategoryPattern(pattern); err != nil {
		return Grant{}, fmt.Errorf("the categories of %q: %w", domain.Clip(text, 60), err)
	}
	return grant, nil
}

// String returns the form that ParseGrant parses.
func (g Grant) String() string {
	if g.unread {
		return string(g.Scope)
	}
	text := string(g.Scope)
	if g.Deny {
		text = "!" + text
	}
	if g.Categories != "" {
		text += ":" + string(g.Categories)
	}
	return text
}

// Grants say what a key may do. They are ordered: the first Grant of a scope whose categories match the requested one
// decides. If none matches, the request is denied. Grants must not be changed. Methods may be called concurrently.
type Grants []Grant

// GrantsOf grants the given scopes for every category.
func GrantsOf(scopes ...Scope) Grants {
	grants := make(Grants, len(scopes))
	for i, scope := range scopes {
		grants[i] = Grant{Scope: scope}
	}
	return grants
}

// ParseGrants parses the grants of a tenant's new key: 1 to MaxGrants grants, each of which can decide something. A
// scope without categories that follows a denial of the same scope gets the pattern **, which has the same meaning. A
// release that knows neither denials nor patterns then allows nothing for such a text, rather than everything. The
// argument where names the list in the request. Errors are *domain.Error with domain.CodeInvalidRequest.
func ParseGrants(where string, texts []string) (Grants, error) {
	if len(texts) == 0 || len(texts) > MaxGrants {
		return nil, domain.Errorf(domain.CodeInvalidRequest, where, "there are %d scopes; a key needs 1 to %d of %s", len(texts), MaxGrants, scopeList(TenantScopes[:]))
	}
	grants := make(Grants, 0, len(texts))
	for i, text := range texts {
		place := fmt.Sprintf("%s[%d]", where, i)
		grant, err := ParseGrant(text)
		if err != nil {
			return nil, domain.Errorf(domain.CodeInvalidRequest, place, "%s", err)
		}
		for j, before := range grants {
			if before.Scope != grant.Scope {
				continue
			}
			if before.String() == text {
				return nil, domain.Errorf(domain.CodeInvalidRequest, place, "duplicate scope %s", text)
			}
			if before.Categories.Covers(grant.Categories) {
				return nil, domain.Errorf(domain.CodeInvalidRequest, place, "%s never decides anything: %s, at place %d, covers all its categories, and the first match decides; put it before that, or leave it out", text, before, j)
			}
			if before.Deny && grant.Categories == "" {
				grant.Categories = anySegments
			}
		}
		grants = append(grants, grant)
	}
	for i, grant := range grants {
		allowed := func(later Grant) bool { return later.Scope == grant.Scope && !later.Deny }
		if grant.Deny && !slices.ContainsFunc(grants[i:], allowed) {
			return nil, domain.Errorf(domain.CodeInvalidRequest, fmt.Sprintf("%s[%d]", where, i),
				"%s has no effect, because no later scope grants %s; put the granted scope after it, such as %s, or leave it out", grant, grant.Scope, grant.Scope)
		}
	}
	return grants, nil
}

// KeptGrants parses what Texts returned, possibly in another release. A text that this release cannot parse allows
// nothing. If it is a denial, no grant after it allows anything either, because the denial may apply to it.
func KeptGrants(texts []string) Grants {
	grants := make(Grants, len(texts))
	for i, text := range texts {
		grant, err := ParseGrant(text)
		if err != nil {
			grant = Grant{Scope: Scope(text), Deny: strings.HasPrefix(text, "!"), unread: true}
		}
		grants[i] = grant
	}
	return grants
}

// Texts returns the grants in their text form, in order.
func (g Grants) Texts() []string {
	texts := make([]string, len(g))
	for i, grant := range g {
		texts[i] = grant.String()
	}
	return texts
}

// closes reports whether no grant after this one allows anything.
func (g *Grant) closes() bool { return g.unread && g.Deny }

func (g *Grant) isOf(scope Scope) bool { return g.Scope == scope && !g.unread }

// Allow reports whether a scope is granted for a category. The empty category, which no event has, represents every
// possible category.
func (g Grants) Allow(scope Scope, category string) bool {
	if category == "" {
		return g.AllowAll(scope)
	}
	for i := range g {
		switch grant := &g[i]; {
		case grant.closes():
			return false
		case grant.isOf(scope) && grant.Categories.Matches(category):
			return !grant.Deny
		}
	}
	return false
}

// AllowAll reports whether a scope is granted for every possible category.
func (g Grants) AllowAll(scope Scope) bool {
	for i := range g {
		switch grant := &g[i]; {
		case grant.closes() || grant.isOf(scope) && grant.Deny:
			return false
		case grant.isOf(scope) && grant.Categories.all():
			return true
		}
	}
	return false
}

// AllowSome reports whether a scope is granted for at least some categories.
func (g Grants) AllowSome(scope Scope) bool {
	for i := range g {
		switch grant := &g[i]; {
		case grant.closes():
			return false
		case grant.isOf(scope) && !grant.Deny:
			return true
		}
	}
	return false
}
