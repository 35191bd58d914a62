package tail_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// encode writes about what a frame has.
func encode(b []byte, event *domain.Event) []byte {
	b = append(b, `{"event":{"stream":"`...)
	b = append(b, event.Stream...)
	b = append(b, `","position":`...)
	b = strconv.AppendInt(b, event.Position, 10)
	b = append(b, `,"data":`...)
	b = append(b, event.Data...)
	b = event.RecordedAt.AppendFormat(b, time.RFC3339Nano)
	return append(b, "}}\n"...)
}

// fill appends so many events of some 200 bytes to one tenant's log.
func fill(b *testing.B, s *tables.Tables, tenant domain.TenantID, events int) {
	b.Helper()
	data := fmt.Sprintf(`{"text": %q}`, strings.Repeat("x", 180))
	for at := 0; at < events; at += 1000 {
		tablestest.AppendTo(b, s, tenant, fmt.Sprintf("order-%d", at/1000%100), "Added", slices.Repeat([]string{data}, min(1000, events-at))...)
	}
}

// BenchmarkCatchUp has one follower read from the start of a log of 200,000 events to its head.
func BenchmarkCatchUp(b *testing.B) {
	const events = 200_000
	s := tablestest.OpenAgain(b, pgtest.Database(b))
	tenant := domain.NewTenantID()
	fill(b, s, tenant, events)
	for name, selection := range map[string]domain.Selection{
		"everything": {}, "category": {Categories: []string{"order"}}, "filter": {Filter: `event.data.text != ""`}, "stream": {Stream: "order-7"},
	} {
		b.Run(name, func(b *testing.B) {
			delivered := 0
			for b.Loop() {
				tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
				feed, err := tails.Follow(b.Context(), tenant, domain.Follow{Selection: selection})
				if err != nil {
					b.Fatal(err)
				}
				var frames []byte
				for feed.Position() < events {
					slice, err := feed.Next(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					delivered += len(slice.Entries)
					frames = frames[:0]
					for _, e := range slice.Entries {
						frames = e.AppendTo(frames, 0, encode)
					}
				}
				feed.Close()
			}
			b.ReportMetric(float64(delivered)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkFanOut has many followers of one log receive each of its events, ten at a time.
func BenchmarkFanOut(b *testing.B) {
	for _, followers := range []int{10, 1000} {
		for name, selection := range map[string]domain.Selection{"everything": {}, "filter": {Filter: `event.data.text != ""`}, "other": {Types: []string{"Other"}}} {
			b.Run(fmt.Sprintf("%d/%s", followers, name), func(b *testing.B) { fanOut(b, followers, selection) })
		}
	}
}

func fanOut(b *testing.B, followers int, selection domain.Selection) {
	s := tablestest.OpenAgain(b, pgtest.Database(b))
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
	tablestest.Listen(b, s, tails.Wake)
	tenant := domain.NewTenantID()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	var reached *sync.WaitGroup
	var goal int64
	var all sync.WaitGroup
	feeds := make([]*tail.Feed, followers)
	for i := range feeds {
		var err error
		if feeds[i], err = tails.Follow(ctx, tenant, domain.Follow{Selection: selection, From: domain.From{End: true}}); err != nil {
			b.Fatal(err)
		}
		tails.ReportSkippedAfter(time.Millisecond)
	}
	move := func(to int64) *sync.WaitGroup {
		mu.Lock()
		defer mu.Unlock()
		goal, reached = to, &sync.WaitGroup{}
		reached.Add(followers)
		return reached
	}
	wait := move(10)
	for _, feed := range feeds {
		all.Go(func() {
			defer feed.Close()
			var frames []byte
			told := int64(0)
			for {
				slice, err := feed.Next(ctx)
				if err != nil {
					return
				}
				frames = frames[:0]
				for _, e := range slice.Entries {
					frames = e.AppendTo(frames, 0, encode)
				}
				mu.Lock()
				if slice.Position >= goal && told < goal {
					told = goal
					reached.Done()
				}
				mu.Unlock()
			}
		})
	}
	data := fmt.Sprintf(`{"text": %q}`, strings.Repeat("x", 180))
	position := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		position = tablestest.AppendTo(b, s, tenant, "order-1", "Added", slices.Repeat([]string{data}, 10)...)
		wait.Wait()
		wait = move(position + 10)
	}
	b.ReportMetric(10*float64(b.N)*float64(followers)/b.Elapsed().Seconds(), "deliveries/s")
	cancel()
	all.Wait()
}
