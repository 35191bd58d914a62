// Package aggregate computes the state of a stream: the fold of its events by the definition of their category, now or
// as of a version or moment. States loads states and keeps snapshots. Commands decides commands, which the same
// definition declares, on the newest state, and appends their events.
//
// Loading a state takes the newest suitable snapshot and folds the events after it. Snapshots are taken when a stream
// passes a multiple of the definition's SnapshotEvery, outside the append's path; by a daily sweep, for streams that
// moved without reaching one; and on demand. A folded snapshot carries a tag derived from its definition, from the
// upcasters applied to its events, and from the expression language's version. So a snapshot that would come out
// differently now is not used. Snapshots can be thrown away: a state is always the fold of all events. Clients that
// fold by themselves may store their own snapshots, which Manifold returns but does not fold on.
//
// A command (command.go) is decided by its definition's expressions (command_decide.go) on a state that is usually
// remembered (hot.go). Its events are appended only if the stream still has the state's version.
package aggregate
