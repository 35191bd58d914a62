-- What a process reports about the egresses that it runs: an array of domain.EgressReport. Null is what a process of the
-- previous release leaves.
alter table manifold.members add column egresses jsonb;
