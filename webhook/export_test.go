package webhook

import "time"

// Hurry has webhooks work by other times than those of the constants, and linger for a moment only. It is for a Webhooks that nothing has been asked of.
func Hurry(w *Webhooks, schedule []time.Duration, firstPause, longestPause, lease time.Duration) {
	w.pace = pace{schedule: schedule, firstPause: firstPause, longestPause: longestPause, lease: lease, linger: 50 * time.Millisecond}
}
