// Package group delivers events to the consumers of groups, with leases, attempts and dead letters.
//
// Groups is the entry point. A ledger is a value in memory that holds what a group, or one of its partitions, has in
// flight. The delivery rules are its methods. It is stored as one database row, which each step replaces by
// compare-and-set, so any process may serve any group at any time. Requests that wait in one process for one group
// share a step. Every event up to the ledger's readTo is settled, or is in the ledger (in flight, or after an earlier
// event of its stream), or is a row of the retries or of the dead letters. Postgres has the tables.
package group
