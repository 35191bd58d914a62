package subscription

import "time"

// clock is an estimate of the database's clock, by which leases and retries are due: that clock as it last came with an answer,
// and the time that has gone by here since. It lay between the question and the answer, and so the truth is between two bounds.
// What was leased is due by the earlier one, and leases are granted by the later: none is ever shorter than was promised.
type clock struct {
	there    time.Time
	asked    time.Time // by the clock here, with its monotonic reading
	answered time.Time
}

// set takes what an answer said, as soon as it has come, to what was asked at a time.
func (c *clock) set(now, asked time.Time) {
	if !now.IsZero() {
		c.there, c.asked, c.answered = now, asked, time.Now()
	}
}

// now is the earlier bound: it is never ahead of the database's clock. The zero time where nothing is known yet.
func (c *clock) now() time.Time { return c.since(c.answered) }

// latest is the later bound.
func (c *clock) latest() time.Time { return c.since(c.asked) }

func (c *clock) since(here time.Time) time.Time {
	if c.there.IsZero() {
		return time.Time{}
	}
	return c.there.Add(time.Since(here))
}
