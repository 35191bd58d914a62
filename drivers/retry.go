package drivers

import (
	"context"
	"math/rand/v2"
	"time"
)

// Attempts is how often a driver tries an operation that conflicts with others, including the first time.
const Attempts = 4

// Retry calls do until it succeeds, ctx ends, or retryable reports that the error of an attempt, counted from 1, is
// final. It returns do's last error. The pauses grow and are random, so that callers that conflicted do not meet again.
func Retry(ctx context.Context, retryable func(err error, attempt int) bool, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || ctx.Err() != nil || !retryable(err, attempt) {
			return err
		}
		pause := 10 * time.Millisecond << (2 * min(attempt, 3)) // 40, 160, 640 ms at most
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return err
		}
	}
}
