// Package upcasting converts old events to their newest form before expressions see them. The upcasters of the event's
// tenant change its data step by step. Everything that folds events, projections and aggregates alike, asks Upcasters
// for the Set in force, and applies it to each event. Reads of the log do not.
package upcasting
