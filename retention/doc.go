// Package retention removes events that nobody needs any more: of each category with a policy, those that are too old, too
// many, or not the newest of their stream. Positions and versions keep their numbers.
//
// It never goes past what somebody still has to read, unless the policy names that one. Who holds events tells by the interface
// Holder: groups, projections, and rebuilds. A run goes in this order:
//
//  1. Announce: the highest position that may go is written into the category's floor, and committed.
//  2. Check: whoever holds events is asked now, behind that. Where somebody does, the announcement is taken back as far.
//  3. Remove: slice by slice, each in one transaction with the floors that readers go by.
//
// Who begins to read from far back, a rebuild say, registers first and looks at the announcement then: so either it sees the
// announcement, or the run sees it. Groups are asked once more in each slice's own snapshot, since their dead letters, which
// hold their events one by one, come back to them at any moment.
//
// Each tenant's policies are worked on by the process that owns the tenant. Should two be at it, the one that has announced last
// removes, and the other one stops.
package retention
