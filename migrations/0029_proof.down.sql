drop table manifold.signing_keys;
