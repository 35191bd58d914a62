package auth

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"pgregory.net/rapid"
)

func TestParseGrant(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Grant{
		"events:append":               {Scope: ScopeEventsAppend},
		"tenant:admin":                {Scope: ScopeTenantAdmin},
		"events:append:heartbeat.*":   {Scope: ScopeEventsAppend, Categories: "heartbeat.*"},
		"!events:read:billing.**":     {Scope: ScopeEventsRead, Categories: "billing.**", Deny: true},
		"subscriptions:write:order":   {Scope: ScopeSubscriptionsWrite, Categories: "order"},
		"events:consume:**":           {Scope: ScopeEventsConsume, Categories: "**"},
		"!subscriptions:write:*.test": {Scope: ScopeSubscriptionsWrite, Categories: "*.test", Deny: true},
	} {
		got, err := ParseGrant(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q gave %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                         "not a scope",
		"operator":                 "not a scope",
		"operator:":                "not a scope",
		"everything":               "not a scope",
		"events":                   "not a scope",
		"events:":                  "not a scope",
		"events:raed":              "not a scope",
		"events:*":                 "not a scope",
		"Events:read":              "not a scope",
		" events:read":             "not a scope",
		"!!events:read:a":          "not a scope",
		"events:read:":             "0 bytes",
		"events:read:a*":           "whole segments",
		"events:read:a:b":          "use letters",
		"documents:read:order":     "as a whole",
		"tenant:admin:**":          "as a whole",
		"!projections:write":       "as a whole",
		"!events:read":             "needs categories",
		strings.Repeat("x", 10000): "not a scope",
	} {
		if _, err := ParseGrant(text); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%.60q gave %v", text, err)
		}
	}
}

func TestParseGrants(t *testing.T) {
	t.Parallel()
	for _, texts := range [][]string{
		{"tenant:admin", "events:append"},
		{"events:append:heartbeat.*"},
		{"events:read:a.*", "events:read"},
		{"!events:read:billing.**", "events:read:**"},
		{"events:read:billing.open", "!events:read:billing.**", "events:read:*.*", "events:append"},
	} {
		got, err := ParseGrants("scopes", texts)
		if err != nil || !slices.Equal(got.Texts(), texts) {
			t.Errorf("%q gave %v, %v", texts, got, err)
		}
	}
	// The previous release reads this text as the scope itself, so it must not follow a denial of that scope.
	got, err := ParseGrants("scopes", []string{"!events:read:billing.**", "events:append", "events:read"})
	if want := []string{"!events:read:billing.**", "events:append", "events:read:**"}; err != nil || !slices.Equal(got.Texts(), want) {
		t.Errorf("gave %v, %v", got, err)
	}
	many := make([]string, MaxGrants+1)
	for where, texts := range map[string][]string{
		"scopes":    nil,
		"scopes ":   many,
		"scopes[0]": {"operator"},
		"scopes[1]": {"events:read", "events:read"},
		// One that decides everything hides those behind it.
		"scopes[1] ":   {"events:read", "events:read:billing.*"},
		"scopes[1]  ":  {"events:read:billing.**", "!events:read:billing.open"},
		"scopes[2]":    {"!events:read:a.*", "events:append", "!events:read:a.b", "events:read"},
		"scopes[2] ":   {"!events:read:a", "events:read", "events:read"},
		"scopes[2]  ":  {"events:append", "events:read:**", "!events:read:b"},
		"scopes[1]   ": {"!events:read:**", "events:read"},
		// A denial behind which nothing is granted.
		"scopes[0] ":    {"!events:read:billing.*"},
		"scopes[0]  ":   {"!events:read:billing.*", "events:append"},
		"scopes[1]    ": {"events:read:a", "!events:read:**"},
	} {
		_, err := ParseGrants("scopes", texts)
		problem, ok := errors.AsType[*domain.Error](err)
		if !ok || problem.Code != domain.CodeInvalidRequest || problem.Where != strings.TrimSpace(where) {
			t.Errorf("%v gave %v", texts, err)
		}
	}
}

