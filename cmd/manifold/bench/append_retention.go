package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/retention"
)

// keptByRetention is how many events the benchmark's policy keeps.
const keptByRetention = 1000

// appendUnderRetention appends again with the same number of clients, while retention removes all but the newest
// events of each log as fast as it can. It reports the result next to that of the run without retention.
func appendUnderRetention(ctx context.Context, f *flags, super string, tenants []domain.TenantID, result *Result, alone load, progress io.Writer) (err error) {
	s, err := openStore(ctx, super)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, tenant := range tenants {
		if _, _, err := s.PutRetentionPolicy(ctx, tenant, domain.RetentionPolicy{Category: "order", MaxCount: keptByRetention}); err != nil {
			return err
		}
	}
	var removed atomic.Int64
	remover := retention.New(retention.Config{
		Store: s, Holders: []retention.Holder{s}, Owns: func(domain.TenantID) bool { return true }, Log: slog.New(slog.DiscardHandler),
		Grace: -1, Every: 10 * time.Millisecond, Share: 1, Observer: retention.Observer{Removed: func(n int64) { removed.Add(n) }},
	})
	running, stop := context.WithCancel(ctx)
	var stopped sync.WaitGroup
	var runErr error
	stopped.Go(func() { runErr = remover.Run(running) })
	defer func() {
		stop()
		stopped.Wait()
		err = errors.Join(err, runErr)
	}()
	fmt.Fprintf(progress, "appending for %s, under retention ...\n", f.length())
	f.round++
	began := time.Now()
	under, err := appendStore(ctx, f, super, tenants, f.clients, func() error { return nil })
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	p50, p99 := milliseconds(under.latencies, 50), milliseconds(under.latencies, 99)
	result.tell(under.perSecond(), "events/s", "appended under retention")
	result.tell(p50, "ms", "append p50 under retention")
	result.tell(p99, "ms", "append p99 under retention")
	result.tell(p50/milliseconds(alone.latencies, 50), "times", "append p50, of that without")
	result.tell(p99/milliseconds(alone.latencies, 99), "times", "append p99, of that without")
	result.tell(float64(removed.Load())/took, "events/s", "removed meanwhile")
	return nil
}
