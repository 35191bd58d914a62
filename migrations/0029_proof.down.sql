drop table manifold.seal_receipts, manifold.seal_subtrees, manifold.seals, manifold.sealed_logs, manifold.signing_keys;
