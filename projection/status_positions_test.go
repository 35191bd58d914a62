package projection_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// A checkpoint is not saved if no event was folded. A projection without events to fold after its checkpoint does not
// lag, however long the log continues with other events.
func TestPositionSkipsEventsOfOtherCategories(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	c := b.process(options{}).catalog // nobody folds
	definition := sums("sums")
	definition.Source = domain.Source{Categories: []string{"x"}}
	if _, err := c.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	position := func() int64 {
		t.Helper()
		all, err := c.Positions(t.Context(), tenant)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0].Checkpoint
	}
	others := b.append(t, tenant, "y-1", "Add", `{"k": "a", "n": 1}`)
	if got := position(); got != others {
		t.Errorf("it is at %d of %d, with nothing to fold", got, others)
	}
	b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	if got := position(); got != others {
		t.Errorf("it is at %d of %d, with one more event to fold", got, others)
	}
	b.append(t, tenant, "y-1", "Add", `{"k": "a", "n": 1}`)
	switch s, err := c.Status(t.Context(), tenant, "sums"); {
	case err != nil:
		t.Fatal(err)
	case s.State != projection.StateRunning || s.Checkpoint != position() || s.Head != others+2 || s.LagEvents != 1:
		t.Errorf("the position is %d, and the status %+v", position(), s)
	}
}
