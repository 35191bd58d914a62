// Package seal seals logs: it puts a leaf for each event into a Merkle tree, and signs the tree's root, so that a
// changed, removed or reordered event can be found later. Package proof has the forms of leaves, checkpoints and
// receipts.
//
// Start with Sealer, which seals the logs that its process owns in the background, off the append path. Postgres has
// the tables: the leaves with the salts of their contents, the roots of subtrees, and the signed checkpoint. Whatever
// removes or erases events leaves a signed receipt, with WithReceipts or ForgetSalts.
// docs/decisions/0116-logs-are-sealed-in-the-background.md has the reasons.
package seal
