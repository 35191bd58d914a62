package systemtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// writesReferenceTables are the operations that write reference tables or lock rows of them. They administer.
var writesReferenceTables = []string{
	"createTenant", "changeTenant", "deleteTenant",
	"putPlan", "deletePlan", "putTenantLimits",
	"createKey", "createTenantKey", "rotateKey", "rotateTenantKey", // they lock the tenant's row
	"createProjection", "putProjection", "resetProjection", "deleteProjection",
	"startRebuild", "cancelRebuild", "approveRebuild", "pauseRebuild", "resumeRebuild", "rollbackRebuild",
	"putUpcaster", "deleteUpcaster",
	"rotateSigningKeys",
}

// In a sharded database, writing a reference table locks it for all tenants. No operation on events, documents, states
// or groups does that: each succeeds while only reads of those tables are possible.
func TestRequestsWriteNoReferenceTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	c := configuration(db)
	c.Admin.Listen = "none" // so that all operations are at one address
	operator := newUser(t, inside(t, c), operatorKey)
	operator.must(t, 201, nil, "PUT", "/v1/projections/inlined", []byte(`{"name":"inlined","mode":"inline","on":{"*":"{'by': event.data.by}"}}`))
	shareProjection(t, operator)
	all := endpoints(t)
	s := newSides(t, operator, "acmemark")[0]
	var tables []string
	for table, kind := range migrations.Tables {
		if kind == migrations.Reference {
			tables = append(tables, "manifold."+table)
		}
	}
	slices.Sort(tables) // also the order in which background work locks them
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, operation := range sequence {
		e, try := all[operation], tries[operation]
		key := s.user.key
		if e.forOperator() {
			key = operatorKey
		}
		call := func() {
			if a := s.call(t, e, try, key, s); !slices.Contains(try.status, a.status) {
				t.Errorf("%s: %s", operation, a)
			} else {
				s.keep(t, operation, a)
			}
		}
		if slices.Contains(writesReferenceTables, operation) {
			call()
			s.settle(t, all)
			continue
		}
		err := pgx.BeginFunc(t.Context(), super, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "lock table "+strings.Join(tables, ", ")+" in exclusive mode")
			if err == nil {
				call()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
