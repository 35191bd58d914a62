package client_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
)

// BenchmarkConsume measures how many events eight consumers of a group handle in a second. Their handlers only count,
// or pause first. Service, database and consumers share the machine.
func BenchmarkConsume(b *testing.B) {
	for _, c := range []struct {
		concurrency int
		pause       time.Duration
		partitions  int
	}{
		{concurrency: 10},
		{concurrency: 100},
		{concurrency: 10, pause: 5 * time.Millisecond},
		{concurrency: 100, partitions: 16},
	} {
		b.Run(fmt.Sprintf("concurrency=%d,pause=%s,partitions=%d", c.concurrency, c.pause, c.partitions), func(b *testing.B) {
			consume(b, c.concurrency, c.pause, c.partitions)
		})
	}
}

func consume(b *testing.B, concurrency int, pause time.Duration, partitions int) {
	s := newService(b)
	c := newClient(b, s.url(), client.WithKey(s.key))
	member := ""
	if partitions > 0 {
		member = "bench"
	}
	read[client.Subscription](b)(c.PutSubscription(b.Context(), "work", client.NewSubscription{Partitions: partitions}))
	for n := 0; n < b.N; n += 1000 {
		to := fmt.Sprint("job-", n/1000%100)
		read[client.AppendedStream](b)(c.AppendToStream(b.Context(), to, nil, numbered(1, min(1000, b.N-n))))
	}
	ctx, stop := context.WithCancel(b.Context())
	var left atomic.Int64
	left.Store(int64(b.N))
	handler := func(context.Context, client.Delivery) error {
		if pause > 0 {
			<-time.After(pause)
		}
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
				Concurrency: concurrency, Member: member,
				OnError: func(err error, _ *client.Event) { b.Error(err) },
			})
			if err != nil {
				b.Error(err)
			}
		})
	}
	consumers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
