// Package projection compiles definitions into folds, and folds tenants' logs into documents.
//
//   - Definitions: ParseDefinition and ReadDefinitions read them from YAML or JSON, Check reports what is wrong with
//     one, and
//     Compile turns one into a Fold. A Handler is a fold written in Go.
//   - Replay folds the events of one tenant into one build, batch by batch, from the build's own checkpoint. Package
//     rebuild fills new builds with it.
//   - Runner follows every (projection, tenant) pair and keeps the live builds up to date with the logs.
//   - Inline folds appended events within the append's own transaction. Catalog folds live projections on request.
//   - Catalog is the clients' view: definitions, their status, and their documents.
//
// A database of documents holds no other state than documents and their checkpoints, which a drivers.Driver saves
// together. Every save is a compare-and-set on the checkpoint. So any number of processes may work on the same pair,
// and each event takes effect once, whichever process is faster.
package projection
