package api_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/members"
)

// An egress is removed when every live worker has removed the groups of its tenants.
func TestRemovedEgressIsListed(t *testing.T) {
	t.Parallel()
	var store *members.Postgres
	w := newWorld(t, func(c *api.Config) { store = c.Members })
	report := func(id domain.MemberID, reports ...domain.EgressReport) {
		t.Helper()
		member := members.Member{ID: id, Name: id.String(), Egresses: append([]domain.EgressReport{}, reports...)}
		_, err := store.Announce(t.Context(), member, time.Minute, nil)
		must(t, err)
	}
	one, two := domain.NewMemberID(), domain.NewMemberID()
	removing, removed := domain.EgressReport{Name: "orders", Remove: true}, domain.EgressReport{Name: "orders", Remove: true, Removed: true}
	want := func(what string, removing, removed bool) {
		t.Helper()
		egress := w.operator().get("/v1/admin/egresses").at("egresses").([]any)[0].(map[string]any)
		if egress["removing"] == true != removing || egress["removed"] == true != removed {
			t.Errorf("%s: %v", what, egress)
		}
	}
	report(one, removing)
	want("not finished", true, false)
	report(one, removed)
	want("finished", false, true)
	report(two)
	want("a worker does not have the entry", true, false)
	report(two, domain.EgressReport{Name: "orders", Kind: "nats"})
	want("a worker still publishes", false, false)
	report(two, removed)
	want("both have finished", false, true)
}