// What another release has kept and this one cannot read allows nothing, and takes nothing away that should be.
func TestKeptGrantsFailClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kept  []string
		reads bool
	}{
		{[]string{"events:read"}, true},
		{[]string{"events:erase", "events:read"}, true},
		{[]string{"events:read:billing.*@eu", "events:read"}, true},
		{[]string{"!events:read@billing", "events:read"}, false},
		{[]string{"!anything", "events:read"}, false},
		{[]string{"events:read", "!anything"}, true},
		{[]string{"!events:read", "events:read"}, false},
		{[]string{"events:read:billing.*@eu"}, false},
		{[]string{"operator"}, false},
		{nil, false},
	} {
		grants := KeptGrants(c.kept)
		if !slices.Equal(grants.Texts(), c.kept) {
			t.Errorf("%q became %q", c.kept, grants.Texts())
		}
		for what, got := range map[string]bool{
			"one": grants.Allow(ScopeEventsRead, "billing"), "all": grants.AllowAll(ScopeEventsRead), "some": grants.AllowSome(ScopeEventsRead),
		} {
			if got != c.reads {
				t.Errorf("%q allows %s: %v", c.kept, what, got)
			}
		}
		if grants.AllowSome(ScopeOperator) || grants.AllowAll(ScopeOperator) || grants.Allow(ScopeOperator, "") {
			t.Errorf("%q makes an operator", c.kept)
		}
	}
}

// drawGrants gives lists that a key can have, and some that it cannot.
func drawGrants(t *rapid.T) []string {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		grant := Grant{Scope: rapid.SampledFrom(TenantScopes[:3]).Draw(t, "scope")}
		if grant.Scope.ByCategory() && rapid.IntRange(0, 3).Draw(t, "whole") > 0 {
			grant.Categories, grant.Deny = drawPattern(t, "categories"), rapid.Bool().Draw(t, "deny")
		}
		return grant.String()
	}), 1, 6).Draw(t, "grants")
}

// The first grant of a scope that matches decides, whatever is asked; and what is said of all and of some categories is
// so.
func TestTheFirstGrantDecides(t *testing.T) {
	t.Parallel()
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		texts, category := drawGrants(t), drawCategory(t)
		scope := rapid.SampledFrom(TenantScopes[:4]).Draw(t, "asked")
		want := false
		for _, text := range texts {
			bare, deny := strings.CutPrefix(text, "!")
			pattern, ok := strings.CutPrefix(bare, string(scope))
			if !ok || pattern != "" && !meant(strings.Split(pattern[1:], "."), strings.Split(category, ".")) {
				continue
			}
			want = !deny
			break
		}
		kept := KeptGrants(texts)
		if got := kept.Allow(scope, category); got != want {
			t.Fatalf("%q allows %s for %q: %v", texts, scope, category, got)
		}
		if kept.AllowAll(scope) && !want || want && !kept.AllowSome(scope) {
			t.Fatalf("%q: all %v, some %v, but %q: %v", texts, kept.AllowAll(scope), kept.AllowSome(scope), category, want)
		}
		parsed, err := ParseGrants("scopes", texts)
		if err != nil {
			return
		}
		accepted++
		if parsed.Allow(scope, category) != want || parsed.AllowAll(scope) != kept.AllowAll(scope) {
			t.Fatalf("%q became %q, which is something else", texts, parsed.Texts())
		}
		// The release before knew scopes only: none that it finds may be behind a denial.
		for i, text := range parsed.Texts() {
			if slices.Contains(TenantScopes[:], Scope(text)) && slices.ContainsFunc(parsed[:i], func(g Grant) bool { return g.Deny && g.Scope == Scope(text) }) {
				t.Fatalf("%q: the release before takes %s for everything", parsed.Texts(), text)
			}
		}
	})
	if accepted == 0 {
		t.Error("no list was taken")
	}
}

func FuzzParseGrant(f *testing.F) {
	for _, seed := range []string{"events:append", "!events:read:billing.**", "events:read:", "!!", "events:read:**.**", "subscriptions:write:*.a.**"} {
		f.Add(seed, "billing.open")
	}
	f.Fuzz(func(t *testing.T, text, category string) {
		grant, err := ParseGrant(text)
		if err != nil {
			if kept := KeptGrants([]string{text}); kept.AllowSome(Scope(text)) || kept.Texts()[0] != text {
				t.Fatalf("%q allows something, or was changed", text)
			}
			return
		}
		if grant.String() != text {
			t.Fatalf("%q became %q", text, grant)
		}
		_, pattern, limited := strings.Cut(strings.TrimPrefix(text, "!"), string(grant.Scope)+":")
		want := !limited || meant(strings.Split(pattern, "."), strings.Split(category, "."))
		if len(category) < 40 && strings.Count(pattern, "**") < 5 && grant.Categories.Matches(category) != want && !strings.Contains(category, "*") {
			t.Fatalf("%q matches %q: %v", text, category, !want)
		}
	})
}
