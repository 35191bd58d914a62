package mongo

import "time"

// SetTimes sets the time limits of all methods. It must be called before Open.
func SetTimes(most time.Duration) { saveTime, queryTime = most, most }

// SetQueryTime sets the time limit of a read.
func (d *Driver) SetQueryTime(most time.Duration) { d.queryTime = most }

// Transactions reports whether saves are transactions.
func (d *Driver) Transactions() bool { return d.transactions }

// AwaitIndexes returns when Open's attempt to create the indexes of the common collection has ended.
func (d *Driver) AwaitIndexes() { d.background.Wait() }

// UseAllKeys makes the driver use keys without an index. FerretDB has only that of key1, and reads no keys from it.
func (d *Driver) UseAllKeys() { d.allKeysIndexed.Store(true) }
