package group_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// fill appends n events, spread over streams. Between them it appends slow events to one separate stream.
func (b groupBench) fill(t testing.TB, n, streams, slow int) {
	t.Helper()
	var appending sync.WaitGroup
	const slice = 1000
	left := make(chan int, n/slice+slow/slice+2)
	for i := 0; i < n; i += slice {
		left <- i
		if i == 0 {
			for j := 0; j < slow; j += slice {
				left <- -1
			}
		}
	}
	close(left)
	for range 4 {
		appending.Go(func() {
			for from := range left {
				request := domain.Append{}
				if from < 0 {
					request.Streams = []domain.StreamAppend{{Stream: "order-slow", Expected: domain.Any}}
				}
				for i := range slice {
					event := domain.NewEvent{Type: "Happened", Data: json.RawMessage(`{"customer": "c-17", "total": 12.5, "items": [{"sku": "a-1", "qty": 2}]}`)}
					if from < 0 {
						request.Streams[0].Events = append(request.Streams[0].Events, event)
						continue
					}
					request.Streams = append(request.Streams, domain.StreamAppend{
						Stream: fmt.Sprintf("order-%d", (from+i)%streams), Expected: domain.Any, Events: []domain.NewEvent{event},
					})
				}
				if _, err := b.store.Append(context.Background(), b.tenant, request); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	appending.Wait()
}

// BenchmarkGroup receives and acknowledges batches of 100 with several consumers at once.
func BenchmarkGroup(b *testing.B) {
	for _, test := range []struct {
		name          string
		ordering      domain.Ordering
		streams, slow int
		consumers     int
		processes     int
	}{
		{"two processes", domain.OrderingNone, 5000, 0, 8, 2},
		{"three processes, ordered", domain.OrderingStream, 5000, 0, 9, 3},
		{"unordered", domain.OrderingNone, 5000, 0, 8, 1},
		{"unordered by one", domain.OrderingNone, 5000, 0, 1, 1},
		{"ordered", domain.OrderingStream, 5000, 0, 8, 1},
		{"ordered, 100 streams", domain.OrderingStream, 100, 0, 8, 1},
		{"ordered, a slow stream", domain.OrderingStream, 5000, 1_000_000, 8, 1},
	} {
		b.Run(test.name, func(b *testing.B) {
			bench := newGroupBench(b)
			bench.fill(b, b.N+1000, test.streams, test.slow)
			bench.put(b, "g", domain.GroupDefinition{Ordering: test.ordering, AckTimeout: time.Hour})
			all := []*group.Groups{bench.groups}
			for len(all) < test.processes {
				another, _ := startGroups(b, bench.open(b), group.Observer{})
				all = append(all, another)
			}
			var acked atomic.Int64
			var consuming sync.WaitGroup
			b.ResetTimer()
			began := time.Now()
			for consumer := range test.consumers {
				groups := all[consumer%len(all)]
				consuming.Go(func() {
					for acked.Load() < int64(b.N) {
						deliveries, err := groups.Receive(context.Background(), bench.tenant, "g", group.Receive{Batch: 100, Wait: time.Second})
						if err != nil {
							b.Error(err)
							return
						}
						var done []domain.Attempt
						for i := range deliveries {
							if deliveries[i].Event.Stream != "order-slow" {
								done = append(done, attempts(deliveries[i])...)
							}
						}
						if len(done) == 0 {
							continue
						}
						if _, err := groups.Ack(context.Background(), bench.tenant, "g", done); err != nil {
							b.Error(err)
							return
						}
						acked.Add(int64(len(done)))
					}
				})
			}
			consuming.Wait()
			b.ReportMetric(float64(acked.Load())/time.Since(began).Seconds(), "events/s")
		})
	}
}
