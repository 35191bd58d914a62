// Package selection says which events of a log a reader selects, at which position it begins, and of which gaps it is
// told. Followers and groups share it. Start with New, ResolveFrom and GapOf.
package selection
