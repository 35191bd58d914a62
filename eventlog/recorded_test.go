package eventlog_test

import (
	"slices"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// A removed event has the recorded time of the first event after it, and an event that does not exist yet has none.
func TestRecordedAt(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, tenant, other := t.Context(), tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	events := mixedLog(t, s, tenant, 10)
	mixedLog(t, s, other, 40)
	head := events[len(events)-1].Position
	if len(events) < 10 {
		t.Fatalf("there are only %d events", len(events))
	}
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(ctx, "delete from manifold.events where tenant_id = $1 and position between 2 and 4", [16]byte(tenant))
	tablestest.Must(t, err)
	got, err := s.RecordedAt(ctx, tenant, []int64{1, 3, head, head + 1, 3})
	tablestest.Must(t, err)
	if len(got) != 3 {
		t.Fatalf("it knows %v", got)
	}
	for position, first := range map[int64]int64{1: 1, 3: 5, head: head} {
		i := slices.IndexFunc(events, func(e domain.Event) bool { return e.Position == first })
		if !got[position].Equal(events[i].RecordedAt) {
			t.Errorf("event %d was recorded at %s; it says %s", first, events[i].RecordedAt, got[position])
		}
	}
}
