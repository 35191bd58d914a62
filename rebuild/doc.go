// Package rebuild creates new builds of projections and swaps them in without downtime. A rebuild is a resource with a
// state, progress and an outcome. A projection has at most one at a time. Rebuilds starts and runs them; Request says
// what to rebuild.
//
//  1. building: creates a table beside the live one and replays every tenant's log from its first event, tenants in
//     parallel; then creates the secondary indexes.
//  2. catching-up: folds what was appended meanwhile, including new tenants, until little is left.
//  3. validating: checks the assertions on every document and compares it with the live build's (see compare.go). A dry
//     run ends here.
//  4. awaiting-approval, if approval is required: the new build catches up now and then.
//  5. The rebuild pauses the live build, reads the heads of all logs, and folds up to them. One compare-and-set on the
//     projection's row then puts build and definition in place; a rebuild for some tenants does so on each tenant's
//     row. docs/decisions/0002-swap-by-hold.md explains why nothing is lost in between, and 0022 how tenants' builds
//     end.
//
// A rollback is a rebuild whose build was live before, and which continues from that build's own checkpoints: decision
// 0023.
//
// The live build is read and kept up to date all the while; the old one stays for a while and is then dropped. All
// progress is stored in the new build's own checkpoints and in the rebuild's row, and every step can be repeated. So if
// a worker is killed at any point, another one claims the rebuild and continues from there. A failing event or
// assertion fails the rebuild and leaves the live build untouched, unless it concerns single tenants of a shared
// projection: those are left on their old builds.
package rebuild
