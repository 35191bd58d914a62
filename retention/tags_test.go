package retention

import (
	"encoding/json"
	"strings"
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
	var lines string
	var rows int
	must(t, b.super.QueryRow(t.Context(), `select string_agg(g.tags, ''), (select count(*) from manifold.tagged_events where tenant_id = $1 and position = 3)
		from manifold.event_tags as g where g.tenant_id = $1`, tenant).Scan(&lines, &rows))
	if strings.TrimSpace(lines) != "a b" || rows != 2 {
		t.Errorf("the other category has the lines %q and %d rows", lines, rows)
	}
	must(t, b.super.QueryRow(t.Context(), "select count(*) from manifold.tagged_events where tenant_id = $1", tenant).Scan(&rows))
	if rows != 2 {
		t.Errorf("%d rows are left", rows)
	}
}
