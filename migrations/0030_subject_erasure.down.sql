alter table manifold.schema_versions drop column personal;
drop table manifold.erasures, manifold.erased_events;
alter table manifold.events drop column erased;
