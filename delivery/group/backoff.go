package group

import (
	"math/rand/v2"
	"time"
)

// backOff returns how long an event waits after its failed-th attempt, counting from 1. The wait doubles with each
// attempt, from least to most. Jitter changes it by up to a fifth, so that events that failed together are not
// redelivered together. So it exceeds most by at most a fifth.
func backOff(failed int, least, most time.Duration) time.Duration {
	wait := least
	for range failed - 1 {
		if wait >= most || wait == 0 {
			break
		}
		wait *= 2
	}
	wait = min(wait, most)
	return wait + time.Duration((rand.Float64()*2-1)*float64(wait)/5)
}
