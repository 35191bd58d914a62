package tail

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// TestRingHoldsTheNewestEvents has a ring forget, and asks it from everywhere.
func TestRingHoldsTheNewestEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tails := New(Config{Bytes: rapid.IntRange(1, 20_000).Draw(t, "bytes")})
		r := newRing(&tails.share)
		first := rapid.Int64Range(0, 5).Draw(t, "floor")
		r.begin(first)
		var log []int64
		at := first
		for range rapid.IntRange(0, 20).Draw(t, "slices") {
			var events []domain.Event
			for range rapid.IntRange(0, 5).Draw(t, "events") {
				at += rapid.Int64Range(1, 3).Draw(t, "step") // retention may have removed some
				events = append(events, domain.Event{Position: at, Data: []byte(strings.Repeat("x", rapid.IntRange(0, 1000).Draw(t, "size")))})
				log = append(log, at)
			}
			r.append(events, at)
			if rapid.IntRange(0, 9).Draw(t, "forget") == 0 {
				r.forget()
			}
			floor, head := r.place()
			if head != at && len(log) > 0 {
				t.Fatalf("the head is %d; want %d", head, at)
			}
			kept := 0
			for _, e := range r.entries {
				kept += e.bytes
			}
			if int64(kept) != r.held.Load() || len(r.entries) > 1 && r.held.Load() > r.bound.Load() {
				t.Fatalf("%d bytes are held, %d counted; %d are allowed", kept, r.held.Load(), r.bound.Load())
			}
			after, most := rapid.Int64Range(0, at+3).Draw(t, "after"), rapid.IntRange(1, 10).Draw(t, "most")
			got := r.after(after, at, nil, most, rapid.IntRange(1, 10_000).Draw(t, "take bytes"))
			if got.missed != (after < floor) {
				t.Fatalf("behind %d it is said to have missed some: %t; it begins behind %d", after, got.missed, floor)
			}
			if got.missed {
				continue
			}
			var positions, want []int64
			for _, e := range got.entries {
				positions = append(positions, e.Event.Position)
			}
			for _, p := range log {
				if p > after && p <= got.upTo {
					want = append(want, p)
				}
			}
			if !slices.Equal(positions, want) || len(positions) > most {
				t.Fatalf("behind %d, at most %d, up to %d it gives %d; want %d", after, most, got.upTo, positions, want)
			}
			if all := got.upTo >= at; got.atHead != all || (got.news != nil) != all || !all && len(positions) == 0 {
				t.Fatalf("behind %d it gives %d, up to %d of %d: at the head %t", after, positions, got.upTo, at, got.atHead)
			}
		}
	})
}

func TestTailsShareTheMemory(t *testing.T) {
	t.Parallel()
	const bytes, tenants = 1 << 20, 100
	tails := New(Config{Bytes: bytes})
	fill := func(tail *tail) {
		for range 20 {
			_, head := tail.ring.place()
			tail.ring.append([]domain.Event{{Position: head + 1, Data: make([]byte, bytes/10)}}, head+1)
		}
	}
	var all []*tail
	held := func() (sum int64) {
		for _, tail := range all {
			sum += tail.ring.held.Load()
		}
		return sum
	}
	for range tenants {
		tail, err := tails.join(domain.NewTenantID())
		if err != nil {
			t.Fatal(err)
		}
		fill(tail)
		all = append(all, tail)
		// Each keeps its newest event, whatever its share is, and gives back only when that is half of what it was.
		if sum, most := held(), int64(2*fullTails*bytes+tenants*bytes/8); sum > most {
			t.Fatalf("%d tails hold %d bytes; at most %d are allowed", len(all), sum, most)
		}
	}
	for _, tail := range all[1:] {
		tails.leave(tail)
	}
	fill(all[0])
	if one := all[0].ring.held.Load(); one < bytes*8/10 {
		t.Errorf("the one that is left holds %d bytes", one)
	}
	tails.leave(all[0])
}
