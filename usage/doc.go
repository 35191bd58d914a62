// Package usage counts what tenants use, by UTC days, for billing. Start with Meter, which counts in memory and saves
// in the background, and Postgres, which owns the days.
//
// A counter only grows in memory until it is saved. What a process has counted is saved every two seconds as numbered
// batches: the transaction that adds a batch also stores its number. So a batch whose answer was lost is sent again,
// and counts once. A process that is killed loses what it has counted since its last batch.
package usage
