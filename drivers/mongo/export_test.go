package mongo

import "time"

// SetQueryTime sets what a read may take.
func (d *Driver) SetQueryTime(most time.Duration) { d.queryTime = most }

// Transactions reports whether saves are transactions.
func (d *Driver) Transactions() bool { return d.transactions }
