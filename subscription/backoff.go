package subscription

import (
	"math/rand/v2"
	"time"
)

// backOff is how long an event waits behind its failed-th attempt, from 1: doubled with each, from least to most, and changed
// by chance by up to a fifth, so that events which failed together do not come again together. It is never above most by more
// than that fifth.
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
