// Package selection says which events of a log a reader selects, where it begins, and which gaps to report to it.
// Followers and groups share it. Start with New, ResolveFrom and GapOf.
package selection
