package webhook

import (
	"math/rand/v2"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// schedule is how long an event waits after its first, second, and further failed attempts. After the attempt that
// follows the last wait, it becomes a dead letter.
var schedule = [...]time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// maxRetryAfter limits the wait that an endpoint can request with Retry-After.
const maxRetryAfter = time.Hour

// lease is how long an event stays with a process that has died. If a process fails to extend its leases for that long,
// another process sends its events as well.
const lease = 7 * time.Second

// pace holds the timing of webhooks: the constants, except in tests.
type pace struct {
	schedule     []time.Duration
	firstPause   time.Duration // of the breaker
	longestPause time.Duration
	lease        time.Duration // of an event; extended repeatedly until its request is done and settled
	linger       time.Duration // for more events if nothing is due
}

func newPace() pace {
	return pace{schedule: schedule[:], firstPause: firstPause, longestPause: longestPause, lease: lease, linger: linger}
}

// attempts returns the maximum number of attempts for an event.
func (p *pace) attempts() int { return len(p.schedule) + 1 }

// retryIn returns how long an event waits after its failed-th attempt, counting from 1. It follows the schedule, with
// jitter of up to a fifth, and is at least what the endpoint asked for. It never exceeds domain.MaxBackoff.
func (p *pace) retryIn(failed int, retryAfter time.Duration) time.Duration {
	wait := jitter(p.schedule[min(max(failed, 1), len(p.schedule))-1])
	return min(max(wait, min(retryAfter, maxRetryAfter)), domain.MaxBackoff).Round(time.Millisecond)
}

// jitter changes a duration randomly by up to a fifth, so that events that failed together are not retried together.
func jitter(wait time.Duration) time.Duration {
	return wait + time.Duration((rand.Float64()*2-1)*float64(wait)/5)
}
