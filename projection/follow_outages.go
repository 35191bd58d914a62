package projection

import "time"

// Outage describes a database of documents that does not answer. Its projections wait, and resume by themselves.
type Outage struct {
	Since   time.Time
	NextTry time.Time // when it is tried again
	Error   string    // the last error of the database or the connection to it: for operators
}

// Outages returns whether a database, by its name in the configuration, is known not to answer. Several goroutines call
// it, and it must return at once. A nil Outages knows of none.
type Outages func(database string) (Outage, bool)

func (o Outages) of(database string) (Outage, bool) {
	if o == nil {
		return Outage{}, false
	}
	return o(database)
}
