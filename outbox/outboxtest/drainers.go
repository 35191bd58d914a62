package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/outbox"
)

// shortLease lets others take a drainer's rows while it still works on them, which is the worst case.
type shortLease struct{ outbox.Store }

func (s shortLease) Claim(ctx context.Context, limit int, _ time.Duration) (outbox.Claim, error) {
	return s.Store.Claim(ctx, limit, 3*time.Millisecond)
}

// Several drainers run at the same time. Their leases are far too short, they die, and their requests fail or lose
// their replies. Everything is published once, and each stream in the order in which it was added.
func testDrainers(t *testing.T, b *box) {
	const streams, each, drainers = 5, 30, 3
	service := newService(rand.New(rand.NewPCG(1, 2)), 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var working sync.WaitGroup
	everything := make(chan struct{})
	var once sync.Once
	for i := range drainers {
		d, err := outbox.New(outbox.Config{
			Store:   &dying{Store: shortLease{b.Store}, random: rand.New(rand.NewPCG(uint64(i), 3)), dies: 20},
			Publish: service.publish, Batch: 7,
			Observer: outbox.Observer{Published: func(int) {
				if service.published() == streams*each {
					once.Do(func() { close(everything) })
				}
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		working.Go(func() {
			for ctx.Err() == nil {
				if _, err := d.Drain(ctx); err != nil && !errors.Is(err, errLost) && !errors.Is(err, errDied) && ctx.Err() == nil {
					t.Errorf("a drainer fails: %v", err)
					return
				}
			}
		})
	}
	want := map[string][]string{}
	for n := range each {
		for s := range streams {
			b.add(fmt.Sprintf("%d:%d", s, n))
			stream := fmt.Sprintf("t-%d", s)
			want[stream] = append(want[stream], fmt.Sprint(n))
		}
	}
	select {
	case <-everything:
	case <-time.After(3 * patience):
		t.Errorf("only %d of %d are published", service.published(), streams*each)
	}
	cancel()
	working.Wait()
	got := service.streams()
	for _, stream := range slices.Sorted(maps.Keys(want)) {
		if !slices.Equal(got[stream], want[stream]) {
			t.Errorf("%s is published as %v, want %v", stream, got[stream], want[stream])
		}
	}
}

// Producers and drainers act in random order, with claims that overlap and are settled late, in part or never. Nothing
// is lost or duplicated, and each stream has the order in which its events were added.
func testRandom(t *testing.T, b *box) {
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		service := newService(random, 15)
		topic := "t" + fmt.Sprint(random.Uint64()) // the box still has the rows of other runs
		want := map[string][]string{}
		added := 0
		drainer := func(store outbox.Store) *outbox.Drainer {
			d, err := outbox.New(outbox.Config{Store: store, Publish: service.publish, Batch: 1 + random.IntN(6)})
			if err != nil {
				r.Fatal(err)
			}
			return d
		}
		drain := func(store outbox.Store) {
			if _, err := drainer(store).Drain(r.Context()); err != nil && !errors.Is(err, errLost) && !errors.Is(err, errDied) {
				r.Fatal(err)
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"add": func(r *rapid.T) {
				var events []outbox.Event
				for range rapid.IntRange(1, 5).Draw(r, "events") {
					key := rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(r, "key")
					event := outbox.Event{ID: outbox.NewID(), Topic: topic, Key: key, Payload: fmt.Append(nil, added)}
					stream := topic + "-" + key
					if key == "" {
						stream += event.ID
					}
					if rapid.IntRange(0, 9).Draw(r, "bad") == 0 {
						service.bad[event.ID] = 1
					}
					want[stream] = append(want[stream], fmt.Sprint(added))
					events = append(events, event)
					added++
				}
				if err := b.Add(r.Context(), events...); err != nil {
					r.Fatal(err)
				}
			},
			"drain":          func(*rapid.T) { drain(impatient{b.Store, 3 * time.Millisecond}) },
			"drain, and die": func(*rapid.T) { drain(&dying{Store: impatient{b.Store, time.Millisecond}, random: random, dies: 100}) },
			"drain between a claim": func(*rapid.T) {
				drain(overtaken{impatient{b.Store, time.Millisecond}, func() { drain(impatient{b.Store, time.Millisecond}) }})
			},
		})
		service.faults = 0
		for deadline := time.Now().Add(patience); service.published() < added; {
			drain(impatient{b.Store, time.Millisecond})
			if time.Now().After(deadline) {
				r.Fatalf("only %d of %d are published", service.published(), added)
			}
		}
		if got := service.streams(); !maps.EqualFunc(got, want, slices.Equal) {
			r.Fatalf("published are %v, want %v", got, want)
		}
		for {
			if lag, err := b.Store.Lag(r.Context()); err != nil {
				r.Fatal(err)
			} else if lag.Waiting == 0 {
				return
			}
			drain(impatient{b.Store, time.Millisecond})
		}
	})
}

// impatient is a store whose leases expire at once, and whose rows never rest for longer.
type impatient struct {
	outbox.Store
	lease time.Duration
}

func (i impatient) Claim(ctx context.Context, limit int, _ time.Duration) (outbox.Claim, error) {
	return i.Store.Claim(ctx, limit, i.lease)
}

func (i impatient) Settle(ctx context.Context, claim outbox.Claim, outcome outbox.Outcome, keep bool) error {
	for n := range outcome.Refused {
		outcome.Refused[n].Pause = i.lease
	}
	return i.Store.Settle(ctx, claim, outcome, keep)
}

// overtaken is a store whose drainer is overtaken by another between its claim and what it does with it.
type overtaken struct {
	outbox.Store
	other func()
}

func (o overtaken) Claim(ctx context.Context, limit int, lease time.Duration) (outbox.Claim, error) {
	claim, err := o.Store.Claim(ctx, limit, lease)
	o.other()
	return claim, err
}
