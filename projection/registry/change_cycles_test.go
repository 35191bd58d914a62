package registry_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// publishing is a definition that publishes changes, and folds categories.
func publishing(name string, categories ...string) domain.Definition {
	return domain.Definition{Name: name, Database: "default", Source: domain.Source{Categories: categories}, On: map[string]string{"*": "doc"}, PublishChanges: true}
}

// define creates a projection.
func define(t *testing.T, s *tables.Tables, owner domain.TenantID, definition domain.Definition) error {
	t.Helper()
	build, err := s.NextBuild(t.Context(), owner)
	tablestest.Must(t, err)
	return s.CreateProjection(t.Context(), domain.Projection{ProjectionID: domain.ProjectionID{Owner: owner, Name: definition.Name}, Definition: definition, Build: build}, "test")
}

// A definition whose changes would form a cycle is refused, however it is deployed, and the error shows the cycle.
func TestCyclesOfChangesAreRefused(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx := t.Context()
	tenant, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	refused := func(err error, says string) {
		t.Helper()
		tablestest.WantCode(t, err, domain.CodeInvalidDefinition)
		if !strings.Contains(err.Error(), says) {
			t.Errorf("it says %q; want %q", err, says)
		}
	}
	tablestest.Must(t, define(t, s, tenant, publishing("a", "order", "c.changed")))
	tablestest.Must(t, define(t, s, tenant, publishing("b", "a.changed")))
	const round = `"c.changed" is folded by a, "a.changed" is folded by b, "b.changed" is folded by c`
	refused(define(t, s, tenant, publishing("c", "order", "b.changed")), round)
	tablestest.Must(t, define(t, s, other, publishing("c", "order", "b.changed"))) // another tenant's

	// What does not publish, or folds nothing of it, closes nothing.
	ends := publishing("c", "b.changed")
	ends.PublishChanges = false
	tablestest.Must(t, define(t, s, tenant, ends))
	id := domain.ProjectionID{Owner: tenant, Name: "c"}
	changed := ends
	changed.PublishChanges = true
	_, err := s.ChangeDefinition(ctx, id, ends, changed, "test")
	refused(err, round)
	refused(s.CreateRebuild(ctx, domain.Rebuild{ProjectionID: id, ID: domain.NewRebuildID(), Build: 90, Definition: changed}), round)
	some := changed
	some.On = map[string]string{"Else": "doc"}
	_, err = s.ChangeDefinition(ctx, id, ends, some, "test")
	tablestest.Must(t, err)

	// A rebuild that is under way counts, and one that is only tried does not.
	tablestest.Must(t, define(t, s, tenant, publishing("d", "order")))
	d := domain.ProjectionID{Owner: tenant, Name: "d"}
	tried := domain.Rebuild{ProjectionID: d, ID: domain.NewRebuildID(), Build: 91, Definition: publishing("d", "e.changed"), RebuildOptions: domain.RebuildOptions{DryRun: true}}
	tablestest.Must(t, s.CreateRebuild(ctx, tried))
	tablestest.Must(t, define(t, s, tenant, publishing("e", "d.changed")))
	tablestest.Must(t, s.DeleteProjection(ctx, domain.ProjectionID{Owner: tenant, Name: "e"}, tried.CreatedAt, "test"))
	ended(t, s, d)
	tried.ID, tried.DryRun = domain.NewRebuildID(), false
	tablestest.Must(t, s.CreateRebuild(ctx, tried))
	refused(define(t, s, tenant, publishing("e", "d.changed")), `"e.changed" is folded by d, "d.changed" is folded by e`)

	// A tenant's own are looked at with the shared ones, and the shared ones by themselves.
	tablestest.Must(t, define(t, s, tenant, publishing("own", "shared.changed")))
	tablestest.Must(t, define(t, s, domain.Everyone, publishing("shared", "own.changed")))
	refused(define(t, s, other, publishing("own", "shared.changed")), `"own.changed" is folded by shared, "shared.changed" is folded by own`)
	refused(define(t, s, domain.Everyone, publishing("second", "shared.changed", "second.changed")), `"second.changed" is folded by second`)
}

// If two processes deploy definitions at the same moment that together close a cycle, one of them is refused.
func TestConcurrentCyclesOfChangesAreRefused(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	second := tablestest.OpenAgain(t, db)
	for range 20 {
		tenant := tablestest.NewTenant(t, s)
		var both sync.WaitGroup
		var errs [2]error
		both.Go(func() { errs[0] = define(t, s, tenant, publishing("a", "b.changed")) })
		both.Go(func() { errs[1] = define(t, second, tenant, publishing("b", "a.changed")) })
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("put at once: %v, %v", errs[0], errs[1])
		}
		for _, err := range errs {
			if err != nil {
				tablestest.WantCode(t, err, domain.CodeInvalidDefinition)
			}
		}
	}
}
