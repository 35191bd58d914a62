// Package domain defines the types that Manifold's packages share, and the rules that follow from these types alone:
// valid stream names, the JSON that the log can keep, and when the expected version of an append holds. Start with
// Event, Append and Definition.
//
// It imports only the standard library, does no I/O and keeps no state. Every other package uses its types. An
// interface that one package requires of another has only domain types in its signatures. Values are plain data. Unless
// a type says otherwise, many goroutines may read a value, and nobody may change it after passing it on.
package domain
