package webhook

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

func TestRetriesFollowTheSchedule(t *testing.T) {
	t.Parallel()
	p := newPace()
	if p.attempts() != 10 {
		t.Errorf("an event has %d attempts, not 10", p.attempts())
	}
	var all time.Duration
	for _, wait := range schedule {
		all += wait
	}
	if all < 3*24*time.Hour || all > 7*24*time.Hour {
		t.Errorf("the schedule spans %s, which is not some days", all)
	}
	rapid.Check(t, func(t *rapid.T) {
		failed := rapid.IntRange(-1, 20).Draw(t, "failed")
		asked := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "asked"))
		wait, planned := p.retryIn(failed, asked), schedule[min(max(failed, 1), len(schedule))-1]
		least, most := planned*4/5, planned*6/5
		if asked > 0 {
			least = max(least, min(asked, maxRetryAfter).Truncate(time.Second))
			most = max(most, min(asked, maxRetryAfter)+time.Second)
		}
		if least = min(least, domain.MaxBackoff); wait < least || wait > min(most, domain.MaxBackoff) || wait%time.Millisecond != 0 {
			t.Fatalf("attempt %d, asked for %s: it waits %s, and should from %s to %s", failed, asked, wait, least, most)
		}
	})
}

// Events that failed together are not retried together.
func TestRetriesAreSpread(t *testing.T) {
	t.Parallel()
	p := newPace()
	waits := make(map[time.Duration]bool)
	for range 100 {
		waits[p.retryIn(2, 0)] = true
	}
	if len(waits) < 90 {
		t.Errorf("a hundred retries have %d different waits", len(waits))
	}
}
