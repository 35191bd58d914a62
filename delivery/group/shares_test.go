package group

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// The plan asks the fewest partitions that have enough ready events, and those that are always asked. If all of them
// have too few, it asks all partitions.
func TestSharesOfPartitions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ready := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 40).Draw(t, "ready")
		seldom := rapid.Custom(func(t *rapid.T) bool { return rapid.IntRange(0, 5).Draw(t, "of 6") == 0 })
		mayRedeliver := rapid.SliceOfN(seldom, len(ready), len(ready)).Draw(t, "mayRedeliver")
		events := rapid.IntRange(1, 200).Draw(t, "events")
		each := max(1, events/len(ready))
		var always, others []*partition
		var partitions []*partition
		have := 0
		for i, n := range ready {
			p := &partition{number: i}
			p.readyEvents.Store(int64(n))
			p.mayRedeliver.Store(mayRedeliver[i])
			partitions = append(partitions, p)
			if i == 0 || mayRedeliver[i] {
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
			equal := len(shares) == min(events, len(partitions)) && shares[0]-shares[len(shares)-1] <= 1
			if !equal || !slices.Equal(order, partitions) {
				t.Errorf("too few are ready, and the shares are %v", shares)
			}
			return
		}
		slices.SortStableFunc(others, func(a, b *partition) int {
			return cmp.Compare(b.readyEvents.Load(), a.readyEvents.Load())
		})
		if !slices.Equal(order, slices.Concat(always, others)) {
			t.Error("the partitions are in another order")
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

// Events that a partition cannot deliver now are not ready. During a step with receives, none are.
func TestReadyEventsAreDeliverable(t *testing.T) {
	t.Parallel()
	retries := func(p *partition, number int64) {
		for position := range number {
			p.ledger.retries[position] = &Retry{}
		}
	}
	for name, c := range map[string]struct {
		change       func(*partition)
		ready        int64
		mayRedeliver bool
	}{
		"events in memory":  {func(*partition) {}, 5, false},
		"room for fewer":    {func(p *partition) { p.row.Group.MaxInFlight = 3 }, 3, false},
		"ordered by stream": {func(p *partition) { p.ledger.ordered = true }, 0, false},
		"delayed":           {func(p *partition) { p.delayedUntil = 1 }, 0, false},
		"unknown ledger":    {func(p *partition) { p.ledgerKnown, p.ledger = false, nil }, 0, false},
		"a retry":           {func(p *partition) { retries(p, 1) }, 5, true},
		"too many retries":  {func(p *partition) { retries(p, 20) }, 0, true},
	} {
		p := &partition{ledgerKnown: true, ledger: newLedger(0, false, 0)}
		p.row.Group.MaxInFlight, p.ahead.events = 10, make([]domain.Event, 5)
		c.change(p)
		p.countReady()
		if got := p.readyEvents.Load(); got != c.ready || p.mayRedeliver.Load() != c.mayRedeliver {
			t.Errorf("%s: %d ready events, want %d; may redeliver: %t", name, got, c.ready, p.mayRedeliver.Load())
		}
		p.receives, p.mayDeliver = []*receive{{}}, true
		if p.newStep(); p.readyEvents.Load() != 0 {
			t.Errorf("%s: %d ready events during a step with a receive", name, p.readyEvents.Load())
		}
	}
}
