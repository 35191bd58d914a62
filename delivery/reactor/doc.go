// Package reactor makes things follow from events. Reactors calls Go functions for events. Changes publishes changes of
// a projection's documents as events. Both consume groups on behalf of the service, one for each tenant. So failures
// are retried and end as dead letters, and finished work survives the death of a process.
//
// If the source is a projection, an event is delivered after its document is stored: the group takes nothing after the
// position that projection.Catalog.Settled returns. A group's position moves only with the log, so a rebuild delivers
// nothing twice.
//
// Reactors and Changes are sources of a consume.Dispatcher, which runs them in the process that owns the tenant.
package reactor
