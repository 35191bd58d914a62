-- How many documents of a rebuild began from snapshots of an aggregate's states.
alter table manifold.rebuilds add column seeded bigint not null default 0;
