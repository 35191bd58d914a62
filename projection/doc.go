// Package projection turns definitions into folds, and folds tenants' logs into documents.
//
//   - Definitions: ParseDefinition and ReadDefinitions read them from YAML or JSON, Check says what is wrong with one,
//     Compile makes a Fold of it. A Handler is the same thing written in Go.
//   - Replay folds the events of one tenant into one build, batch by batch, from the build's own checkpoint. Package
//     rebuild fills new builds with it.
//   - Runner follows every (projection, tenant) pair: it keeps the live builds up with the logs.
//   - Inline folds what is appended within its own transaction; Catalog folds live projections when somebody asks.
//   - Catalog is what clients see: definitions, their status, and their documents.
//
// The package keeps no state in its database but documents with their checkpoints, which a drivers.Driver saves
// together. Every save is a compare-and-set on the checkpoint, so any number of processes may work on the same pair:
// each event takes effect once, whoever is faster.
package projection
