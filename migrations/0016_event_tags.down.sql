alter table manifold.events drop column tagged;
drop table manifold.tagged_events;
drop table manifold.event_tags;
