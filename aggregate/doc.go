// Package aggregate gives the state of a stream: what its events amount to, folded by the definition of their category,
// now or as it was at a version or moment.
//
// Loading a state takes the newest snapshot that fits and folds the events behind it. Snapshots are taken when a stream
// passes a multiple of the definition's SnapshotEvery, off the append's path; by a daily sweep, for streams that moved
// without reaching one; and on demand. A snapshot that was folded carries a tag made of its definition, of the upcasters
// that its events went through, and of the expression language's version, so that one that would come out differently now
// is not used. Snapshots can be thrown away: a state is always the fold of all events. Clients that fold by themselves may
// keep snapshots of their own, which Manifold gives back and does not fold on.
package aggregate
