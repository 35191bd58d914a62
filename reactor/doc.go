// Package reactor lets things follow from events: it calls functions in Go (Reactors), and makes events of what changes in a
// projection's documents (Changes). Both are groups whose consumer is the service, one for each tenant, so that what fails is
// tried again and ends as a dead letter, and what was done is not forgotten when a process dies.
//
// Where a projection is the source, an event comes when its document is stored: the group takes nothing behind what
// projection.Catalog.Settled says. A group's place moves with the log alone, so a rebuild brings nothing a second time.
//
// Reactors and Changes are the sources of a dispatch.Dispatcher, which runs them where a tenant is owned.
package reactor
