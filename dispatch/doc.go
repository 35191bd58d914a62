// Package dispatch runs the consumers of groups that are the service itself (webhooks, reactors, changes, egress) where and when
// there is something for them to do.
//
// A Source says which consumers a tenant has. When the tenant's log grows (Wake), when its consumers or their groups change
// (Notice), and when this process comes to own it (Rebalance), each of them is run, in a goroutine of its own, until nothing
// is due any more. So a consumer costs something only while it has something to do, and a slow or failing one delays no other.
//
// Which process runs a tenant's consumers is a matter of speed alone: two that do it at the same time share the work, or one
// waits for the other, by the leases of the groups.
package dispatch
