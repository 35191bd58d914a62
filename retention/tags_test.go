package retention

import (
	"encoding/json"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// Events that are removed lose their tags in the same transaction.
func TestTagsGoWithTheirEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for _, stream := range []string{"order-1", "other-1", "order-2"} {
		_, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{
			{Type: "A", Data: json.RawMessage(`1`), Tags: []string{"a", "b"}}, {Type: "A", Data: json.RawMessage(`1`)},
		}}}})
		must(t, err)
	}
	b.put(t, tenant, everything("order"))
	runAll(t, b.retention(nil), tenant, "order")
	var lists, rows int
	must(t, b.super.QueryRow(t.Context(), `select (select count(*) from manifold.event_tags where tenant_id = $1 and position = 3),
		(select count(*) from manifold.tagged_events where tenant_id = $1 and position = 3)`, tenant).Scan(&lists, &rows))
	if lists != 1 || rows != 2 {
		t.Errorf("the other category has %d lists and %d rows", lists, rows)
	}
	must(t, b.super.QueryRow(t.Context(), `select (select count(*) from manifold.event_tags where tenant_id = $1),
		(select count(*) from manifold.tagged_events where tenant_id = $1)`, tenant).Scan(&lists, &rows))
	if lists != 1 || rows != 2 {
		t.Errorf("%d lists and %d rows are left", lists, rows)
	}
}
