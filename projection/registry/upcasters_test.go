package registry_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/registry"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func upcaster(owner domain.TenantID, eventType string, version int64, expression string) domain.Upcaster {
	return domain.Upcaster{Owner: owner, Type: eventType, Version: version, Expression: expression, By: "key 1 (test)"}
}

// expressionsOf returns an owner's upcasters by name, and their revision.
func expressionsOf(t *testing.T, s *tables.Tables, owner domain.TenantID) (map[string]string, int64) {
	t.Helper()
	all, revision, err := s.Upcasters(t.Context(), owner)
	tablestest.Must(t, err)
	expressions := make(map[string]string, len(all))
	for _, one := range all {
		if one.Owner != owner || one.Revision < 1 || one.Revision > revision || one.UpdatedAt.IsZero() || one.By == "" {
			t.Errorf("an upcaster is %+v, all have revision %d", one, revision)
		}
		expressions[one.Name()] = one.Expression
	}
	return expressions, revision
}

func TestUpcastersBelongToTheirOwner(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx := t.Context()
	tenant, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	wantRevision := func(of domain.TenantID, own, shared int64) {
		t.Helper()
		revision, err := s.UpcasterRevision(ctx, of)
		tablestest.Must(t, err)
		if (revision != domain.UpcasterRevision{Own: own, Shared: shared}) {
			t.Errorf("the revision is %+v; want own %d, shared %d", revision, own, shared)
		}
	}
	wantRevision(tenant, 0, 0)
	kept, before, err := s.PutUpcaster(ctx, upcaster(tenant, "Placed", 1, "event.data"))
	tablestest.Must(t, err)
	if before != nil || kept.Revision != 1 || kept.UpdatedAt.IsZero() {
		t.Errorf("made as %+v, before it %+v", kept, before)
	}
	_, _, err = s.PutUpcaster(ctx, upcaster(domain.Everyone, "Placed", 1, "{}"))
	tablestest.Must(t, err)
	wantRevision(tenant, 1, 1)
	wantRevision(other, 0, 1)

	again, before, err := s.PutUpcaster(ctx, upcaster(tenant, "Placed", 1, "event.data"))
	tablestest.Must(t, err)
	if again != kept || before == nil || *before != kept {
		t.Errorf("a second time it returns %+v, before %+v; want %+v", again, before, kept)
	}
	wantRevision(tenant, 1, 1)
	changed, before, err := s.PutUpcaster(ctx, upcaster(tenant, "Placed", 1, "null"))
	tablestest.Must(t, err)
	if changed.Expression != "null" || changed.Revision != 2 || before == nil || *before != kept {
		t.Errorf("changed, it is %+v, before %+v", changed, before)
	}
	got, err := s.Upcaster(ctx, tenant, "Placed", 1)
	tablestest.Must(t, err)
	if got != changed {
		t.Errorf("read, it is %+v; want %+v", got, changed)
	}
	_, _, err = s.PutUpcaster(ctx, upcaster(tenant, "Placed", 2, "{}"))
	tablestest.Must(t, err)
	tablestest.Must(t, s.DeleteUpcaster(ctx, tenant, "Placed", 1))
	wantRevision(tenant, 4, 1)
	tablestest.WantCode(t, s.DeleteUpcaster(ctx, tenant, "Placed", 1), domain.CodeNotFound)
	_, err = s.Upcaster(ctx, tenant, "Placed", 1)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	wantRevision(tenant, 4, 1)
	// Made again, it is not what it was.
	back, _, err := s.PutUpcaster(ctx, upcaster(tenant, "Placed", 1, "event.data"))
	tablestest.Must(t, err)
	if back.Revision != 5 {
		t.Errorf("created again, it is %+v", back)
	}

	for owner, want := range map[domain.TenantID]string{
		tenant: "map[upcaster Placed/1:event.data upcaster Placed/2:{}]", other: "map[]", domain.Everyone: "map[upcaster Placed/1:{}]",
	} {
		got, _ := expressionsOf(t, s, owner)
		if fmt.Sprint(got) != want {
			t.Errorf("there are %v; want %s", got, want)
		}
		here, errHere := s.UpcasterRevision(ctx, owner)
		there, errThere := s.Registry.BySystem().UpcasterRevision(ctx, owner)
		listed, _, err := s.Registry.BySystem().Upcasters(ctx, owner)
		if errHere != nil || errThere != nil || err != nil || here != there || len(listed) != len(got) {
			t.Errorf("by the system login there are %v, %v, %v, %v", there, listed, errThere, err)
		}
	}
	_, err = s.Upcaster(ctx, other, "Placed", 1)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	tablestest.WantCode(t, s.DeleteUpcaster(ctx, other, "Placed", 1), domain.CodeNotFound)
	tablestest.Must(t, s.SetTenantState(ctx, tenant, domain.TenantDeleting))
	tablestest.Must(t, s.EraseTenant(ctx, tenant))
	wantRevision(tenant, 0, 1)
}

// If many processes change an owner's upcasters at the same time, each change gets a distinct revision, and none
// exceeds the limits.
func TestConcurrentChangesOfUpcasters(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	var all sync.WaitGroup
	var mu sync.Mutex
	revisions := map[int64]bool{}
	refused := 0
	for i := range registry.MaxUpcastersPerType + 6 {
		all.Go(func() {
			kept, _, err := s.PutUpcaster(t.Context(), upcaster(tenant, "Placed", int64(i+1), "{}"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				revisions[kept.Revision] = true
			case tablestest.CodeOf(err) == domain.CodeInvalidRequest:
				refused++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	kept, revision := expressionsOf(t, s, tenant)
	if len(revisions) != registry.MaxUpcastersPerType || len(kept) != registry.MaxUpcastersPerType || revision != registry.MaxUpcastersPerType || refused != 6 {
		t.Errorf("%d are kept, with %d revisions up to %d; %d were refused", len(kept), len(revisions), revision, refused)
	}
	// One that is there can be changed all the same.
	for name := range kept {
		var version int64
		_, err := fmt.Sscanf(name, "upcaster Placed/%d", &version)
		tablestest.Must(t, err)
		_, _, err = s.PutUpcaster(t.Context(), upcaster(tenant, "Placed", version, "null"))
		tablestest.Must(t, err)
		break
	}
}
