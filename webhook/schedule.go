package webhook

import (
	"math/rand/v2"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// schedule is how long an event waits after its first, second ... attempt that failed. After the one behind the last of these
// it goes to the dead letters.
var schedule = [...]time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// maxRetryAfter is the most that an endpoint can ask for with Retry-After.
const maxRetryAfter = time.Hour

// lease is how long an event stays with a process that has died. A process that does not get to extend its leases for that
// long has its events sent by another one as well.
const lease = 7 * time.Second

// pace are the times by which webhooks work: those of the constants, but in tests.
type pace struct {
	schedule     []time.Duration
	firstPause   time.Duration // of a breaker
	longestPause time.Duration
	lease        time.Duration // of an event; extended again and again until its request is over and settled
	linger       time.Duration // for more, where nothing is due
}

func newPace() pace {
	return pace{schedule: schedule[:], firstPause: firstPause, longestPause: longestPause, lease: lease, linger: linger}
}

// attempts is how many attempts an event has.
func (p *pace) attempts() int { return len(p.schedule) + 1 }

// retryIn is how long an event waits behind its failed-th attempt, from 1: by the schedule, changed by chance by up to a fifth, and
// at least as long as the endpoint has asked for. It is never more than domain.MaxBackoff.
func (p *pace) retryIn(failed int, retryAfter time.Duration) time.Duration {
	wait := jitter(p.schedule[min(max(failed, 1), len(p.schedule))-1])
	return min(max(wait, min(retryAfter, maxRetryAfter)), domain.MaxBackoff).Round(time.Millisecond)
}

// jitter changes a time by chance by up to a fifth, so that what failed together does not come again together.
func jitter(wait time.Duration) time.Duration {
	return wait + time.Duration((rand.Float64()*2-1)*float64(wait)/5)
}
