// Package subjects erases what a tenant's log says about a person, and everything that was made from that. A data
// subject is a person; the tag subject:ID on an event says whose data it holds.
//
// Start with Subjects. Request stores an Erasure, or DryRun says what one would touch. Run takes each Erasure through
// its steps: it erases the events, then what the service has made of them, and waits until all work that began before
// has ended. Then it rebuilds the projections that have folded them, removes all other builds' documents, and ends with
// a signed Receipt. docs/decisions/0115-erasing-data-subjects.md says why in this order.
package subjects
