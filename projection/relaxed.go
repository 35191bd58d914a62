package projection

import "time"

// Relaxed may be implemented by a Handler whose documents need not be up to date at every moment: totals of days, say. The
// runner then gives each tenant's pair a turn no more often than every Interval, with all the events that came meanwhile in
// one batch, which costs a busy log far less than following each event.
//
// Who waits for the documents does not wait for the interval: a read with a minPosition, and a catch-up, bring the turn
// about at once where the tenant is followed by the same process. Another process does not hear of them: there the wait is
// up to the interval.
type Relaxed interface {
	Handler
	// Interval is how long the documents may be behind the log.
	Interval() time.Duration
}
