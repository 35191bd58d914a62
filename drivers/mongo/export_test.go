package mongo

import "time"

// SetQueryTime sets the time limit of a read.
func (d *Driver) SetQueryTime(most time.Duration) { d.queryTime = most }

// Transactions reports whether saves are transactions.
func (d *Driver) Transactions() bool { return d.transactions }
