package group

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A receive asks the fewest partitions that have enough events ready, besides those that it always asks. If they have
// not enough, it asks all.
func TestSharesOfPartitions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ready := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 40).Draw(t, "ready")
		redelivers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) bool { return rapid.IntRange(0, 5).Draw(t, "of 6") == 0 }),
			len(ready), len(ready)).Draw(t, "redelivers")
		events := rapid.IntRange(1, 200).Draw(t, "events")
		each := max(1, events/len(ready))
		var always, others []*partition
		var partitions []*partition
		have := 0
		for i, n := range ready {
			p := &partition{number: i}
			p.readyEvents.Store(int64(n))
			p.redelivers.Store(redelivers[i])
			partitions = append(partitions, p)
			if i == 0 || redelivers[i] {
				always, have = append(always, p), have+each
			} else {
				others, have = append(others, p), have+n
			}
		}
		order, shares := planShares(events, slices.Clone(partitions))
		sum := 0
		for _, share := range shares {
			if sum += share; share < 1 {
				t.Fatalf("the shares are %v", shares)
			}
		}
		if sum != events {
			t.Errorf("the shares are %v, %d together; want %d", shares, sum, events)
		}
		if have < events {
			if !slices.Equal(order, partitions) || len(shares) != min(events, len(partitions)) || shares[0]-shares[len(shares)-1] > 1 {
				t.Errorf("too few are ready, and the shares are %v", shares)
			}
			return
		}
		slices.SortStableFunc(others, func(a, b *partition) int { return cmp.Compare(b.readyEvents.Load(), a.readyEvents.Load()) })
		if !slices.Equal(order, slices.Concat(always, others)) {
			t.Error("the order is another")
		}
		for i, share := range shares {
			most := each
			if i >= len(always) {
				most = int(order[i].readyEvents.Load())
			}
			if share != most && (share > most || i < len(shares)-1) {
				t.Errorf("share %d of %v; want %d", i, shares, most)
			}
		}
	})
}
