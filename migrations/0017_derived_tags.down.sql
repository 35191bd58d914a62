revoke update (last_batch) on manifold.logs from manifold_retention;
revoke insert on manifold.tagged_events from manifold_retention;
revoke insert, update on manifold.event_tags from manifold_retention;
revoke update (tagged) on manifold.events from manifold_retention;
drop table manifold.schema_retags;
alter table manifold.event_tags drop column derived;
alter table manifold.schema_types drop column tags;
