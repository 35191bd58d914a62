package projection

import "time"

// Outage is that a database of documents does not answer: its projections wait, and go on by themselves when it is back.
type Outage struct {
	Since   time.Time
	NextTry time.Time // when it is asked again
	Error   string    // what it, or the way to it, said last: for operators
}

// Outages tells whether a database, by its name in the configuration, is known not to answer. It is called by several
// goroutines and must return at once. A nil Outages knows of none.
type Outages func(database string) (Outage, bool)

func (o Outages) of(database string) (Outage, bool) {
	if o == nil {
		return Outage{}, false
	}
	return o(database)
}
