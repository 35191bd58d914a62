package client_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/client"
)

// BenchmarkConsume measures how many events eight consumers of a group handle in a second, with handlers that only
// count. Service, database and consumers share the machine.
func BenchmarkConsume(b *testing.B) {
	for _, concurrency := range []int{10, 100} {
		b.Run(fmt.Sprint("concurrency=", concurrency), func(b *testing.B) {
			s := newService(b)
			c := newClient(b, s.url(), client.WithKey(s.key))
			read[client.Subscription](b)(c.PutSubscription(b.Context(), "work", client.NewSubscription{}))
			for n := 0; n < b.N; n += 1000 {
				read[client.AppendedStream](b)(c.AppendToStream(b.Context(), "job-1", nil, numbered(1, min(1000, b.N-n))))
			}
			ctx, stop := context.WithCancel(b.Context())
			var left atomic.Int64
			left.Store(int64(b.N))
			handler := func(context.Context, client.Delivery) error {
				if left.Add(-1) == 0 {
					stop()
				}
				return nil
			}
			b.ResetTimer()
			var consumers sync.WaitGroup
			for range 8 {
				consumers.Go(func() {
					err := c.Consume(ctx, "work", handler, client.ConsumeOptions{
						Concurrency: concurrency, OnError: func(err error, _ *client.Event) { b.Error(err) },
					})
					if err != nil {
						b.Error(err)
					}
				})
			}
			consumers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
