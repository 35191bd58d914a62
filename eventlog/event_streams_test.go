package eventlog_test

import (
	"maps"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestStreamsOf(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	want := make(map[domain.EventID]string)
	var ids []domain.EventID
	for _, stream := range []string{"order-1", "order-2", "order-1"} {
		id := domain.NewEventID()
		_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{
			{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{{ID: id, Type: "Happened", Data: []byte("1")}}},
		}})
		tablestest.Must(t, err)
		ids, want[id] = append(ids, id), stream
	}
	got, err := s.StreamsOf(t.Context(), tenant, append(ids, domain.NewEventID(), ids[0]))
	tablestest.Must(t, err)
	if !maps.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	for of, asked := range map[domain.TenantID][]domain.EventID{other: ids, tenant: nil} {
		if got, err := s.StreamsOf(t.Context(), of, asked); err != nil || len(got) > 0 {
			t.Errorf("got %v, %v", got, err)
		}
	}
}
