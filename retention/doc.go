// Package retention removes events that are no longer needed. From each category with a policy it removes the events
// that are too old, too many, or not the newest of their stream. Remaining events keep their positions and versions.
// Start with Retention and its Run method; Preview shows what a run would do.
//
// Retention never removes events that a reader still has to read, unless the policy names that reader. Groups,
// projections and rebuilds report such events, called holds, through the interface Holder. A run has three steps:
//
//  1. Announce: write the highest position that may be removed into the category's floor, and commit.
//  2. Check: ask all holders after that. If one holds events, lower the announcement accordingly.
//  3. Remove: go slice by slice, each in one transaction with the floors that readers check.
//
// A reader that begins far back, such as a rebuild, first registers and then reads the announcement. So either the
// reader sees the announcement, or the run sees the reader. Each slice also checks the groups in its own snapshot,
// because their dead letters hold single events and can return to them at any moment.
//
// The process that owns a tenant works on its policies. If two processes do so at once, the one that announced last
// removes events, and the other stops.
package retention
