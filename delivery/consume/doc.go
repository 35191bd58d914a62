// Package consume runs the groups that the service itself consumes: webhooks, reactors, changes and egress.
//
// A Dispatcher decides when to run. A Source lists the consumers of a tenant. The Dispatcher runs each of them when the
// tenant's log grows (Wake), when its consumers or their groups change (Notice), and when this process becomes its
// owner (Rebalance). Each consumer has a separate goroutine and runs until nothing more is due. So an idle consumer
// costs nothing, and a slow or failing one delays no other.
//
// A Round is one such run: it receives events, hands them to a handler, extends their leases and settles them. An
// egress has its own loop, because it seeks back instead of settling single events (decision 0072).
//
// Which process runs a tenant's consumers affects only speed. If two processes run the same consumer, the leases of its
// group make them share the work, or one waits for the other.
package consume
