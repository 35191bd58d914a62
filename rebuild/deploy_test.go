package rebuild_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// Of two people who change the same revision, the second is refused, whether or not the change needs a rebuild. A
// repeated request succeeds.
func TestDeployToARevision(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.work(t)
	tenant := v.tenant(t)
	deploy := func(revision int64, definition domain.Definition) (domain.Projection, *domain.Rebuild, error) {
		d, err := v.rebuilds.DeployTo(t.Context(), tenant, revision, definition, "test", false)
		return d.Projection, d.Rebuild, err
	}
	refused := func(what string, err error) {
		t.Helper()
		if !domain.IsCode(err, domain.CodePreconditionFailed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, _, err := deploy(7, sums(1))
	refused("a revision of no projection", err)
	p, _, err := deploy(0, sums(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := deploy(0, sums(1)); err != nil {
		t.Errorf("a repeated creation: %v", err)
	}
	_, _, err = deploy(0, sums(2))
	refused("another creation", err)

	checked := sums(1)
	checked.Assert = []string{"true"}
	changed, rebuild, err := deploy(p.Revision, checked)
	if err != nil {
		t.Fatal(err)
	}
	if rebuild != nil {
		v.ended(t, *rebuild)
		if changed, err = v.store.Projection(t.Context(), p.ProjectionID); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := deploy(p.Revision, checked); err != nil {
		t.Errorf("a repeated change: %v", err)
	}
	_, _, err = deploy(p.Revision, sums(2))
	refused("a second change", err)

	// The row is checked again when the rebuild is created: the projection may have changed since it was read.
	late := domain.Rebuild{ProjectionID: p.ProjectionID, ID: domain.NewRebuildID(), Build: 9999, Definition: sums(2)}
	refused("a rebuild from an old revision", v.store.CreateRebuildOf(t.Context(), late, p.Revision))
	if _, rebuild, err = deploy(changed.Revision, sums(2)); err != nil || rebuild == nil {
		t.Fatalf("a change with a rebuild: %v, %v", rebuild, err)
	}
	v.ended(t, *rebuild)
	_, _, err = deploy(changed.Revision, sums(3))
	refused("a change of the definition from before the rebuild", err)
}
