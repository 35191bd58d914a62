package tail_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// A follower of rare tags that lags far behind reads by the index. It receives what the query matches, in order and
// once, after the gap that retention has left.
func TestFollowersReadRareTagsByTheIndex(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s := tablestest.OpenAgain(t, db)
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Bytes: 1})
	tenant := domain.NewTenantID()
	var log []domain.NewEvent
	for batch := range 4 {
		var events []domain.NewEvent
		for i := range 900 {
			n := 900*batch + i
			e := domain.NewEvent{ID: domain.NewEventID(), Type: []string{"A", "B"}[n%2], Data: []byte(`{"text": "some data of this event"}`), Tags: []string{fmt.Sprint("n:", n%3)}}
			if n%450 == 7 {
				e.Tags = append(e.Tags, "rare")
			}
			events = append(events, e)
		}
		log = append(log, events...)
		if _, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: fmt.Sprint("order-", batch), Expected: domain.Any, Events: events}}}); err != nil {
			t.Fatal(err)
		}
	}
	head := int64(len(log))
	const removed = 100
	db.Remove(t, tenant, "order", removed)
	for _, query := range []domain.Query{
		{{Tags: []string{"rare"}}}, {{Types: []string{"A"}, Tags: []string{"n:1"}}, {Tags: []string{"rare", "n:0"}}}, {{Tags: []string{"nowhere"}}},
	} {
		feed := follow(t, tails, tenant, domain.Follow{Selection: domain.Selection{Query: query}})
		var got, want []int64
		gaps := 0
		for {
			slice, err := feed.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if slice.Gap != nil {
				if gaps++; len(got) > 0 {
					t.Errorf("a gap comes after %d", got)
				}
			}
			for _, e := range slice.Entries {
				got = append(got, e.Event.Position)
			}
			if slice.CaughtUp {
				break
			}
		}
		for i, e := range log {
			if i >= removed && query.Matches(e.Type, e.Tags) {
				want = append(want, int64(i+1))
			}
		}
		if !slices.Equal(got, want) || gaps != 1 || feed.Position() != head {
			t.Errorf("%+v: %d come up to %d with %d gaps, want %d", query, got, feed.Position(), gaps, want)
		}
	}
}
