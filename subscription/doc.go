// Package subscription delivers events: to followers, from any place in a log and on as it grows, and to the consumers of
// groups, with leases, attempts and dead letters.
//
// Following. Tails has one Tail for each tenant that somebody follows: it reads the log once for all followers, as events come,
// and keeps the newest of them in memory, bounded in bytes. A Feed is one follower's place in the log. While that place is in
// the tail's memory the feed takes events from there; while it is not, since the follower began further back or is slow, it reads
// from the log by itself. So a slow follower costs a read of its own and nobody else anything, and going from history
// to live is no more than finding the next position in memory.
//
// Groups. What a group, or each of its partitions, has in flight is a Ledger: a value in memory with the rules as its methods.
// It is kept as one row in the database, which every step replaces by a compare-and-set, so that any process may
// serve any group at any time; the requests that wait in one process for one group go together in one step. Everything up to
// the ledger's ReadTo is settled, or is in the ledger (in flight, or behind an event of its stream), or is a row of the
// retries or of the dead letters.
package subscription
