// Package tail gives followers the events of a log, from any position on, as it grows.
//
// Start with Tails and Feed. Tails has one tail for each followed tenant. It reads the log once for all followers, as
// events arrive, and keeps the newest events in memory, bounded in bytes. A Feed is one follower's position in the log.
// While that position is in the tail's memory, the feed takes events from there. If the follower started further back
// or is slow, the feed reads the log directly. So a slow follower costs only its own reads. Switching from history to
// live means finding the next position in memory.
package tail
