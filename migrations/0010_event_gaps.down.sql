revoke update (event_data, metadata, gap, gap_at) on manifold.events from manifold_retention;
alter table manifold.events drop column gap_at, drop column gap;
