package projection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

func toldPlan(plan []projection.PlannedChange) string {
	var b strings.Builder
	for _, c := range plan {
		fmt.Fprintf(&b, "%s %s", c.Name, c.Action)
		if c.Counted {
			fmt.Fprintf(&b, " %d events", c.Events)
		}
		for _, f := range c.Changes {
			fmt.Fprintf(&b, " %s", f.Field)
		}
		for _, e := range c.Errors {
			fmt.Fprintf(&b, " !%s", e.Where)
		}
		b.WriteString("; ")
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.process(options{}).catalog
	one, two := b.tenant(t), b.tenant(t)
	for i := range 3 {
		b.append(t, one, fmt.Sprintf("order-%d", i), "OrderPlaced", `{}`)
	}
	b.append(t, one, "invoice-1", "Sent", `{}`)
	b.append(t, two, "order-1", "OrderPlaced", `{}`)
	same, parks, other, goes := orders, orders, orders, orders
	same.Name, parks.Name, other.Name, goes.Name = "a-same", "b-parks", "c-other", "d-goes"
	for _, owner := range []domain.TenantID{domain.Everyone, one} {
		for _, d := range []domain.Definition{same, parks, other, goes} {
			if owner != domain.Everyone {
				d.Name = "own-" + d.Name
			}
			if _, err := c.Create(t.Context(), owner, d, "test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.Create(t.Context(), two, same, "test"); !domain.IsCode(err, domain.CodeAlreadyExists) {
		t.Fatal(err)
	}
	parks.OnError = domain.OnErrorPark
	other.On = map[string]string{"*": "doc"}
	wrong := sums("e-wrong")
	wrong.On = map[string]string{"A": "dok", "B": "doc."}
	wrong.Database = "nowhere"
	fresh := sums("f-fresh")
	plan := func(owner domain.TenantID, remove bool, definitions ...domain.Definition) string {
		t.Helper()
		p, err := c.Plan(t.Context(), owner, definitions, remove, nil)
		if err != nil {
			t.Fatal(err)
		}
		return toldPlan(p)
	}
	definitions := []domain.Definition{fresh, other, parks, same, wrong}
	const shared = "a-same none; b-parks change onError; c-other rebuild 4 events on.* on.ItemAdded on.OrderCancelled on.OrderPlaced; "
	if got := plan(domain.Everyone, true, definitions...); !strings.HasPrefix(got, shared+"d-goes remove") || !strings.Contains(got, "e-wrong create") || !strings.Contains(got, "!database") || !strings.Contains(got, "f-fresh create") {
		t.Errorf("the operator's plan is %s", got)
	}
	if got := plan(domain.Everyone, false, definitions...); strings.Contains(got, "d-goes") {
		t.Errorf("without remove the plan is %s", got)
	}
	for i := range definitions {
		definitions[i].Name = "own-" + definitions[i].Name
	}
	if got := plan(one, true, definitions...); !strings.HasPrefix(got, "own-a-same none; own-b-parks change onError; own-c-other rebuild 3 events") || !strings.Contains(got, "own-d-goes remove") {
		t.Errorf("a tenant's plan is %s", got)
	}
	if got := plan(two, true, same); !strings.HasSuffix(got, " !name; ") {
		t.Errorf("the plan of another tenant with a shared one's name is %s", got)
	}
	if got := plan(two, true); got != "" {
		t.Errorf("another tenant's plan is %s", got)
	}
	for name, definitions := range map[string][]domain.Definition{"twice": {fresh, fresh}, "no name": {{}}, "too many": make([]domain.Definition, 1001)} {
		if _, err := c.Plan(t.Context(), one, definitions, false, nil); !domain.IsCode(err, domain.CodeInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Create(t.Context(), one, sums(folding.UsageName), "test"); !domain.IsCode(err, domain.CodeInvalidDefinition) {
		t.Errorf("a projection of the tenant's own named usage: %v", err)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.process(options{}).catalog
	one, two := b.tenant(t), b.tenant(t)
	told := func(tenant domain.TenantID, name string) string {
		t.Helper()
		versions, err := c.Versions(t.Context(), tenant, name)
		if domain.IsCode(err, domain.CodeNotFound) {
			return "none"
		}
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, v := range versions {
			fmt.Fprintf(&b, "%d %s by %s:", v.Version, v.Cause, v.By)
			for _, f := range v.Changes {
				b.WriteString(" " + f.Field)
			}
			b.WriteString("; ")
		}
		return b.String()
	}
	if got := told(one, "a"); got != "none" {
		t.Errorf("before there was any: %s", got)
	}
	first, second := sums("a"), sums("a")
	first.On, second.On = map[string]string{"A": "doc"}, map[string]string{"A": "doc", "B": "null"}
	must := func(_ domain.Projection, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Create(t.Context(), one, first, "key 1 (ann)"))
	if err := c.Delete(t.Context(), one, "a", "key 2 (bob)"); err != nil {
		t.Fatal(err)
	}
	const removed = "2 removed by key 2 (bob):; "
	if got := told(one, "a"); !strings.HasPrefix(got, removed+"1 created by key 1 (ann): ") {
		t.Errorf("of what was removed: %s", got)
	}
	if got := told(two, "a"); got != "none" {
		t.Errorf("another tenant gets %s", got)
	}
	must(c.Create(t.Context(), domain.Everyone, first, "operator"))
	for _, tenant := range []domain.TenantID{one, two, domain.Everyone} {
		if got := told(tenant, "a"); !strings.HasPrefix(got, "1 created by operator: ") {
			t.Errorf("of the shared projection, %s gets %s", tenant, got)
		}
	}
	if err := c.Delete(t.Context(), domain.Everyone, "a", "operator"); err != nil {
		t.Fatal(err)
	}
	if got := told(two, "a"); !strings.HasPrefix(got, "2 removed by operator:; ") {
		t.Errorf("of the shared one that was removed: %s", got)
	}
	must(c.Create(t.Context(), one, second, "key 3 (eve)"))
	if got := told(one, "a"); !strings.HasPrefix(got, "3 created by key 3 (eve): on.B; "+removed) {
		t.Errorf("created again: %s", got)
	}
	if p, err := c.Get(t.Context(), one, "a"); err != nil || p.Version != 3 {
		t.Errorf("the projection is %+v, %v", p, err)
	}
}
