package eventlog

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Time in which several writers run counts once, and time in which none runs does not count.
func TestAppendingForCountsTimeOnce(t *testing.T) {
	t.Parallel()
	type writing struct{ from, to int }
	rapid.Check(t, func(r *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) writing {
			from := rapid.IntRange(0, 50).Draw(r, "from")
			return writing{from, from + rapid.IntRange(1, 20).Draw(r, "seconds")}
		}), 0, 10).Draw(r, "writings")
		at := rapid.IntRange(0, 80).Draw(r, "read at")
		want := 0
		for second := range at {
			for _, w := range all {
				if w.from <= second && second < w.to {
					want++
					break
				}
			}
		}
		var got time.Duration
		synctest.Test(t, func(*testing.T) {
			s := &Log{}
			var ended sync.WaitGroup
			for _, w := range all {
				ended.Go(func() {
					<-time.After(time.Duration(w.from) * time.Second)
					s.writers.busy.begin()
					<-time.After(time.Duration(w.to-w.from) * time.Second)
					s.writers.busy.end()
				})
			}
			<-time.After(time.Duration(at) * time.Second)
			got = s.AppendingFor()
			ended.Wait()
		})
		if got != time.Duration(want)*time.Second {
			r.Fatalf("after %d s it is %s, want %d s", at, got, want)
		}
	})
}
