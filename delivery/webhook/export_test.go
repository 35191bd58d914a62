package webhook

import (
	"context"
	"time"
)

// SetPace replaces the timing constants of webhooks, with a short linger. It must be called before any other use of the
// Webhooks.
func SetPace(w *Webhooks, schedule []time.Duration, firstPause, longestPause, lease time.Duration) {
	w.pace = pace{schedule: schedule, firstPause: firstPause, longestPause: longestPause, lease: lease, linger: 50 * time.Millisecond}
}

// AppendDocuments is appendDocuments.
var AppendDocuments = appendDocuments

// RetryUnusable does what Run does every ten minutes for webhooks with unusable secrets.
func RetryUnusable(ctx context.Context, w *Webhooks) { w.retryUnusable(ctx) }
