package retention

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func wantRefused(t *testing.T, err error, where string, says ...string) {
	t.Helper()
	e, ok := errors.AsType[*domain.Error](err)
	if !ok || e.Code != domain.CodeInvalidRequest || e.Where != where {
		t.Fatalf("%v; want it refused at %s", err, where)
	}
	for _, one := range says {
		if !strings.Contains(e.Message, one) {
			t.Errorf("it says %q; want %q in it", e.Message, one)
		}
	}
}

// A policy forces who is there. Who goes later stays in it, also where it is changed.
func TestForcedReadersMustExist(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant, ctx := b.tenant(t), t.Context()
	r := b.retention(nil)
	r.config.Service = func(group string) bool { return group == "egress.orders" }
	policy := func(force Force) Policy {
		return Policy{Category: "order", MaxCount: 2, Force: force}
	}
	put := func(force Force) error {
		_, _, err := r.Put(ctx, tenant, policy(force))
		_, tryErr := r.Preview(ctx, tenant, "order", new(policy(force)))
		if (err == nil) != (tryErr == nil) {
			t.Errorf("put: %v; tried: %v", err, tryErr)
		}
		return err
	}
	wantRefused(t, put(Force{Groups: []string{"mial"}}), "force.groups", `no group "mial"`)
	_, _, err := b.store.PutGroup(ctx, tenant, "mail", domain.GroupDefinition{From: "end", BatchSize: 1, MaxInFlight: 1, MaxAttempts: 1}, 1)
	must(t, err)
	wantRefused(t, put(Force{Groups: []string{"mail", "mial", "egress.order"}, Projections: []string{"sums"}}), "force", `no group "mial"`, `no group "egress.order"`, `no projection "sums"`)
	wantRefused(t, put(Force{Rebuilds: []string{"sums"}}), "force.rebuilds", `no projection "sums"`)
	b.exec(t, "insert into manifold.projections (tenant_id, name, definition, build) values ($1, 'sums', '{}', 1)", tenant)
	all := Force{Groups: []string{"mail", "egress.orders"}, Projections: []string{"sums"}, Rebuilds: []string{"sums"}}
	must(t, put(all))

	// They go; the policy stays, and may be changed.
	must(t, b.store.DeleteGroup(ctx, tenant, "mail"))
	b.exec(t, "delete from manifold.projections where tenant_id = $1", tenant)
	b.append(t, tenant, "order-1", 5)
	runAll(t, r, tenant, "order")
	wantLeft(t, b, tenant, "order", 4, 5)
	must(t, put(all))
	changed := policy(all)
	changed.MaxCount = 1
	_, _, err = r.Put(ctx, tenant, changed)
	must(t, err)
	// Nobody else is let in by that, and what was taken out is out.
	wantRefused(t, put(Force{Groups: []string{"sums"}}), "force.groups", `no group "sums"`)
	must(t, put(Force{Groups: []string{"egress.orders"}}))
	wantRefused(t, put(Force{Groups: []string{"mail"}}), "force.groups", `no group "mail"`)

	many := make([]string, MaxForced)
	for i := range many {
		many[i] = fmt.Sprintf("%s%d", strings.Repeat("x", 100), i)
	}
	err = put(Force{Groups: many})
	wantRefused(t, err, "force.groups", "and 90 more")
	if len(err.Error()) > 2000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}
