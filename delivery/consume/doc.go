// Package consume runs the groups that the service itself consumes (webhooks, reactors, changes, egress). It runs each
// consumer only where and when there is something to do.
//
// Start with Dispatcher, Source and Consumer. A Source lists the consumers of a tenant. The Dispatcher runs each of
// them when the tenant's log grows (Wake), when its consumers or their groups change (Notice), and when this process
// becomes its owner (Rebalance). Each consumer has a separate goroutine and runs until nothing more is due. So an
// idle consumer costs nothing, and a slow or failing one delays no other.
//
// Which process runs a tenant's consumers affects only speed. If two processes run the same consumer, the leases of its
// group make them share the work, or one waits for the other.
package consume
