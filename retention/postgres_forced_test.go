package retention_test

import (
	"reflect"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/retention"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// What a policy forces is looked for among the tenant's own and what is shared; what was not made yet, and will be
// without anybody's doing, is there.
func TestMissingForced(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	tenant, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	for owner, name := range map[domain.TenantID]string{tenant: "own", other: "others", domain.Everyone: "shared"} {
		_, err := db.Pool(t, "postgres", 1).Exec(ctx, "insert into manifold.projections (tenant_id, name, definition, build) values ($1, $2, '{}', 1)", owner, name)
		tablestest.Must(t, err)
	}
	group := domain.GroupDefinition{Selection: domain.Selection{}, From: "end", BatchSize: 1, MaxInFlight: 1, MaxAttempts: 1}
	for owner, name := range map[domain.TenantID]string{tenant: "mail", other: "elsewhere"} {
		_, _, err := s.PutGroup(ctx, owner, name, group, 1)
		tablestest.Must(t, err)
	}
	_, _, err := s.PutGroup(ctx, tenant, "egress.made", group, 1)
	tablestest.Must(t, err)
	_, err = db.Pool(t, "postgres", 1).Exec(ctx, "insert into manifold.webhooks (tenant_id, name, definition, revision) values ($1, 'hook', '{}', 1)", tenant)
	tablestest.Must(t, err)
	missing, err := s.MissingForced(ctx, tenant, retention.Force{
		Groups: []string{"mail", "elsewhere", "webhook.hook", "replay.hook", "webhook.none", "changes.own", "changes.shared", "changes.others", "egress.made", "egress.none",
			"reactor.none", "hook", "own"},
		Projections: []string{"own", "shared", "others", "mail"},
		Rebuilds:    []string{"shared", "own", "none"},
	})
	want := retention.Force{
		Groups:      []string{"elsewhere", "webhook.none", "changes.others", "egress.none", "reactor.none", "hook", "own"},
		Projections: []string{"others", "mail"}, Rebuilds: []string{"none"},
	}
	if err != nil || !reflect.DeepEqual(missing, want) {
		t.Errorf("missing are %+v, %v; want %+v", missing, err, want)
	}
	if missing, err := s.MissingForced(ctx, tenant, retention.Force{}); err != nil || !reflect.DeepEqual(missing, retention.Force{}) {
		t.Errorf("of nothing %+v, %v are missing", missing, err)
	}
}
