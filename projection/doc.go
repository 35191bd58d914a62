// Package projection folds tenants' logs into documents, and serves the documents.
//
// Package folding compiles definitions into folds. Here, a file's prefix names its room. Each room may use those listed
// before it:
//
//   - replay: Replay folds the events of one tenant into one build, batch by batch, from the build's own checkpoint.
//     Package rebuild fills new builds with it.
//   - inline: Inline folds appended events within the append's own transaction.
//   - follow: Runner follows every (projection, tenant) pair and keeps the live builds up to date with the logs.
//   - catalog, documents, status, event_documents: Catalog is the clients' view of definitions, of their status, and of
//     their documents. live folds the documents of a live projection on request.
//   - parked, fault: parked documents and skipped events, which Catalog replays, discards or withdraws.
//
// A database of documents holds no other state than documents and their checkpoints, which a drivers.Driver saves
// together. Every save is a compare-and-set on the checkpoint. So any number of processes may work on the same pair,
// and each event takes effect once, whichever process is faster.
package projection
