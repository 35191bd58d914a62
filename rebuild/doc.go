// Package rebuild makes new builds of projections and swaps them in, with no downtime: a rebuild is a resource with a
// state, progress and an outcome, one at a time for a projection.
//
//  1. building: a table beside the live one; every tenant's log is replayed from its first event, tenants in parallel;
//     then the secondary indexes.
//  2. catching-up: what was appended meanwhile, and tenants that came meanwhile, until little is left.
//  3. validating: documents are counted and the definition's assertions evaluated. Then the rebuild holds the live
//     build still, reads the heads of all logs, and folds on to them; one compare-and-set on the projection's row puts
//     build and definition in its place. docs/decisions/0002-swap-by-hold.md says why nothing is lost in between.
//
// The live build serves and follows all the while; the old one stays for a while and is then dropped. Whatever a worker
// does is kept in the new build's own checkpoints and in the rebuild's row, and can be repeated: when a worker is killed
// at any point, another one claims the rebuild and goes on from there. An event that cannot be folded, or an assertion
// that does not hold, fails the rebuild and leaves the live build untouched.
package rebuild
