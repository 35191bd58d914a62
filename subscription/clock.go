package subscription

import "time"

// clock is an estimate of the database's clock, by which leases and retries are due. It is that clock as it last came with an
// answer and the time that has gone by here since; as the answer was on its way for some time, the estimate is never ahead.
type clock struct {
	there time.Time
	here  time.Time // with its monotonic reading
}

// set takes what an answer said, as soon as it has come.
func (c *clock) set(now time.Time) {
	if !now.IsZero() {
		c.there, c.here = now, time.Now()
	}
}

// now is the estimate; the zero time where nothing is known yet.
func (c *clock) now() time.Time {
	if c.there.IsZero() {
		return time.Time{}
	}
	return c.there.Add(time.Since(c.here))
}
