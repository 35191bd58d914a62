package group

import "time"

// clock estimates the database's clock, which decides when leases and retries are due. It takes the time that the
// database last returned, and adds the time that has passed locally since. The database read its clock between the
// request and the response, so the true time lies between two bounds. Leases expire by the earlier bound and are
// granted by the later one. So no lease is shorter than promised.
type clock struct {
	there    time.Time
	asked    time.Time // local time with its monotonic reading
	answered time.Time
}

// set records the time in a response to a request that was sent at asked. It must be called as soon as the response
// arrives.
func (c *clock) set(now, asked time.Time) {
	if !now.IsZero() {
		c.there, c.asked, c.answered = now, asked, time.Now()
	}
}

// now returns the earlier bound, which is never ahead of the database's clock. It is the zero time if nothing is known
// yet.
func (c *clock) now() time.Time { return c.since(c.answered) }

// latest returns the later bound.
func (c *clock) latest() time.Time { return c.since(c.asked) }

func (c *clock) since(here time.Time) time.Time {
	if c.there.IsZero() {
		return time.Time{}
	}
	return c.there.Add(time.Since(here))
}
