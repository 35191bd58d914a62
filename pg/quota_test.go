package pg_test

import (
	"fmt"
	"testing"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection/registry"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// A tenant keeps so many keys, projections and aggregates; one more is refused and leaves nothing, what is there can be
// changed, and other tenants do not notice. Groups, webhooks and retention policies have separate tests.
func TestQuotas(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	create := map[string]func(tenant domain.TenantID, n int) error{
		"keys": func(tenant domain.TenantID, n int) error {
			return s.CreateKey(t.Context(), tablestest.NewKey(tenant, fmt.Sprint("key ", n)))
		},
		"projections": func(tenant domain.TenantID, n int) error {
			id := domain.ProjectionID{Owner: tenant, Name: fmt.Sprint("p-", n)}
			return s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: domain.Definition{Name: id.Name}, Build: int64(n)}, "test")
		},
		"aggregates": func(tenant domain.TenantID, n int) error {
			return s.PutAggregate(t.Context(), tenant, aggregate.Definition{Category: fmt.Sprint("c", n)})
		},
	}
	for table, fill := range map[string]string{
		"keys":        `insert into manifold.keys (tenant_id, key_id, name, hash, scopes) select $1, gen_random_uuid(), 'k', decode(repeat('00', 32), 'hex'), '{}' from generate_series(2, $2::int) n`,
		"projections": `insert into manifold.projections (tenant_id, name, definition, build) select $1, 'made-' || n, '{}', n from generate_series(2, $2::int) n`,
		"aggregates":  `insert into manifold.aggregates (tenant_id, category, definition) select $1, 'made' || n, '{}' from generate_series(2, $2::int) n`,
	} {
		full, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
		most := map[string]int{"keys": auth.MaxKeys, "projections": registry.MaxProjections, "aggregates": aggregate.MaxAggregates}[table]
		if _, err := super.Exec(t.Context(), fill, full, most); err != nil {
			t.Fatal(err)
		}
		tablestest.Must(t, create[table](full, 1))
		tablestest.WantCode(t, create[table](full, 2), domain.CodeQuotaExceeded)
		tablestest.Must(t, create[table](other, 1))
		var there int
		tablestest.Must(t, super.QueryRow(t.Context(), "select count(*) from manifold."+table+" where tenant_id = $1", full).Scan(&there))
		if there != most {
			t.Errorf("%d %s are there; want %d", there, table, most)
		}
		if table == "aggregates" {
			tablestest.Must(t, create[table](full, 1)) // a change
		}
	}
}
