// Package upcasting gives events as expressions are to see them: with the data of old ones brought into the newest form by
// the upcasters of their tenant, step by step. What folds events, projections and aggregates alike, asks Upcasters for the
// Set in force, and puts each event through it. Reads of the log do not.
package upcasting
