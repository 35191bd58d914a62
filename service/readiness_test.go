package service

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/api"
)

// However many clients request the checks concurrently, they run once, and again only when their result is old.
func TestReadinessChecksAreShared(t *testing.T) {
	t.Parallel()
	var r readiness
	var runs, running atomic.Int64
	run := func() []api.Check {
		if running.Add(1) > 1 {
			t.Error("checks run at the same time")
		}
		defer running.Add(-1)
		runs.Add(1)
		return []api.Check{{Name: "database"}}
	}
	start := time.Now()
	var asking sync.WaitGroup
	for range 50 {
		asking.Go(func() { r.latest(run)[0].Name = "changed by a caller" })
	}
	asking.Wait()
	if n, most := runs.Load(), 1+int64(time.Since(start)/checksKept); n > most {
		t.Errorf("the checks ran %d times, want %d at most", n, most)
	}
	r.ran = time.Now().Add(-checksKept)
	runs.Store(0)
	if result := r.latest(run); runs.Load() != 1 || result[0].Name != "database" {
		t.Errorf("an old result: %d runs, %+v", runs.Load(), result)
	}
}
