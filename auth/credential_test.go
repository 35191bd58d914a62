package auth

import (
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestRequire(t *testing.T) {
	t.Parallel()
	grants, err := ParseGrants("scopes", []string{"events:append", "!events:read:billing.**", "events:read:**", "events:consume:order", "documents:read"})
	must(t, err)
	c := Credential{Name: "k", Grants: grants}
	read, appends, consume, admin := ScopeEventsRead, ScopeEventsAppend, ScopeEventsConsume, ScopeTenantAdmin
	for _, allowed := range []error{
		c.Require(appends), c.Require(read, appends), c.RequireSome(read), c.RequireSome(consume), c.RequireSome(admin, appends),
		c.RequireFor("billing", appends), c.RequireFor("order", read), c.RequireFor("order", consume), c.RequireFor("billing.eu", read, appends), c.RequireFor("", appends),
	} {
		must(t, allowed)
	}
	for _, refused := range []struct {
		err  error
		says string
	}{
		{c.Require(read), "the scope events:read for every category; the key \"k\" has events:append, !events:read:billing.**, events:read:**, events:consume:order, documents:read only"},
		{c.RequireFor("", read), "events:read for every category"},
		{c.Require(consume, admin), "events:consume or tenant:admin for every category"},
		{c.Require(admin), "the scope tenant:admin; "},
		{c.RequireSome(admin), "the scope tenant:admin; "},
		{c.RequireFor("billing", read), "events:read for the category billing; "},
		{c.RequireFor("billing.open.eu", read, consume), "events:read or events:consume for the category billing.open.eu; "},
		{c.RequireFor("order.eu", consume), "events:consume for the category order.eu; "},
		{c.RequireFor("order", ScopeOperator), "an operator's key"},
		{Credential{Operator: true, Grants: RoleAdmin.grants()}.RequireFor("order", read), "a tenant's key with the scope events:read for the category order"},
		{Credential{}.RequireSome(read), "has no scope only"},
	} {
		if code(refused.err) != domain.CodeForbidden || !strings.Contains(refused.err.Error(), refused.says) {
			t.Errorf("got %v; it should say %s", refused.err, refused.says)
		}
	}
	// An error stays readable if a key has many grants.
	many := make([]string, MaxGrants)
	for i := range many {
		many[i] = "events:read:a" + strings.Repeat("x", i)
	}
	grants, err = ParseGrants("scopes", many)
	must(t, err)
	shown := "events:read:a" + strings.Repeat("x", grantsShown-1) + fmt.Sprintf(", %d more only", MaxGrants-grantsShown)
	if text := (Credential{Grants: grants}).RequireFor("b", read).Error(); len(text) > 400 || !strings.Contains(text, shown) {
		t.Errorf("the refusal is %q", text)
	}
}

// A handler makes these checks on every append, so they must not allocate.
func TestChecksDoNotAllocate(t *testing.T) {
	c := Credential{Grants: GrantsOf(TenantScopes[:]...)}
	if n := testing.AllocsPerRun(100, func() {
		if c.RequireSome(ScopeEventsAppend) != nil || c.RequireFor("order", ScopeEventsAppend) != nil {
			t.Error("refused")
		}
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
