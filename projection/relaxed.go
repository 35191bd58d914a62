package projection

import "time"

// Relaxed may be implemented by a Handler whose documents need not be up to date at every moment, such as daily totals.
// The runner then gives each tenant's pair a turn at most once per Interval, with all events since in one batch. For a
// busy log that costs far less than following each event.
//
// Readers that need current documents do not wait for the interval. A read with a minPosition, or a catch-up, starts
// the turn at once if the same process follows the tenant. Another process does not notice it: there the wait is up to
// the interval.
type Relaxed interface {
	Handler
	// Interval returns how far, in time, the documents may lag behind the log.
	Interval() time.Duration
}
