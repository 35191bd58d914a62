// Package subscription delivers events in two ways. Followers read a log from any position and continue as it grows.
// Consumers of groups receive events with leases, attempts and dead letters.
//
// Followers. Tails has one tail for each followed tenant. It reads the log once for all followers, as events arrive,
// and keeps the newest events in memory, bounded in bytes. A Feed is one follower's position in the log. While that
// position is in the tail's memory, the feed takes events from there. If the follower started further back or is slow,
// the feed reads the log directly. So a slow follower costs only its own reads. Switching from history to live means
// finding the next position in memory.
//
// Groups. Groups is the entry point. A ledger is a value in memory that holds what a group, or one of its partitions,
// has in flight. The delivery rules are its methods. It is stored as one database row, which each step replaces by
// compare-and-set, so any process may serve any group at any time. Requests that wait in one process for one group
// share a step. Every event up to the ledger's readTo is settled, or is in the ledger (in flight, or after an earlier
// event of its stream), or is a row of the retries or of the dead letters.
package subscription
