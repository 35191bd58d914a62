// Package rebuild makes new builds of projections and swaps them in, with no downtime: a rebuild is a resource with a
// state, progress and an outcome, one at a time for a projection.
//
//  1. building: a table beside the live one; every tenant's log is replayed from its first event, tenants in parallel;
//     then the secondary indexes.
//  2. catching-up: what was appended meanwhile, and tenants that came meanwhile, until little is left.
//  3. validating: every document is held against the assertions and compared with the live build's (see compare.go). A
//     dry run ends here.
//  4. awaiting-approval, where people want to be asked: the new build follows on now and then.
//  5. The rebuild holds the live build still, reads the heads of all logs, and folds on to them; one compare-and-set on the
//     projection's row puts build and definition in its place, or one on each tenant's row, of a rebuild for some tenants.
//     docs/decisions/0002-swap-by-hold.md says why nothing is lost in between, 0022 how tenants' builds end.
//
// A rollback is a rebuild whose build was live before, and which goes on from that one's own checkpoints: decision 0023.
//
// The live build serves and follows all the while; the old one stays for a while and is then dropped. Whatever a worker
// does is kept in the new build's own checkpoints and in the rebuild's row, and can be repeated: when a worker is killed
// at any point, another one claims the rebuild and goes on from there. An event that cannot be folded, or an assertion
// that does not hold, fails the rebuild and leaves the live build untouched.
package rebuild
