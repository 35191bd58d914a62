package tail_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Whatever retention removes, and whenever: a follower receives everything that is left, in order and once. It learns
// of a gap before it receives the events after a missing event.
func TestFollowersLearnOfGaps(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s := tablestest.OpenAgain(t, db)
	told := 0
	rapid.Check(t, func(rt *rapid.T) {
		tails := tail.New(tail.Config{Events: s.Log, Log: quiet, Bytes: rapid.SampledFrom([]int{1, 2000, 1 << 20}).Draw(rt, "bytes")})
		tenant := domain.NewTenantID()
		streams := []string{"order-1", "order-2", "user-1"}
		var log []domain.Event // as it was appended
		gone := map[int64]bool{}
		grow := func() {
			for range rapid.IntRange(1, 3).Draw(rt, "appends") {
				stream := rapid.SampledFrom(streams).Draw(rt, "stream")
				n := rapid.IntRange(1, 30).Draw(rt, "events")
				head := tablestest.AppendTo(t, s, tenant, stream, "Added", numbers(n)...)
				for i := range int64(n) {
					log = append(log, domain.Event{Stream: stream, Position: head - int64(n) + 1 + i})
				}
			}
			tails.Wake(domain.Head{Tenant: tenant, Position: int64(len(log))})
		}
		remove := func() {
			category := rapid.SampledFrom([]string{"order", "user"}).Draw(rt, "category")
			upTo := rapid.Int64Range(1, int64(len(log))).Draw(rt, "up to")
			keep := rapid.SliceOfN(rapid.Int64Range(1, int64(len(log))), 0, 3).Draw(rt, "keep")
			db.Remove(t, tenant, category, upTo, keep...)
			for _, e := range log {
				if e.Position <= upTo && domain.Category(e.Stream) == category && !slices.Contains(keep, e.Position) {
					gone[e.Position] = true
				}
			}
		}
		grow()
		if rapid.Bool().Draw(rt, "removed before") {
			remove()
		}
		selection := rapid.SampledFrom([]domain.Selection{{}, {Categories: []string{"order"}}, {Stream: "order-1"}, {Types: []string{"Added"}}, {Categories: []string{"user", "other"}}}).Draw(rt, "selection")
		wanted := func(e domain.Event) bool {
			return (selection.Stream == "" || selection.Stream == e.Stream) && (len(selection.Categories) == 0 || slices.Contains(selection.Categories, domain.Category(e.Stream)))
		}
		from := rapid.Int64Range(1, int64(len(log))).Draw(rt, "from")
		feed, err := tails.Follow(t.Context(), tenant, domain.Follow{Selection: selection, From: domain.From{Position: from}})
		if err != nil {
			rt.Fatal(err)
		}
		defer feed.Close()
		covered := map[int64]bool{} // by gaps that were reported
		expected := from            // everything before was delivered or reported as gone
		last := int64(0)            // the last one that was given
		next := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			slice, err := feed.Next(ctx)
			if err != nil {
				rt.Fatalf("at %d, of %d: %v", feed.Position(), len(log), err)
			}
			if slice.Gap != nil {
				told++
				if slice.Gap.From > slice.Gap.To || len(slice.Gap.Categories) == 0 || !slices.IsSorted(slice.Gap.Categories) {
					rt.Fatalf("the slice has gap %+v", slice.Gap)
				}
				for _, category := range slice.Gap.Categories {
					if len(selection.Categories) > 0 && !slices.Contains(selection.Categories, category) || selection.Stream != "" && category != "order" {
						rt.Fatalf("the slice has gap %+v; the selection is %+v", slice.Gap, selection)
					}
				}
				for p := slice.Gap.From; p <= slice.Gap.To; p++ {
					covered[p] = true
				}
			}
			for _, e := range slice.Entries {
				if e.Event.Position <= last || !wanted(e.Event) {
					rt.Fatalf("behind %d it is given %d of %s", last, e.Event.Position, e.Event.Stream)
				}
				for ; expected < e.Event.Position; expected++ {
					missed := log[expected-1]
					if wanted(missed) && !(gone[expected] && covered[expected]) {
						rt.Fatalf("it is given %d, and was never told of %d (gone: %v)", e.Event.Position, expected, gone[expected])
					}
				}
				last, expected = e.Event.Position, e.Event.Position+1
			}
		}
		// left is the last event that it is still to be given.
		left := func() int64 {
			for _, e := range slices.Backward(log) {
				if wanted(e) && !gone[e.Position] && e.Position >= from {
					return e.Position
				}
			}
			return 0
		}
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				grow()
			case 1:
				remove()
			case 2:
				if last < left() {
					next()
				}
			default:
				for last < left() {
					next()
				}
			}
		}
		for last < left() {
			next()
		}
	})
	if told == 0 {
		t.Error("no gap was reported")
	}
}
