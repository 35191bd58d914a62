package eventlog_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Whatever streams are asked for: the newest event of each that has one, in the order of the question, up to the bound.
func TestLatestAgainstTheWholeLog(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant, other := domain.NewTenantID(), domain.NewTenantID()
	newest := map[string]domain.Event{}
	for _, event := range mixedLog(t, s, tenant, 60) {
		newest[event.Stream] = event
	}
	tablestest.Append(t, s, other, tablestest.Counted("order-1", domain.None, 1))
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.StringMatching(`(order|invoice|user|none)-[0-7]`)
		streams := rapid.SliceOfNDistinct(name, 0, 20, rapid.ID[string]).Draw(r, "streams")
		maxBytes := rapid.SampledFrom([]int{0, 1, 300, 1000}).Draw(r, "bound")
		got, err := s.Latest(t.Context(), tenant, streams, maxBytes)
		if err != nil {
			r.Fatal(err)
		}
		bytes := 0
		for _, stream := range streams {
			want, there := newest[stream]
			if !there || maxBytes > 0 && bytes >= maxBytes {
				continue
			}
			bytes += len(want.Data) + len(want.Metadata)
			if len(got) == 0 || got[0].ID != want.ID || string(got[0].Data) != string(want.Data) || got[0].Version != want.Version {
				r.Fatalf("behind those before, %s has %+v, want %+v", stream, got, want)
			}
			got = got[1:]
		}
		if len(got) > 0 {
			r.Fatalf("there is more: %+v", got)
		}
	})
}

func TestEventByItsID(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	one, two := domain.NewTenantID(), domain.NewTenantID()
	a := tablestest.WithIDs(tablestest.Counted("order-1", domain.None, 2))
	tablestest.Append(t, s, one, a)
	want := tablestest.WholeLog(t, s, one)[1]
	got, err := s.Event(t.Context(), one, a.Streams[0].Events[1].ID)
	tablestest.Must(t, err)
	if got.ID != want.ID || got.Position != 2 || got.Stream != "order-1" || string(got.Data) != string(want.Data) {
		t.Errorf("the event is %+v, want %+v", got, want)
	}
	for tenant, id := range map[domain.TenantID]domain.EventID{one: domain.NewEventID(), two: want.ID} {
		_, err := s.Event(t.Context(), tenant, id)
		if e, ok := errors.AsType[*domain.Error](err); !ok || e.Code != domain.CodeNotFound {
			t.Errorf("an event that does not exist: %v", err)
		}
	}
}
