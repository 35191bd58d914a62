package registry_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// The live build of a tenant is the projection's own, unless the tenant has a row whose base is the projection's live
// build, or a row without a base.
func TestLiveBuildOfATenant(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	one, other := domain.NewTenantID(), domain.NewTenantID()
	tablestest.Append(t, s, one, tablestest.Counted("order-1", domain.None, 2))
	tablestest.Append(t, s, other, tablestest.Counted("order-1", domain.None, 2))
	for name, owner := range map[string]domain.TenantID{"shared": domain.Everyone, "own": one} {
		id := domain.ProjectionID{Owner: owner, Name: name}
		projection, _ := tablestest.Projection(t, s, id)
		admin := db.Pool(t, migrations.RoleApp, 1)
		put := func(tenant domain.TenantID, build int64, base any, definition any, heldBy any) {
			t.Helper()
			tx, err := admin.Begin(t.Context())
			tablestest.Must(t, err)
			_, err = tx.Exec(t.Context(), "set local manifold.tenant = '"+tenant.String()+"'")
			tablestest.Must(t, err)
			_, err = tx.Exec(t.Context(), `
				insert into manifold.tenant_builds as b (tenant_id, owner, name, build, base, definition, held_by)
				values ($1, $2, $3, $4, $5, $6, $7)
				on conflict (tenant_id, owner, name) do update set build = excluded.build, base = excluded.base,
				  definition = excluded.definition, held_by = excluded.held_by, updated_at = excluded.updated_at`,
				tenant, owner, name, build, base, definition, heldBy)
			tablestest.Must(t, err)
			tablestest.Must(t, tx.Commit(t.Context()))
		}
		check := func(when string, tenant domain.TenantID, build int64, heldBy string, inline bool) domain.Projection {
			t.Helper()
			live, err := s.LiveProjection(t.Context(), tenant, id)
			tablestest.Must(t, err)
			if live.Build != build || live.HeldBy != heldBy || live.ProjectionID != id || live.Version != 1 || live.Revision == 0 {
				t.Errorf("%s, %s: live is %+v; want build %d, held by %q", name, when, live, build, heldBy)
			}
			reading, err := s.ReadFor(t.Context(), tenant, id, domain.LogQuery{From: 1, Limit: 10})
			tablestest.Must(t, err)
			if !reading.Found || reading.Build != build || reading.Held != (heldBy != "") || reading.Inline != inline || reading.Head != 2 {
				t.Errorf("%s, %s: read is %+v; want build %d, held %v, inline %v", name, when, reading, build, heldBy != "", inline)
			}
			return live
		}
		check("with no row", one, projection.Build, "", false)
		put(one, 101, projection.Build, nil, nil)
		check("with one of this base", one, 101, "", false)
		if owner == domain.Everyone {
			check("with one of another tenant", other, projection.Build, "", false)
		}
		holder := worker()
		put(one, 101, projection.Build, nil, holder)
		check("held for the tenant", one, 101, holder, false)
		put(one, 101, projection.Build+7, nil, holder)
		check("with one of an earlier base", one, projection.Build, "", false)
		put(one, 102, nil, json.RawMessage(`{"name": "`+name+`", "database": "elsewhere"}`), nil)
		if live := check("inline", one, 102, "", true); live.Definition.Database != "elsewhere" || live.Definition.Key != "" || live.Definition.On != nil {
			t.Errorf("%s: the definition is %+v", name, live.Definition)
		}

		all, err := s.TenantBuilds(t.Context(), time.Time{})
		tablestest.Must(t, err)
		at := slices.IndexFunc(all, func(b domain.TenantBuild) bool { return b.ProjectionID == id && b.Tenant == one })
		if at < 0 || all[at].Build != 102 || all[at].Base != 0 || all[at].HeldBy != "" || all[at].Definition == nil || all[at].UpdatedAt.IsZero() {
			t.Errorf("%s: listed are %+v", name, all)
		}
		if later, err := s.TenantBuilds(t.Context(), time.Now().Add(time.Hour)); err != nil || len(later) != 0 {
			t.Errorf("%s: changed in an hour: %+v, %v", name, later, err)
		}
	}
	_, err := s.LiveProjection(t.Context(), other, domain.ProjectionID{Owner: one, Name: "own"})
	tablestest.WantCode(t, err, domain.CodeNotFound)
	if _, err := s.LiveProjection(t.Context(), domain.Everyone, domain.ProjectionID{Name: "shared"}); err != nil {
		t.Errorf("the operator's look at a shared projection: %v", err)
	}
}

// A hold for all tenants also holds a tenant's own build, which must not pass what the new build has caught up with.
func TestAHoldForAllHoldsTenantsBuilds(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
	projection, rebuild := tablestest.Projection(t, s, domain.ProjectionID{Owner: tenant, Name: "orders"})
	admin := db.Pool(t, migrations.RoleApp, 1)
	tx, err := admin.Begin(t.Context())
	tablestest.Must(t, err)
	_, err = tx.Exec(t.Context(), "set local manifold.tenant = '"+tenant.String()+"'")
	tablestest.Must(t, err)
	_, err = tx.Exec(t.Context(), "insert into manifold.tenant_builds (tenant_id, owner, name, build, base) values ($1, $1, 'orders', 77, $2)", tenant, projection.Build)
	tablestest.Must(t, err)
	tablestest.Must(t, tx.Commit(t.Context()))
	mine := tablestest.Claim(t, s, rebuild)
	tablestest.Must(t, s.HoldProjection(t.Context(), mine))
	live, err := s.LiveProjection(t.Context(), tenant, projection.ProjectionID)
	tablestest.Must(t, err)
	reading, err := s.ReadFor(t.Context(), tenant, projection.ProjectionID, domain.LogQuery{From: 1, Limit: 1})
	tablestest.Must(t, err)
	if live.Build != 77 || live.HeldBy != mine.ID.String() || reading.Build != 77 || !reading.Held {
		t.Errorf("live is %+v, read is %+v", live, reading)
	}
}
