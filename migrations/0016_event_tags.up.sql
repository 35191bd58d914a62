-- The tags of events. Only tagged events have rows: one in event_tags, and one in tagged_events for each of their tags. A
-- table finds the events of a tag, or the tags of an event, and has one index each: while a table has no statistics, the
-- planner could not tell the better one of two.
create table manifold.event_tags (
  tenant_id uuid not null,
  position  bigint not null,
  tags      text[] collate "C" not null,
  primary key (tenant_id, position)
) with (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000, autovacuum_freeze_min_age = 0);
create table manifold.tagged_events (
  tenant_id  uuid not null,
  tag        text collate "C" not null,
  position   bigint not null,
  event_type text collate "C" not null,
  primary key (tenant_id, tag, position) include (event_type)
) with (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000, autovacuum_freeze_min_age = 0);

do $$
declare
  name text;
begin
  foreach name in array array['event_tags', 'tagged_events'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
  end loop;
end $$;
grant select, insert on manifold.event_tags, manifold.tagged_events to manifold_app;
grant select, delete on manifold.event_tags, manifold.tagged_events to manifold_retention;

-- True for an event with a row in event_tags; otherwise null. The tags are not here because a column of a wide type would
-- let the planner take a tenant's part of a table without statistics for one row (see 0010).
alter table manifold.events add column tagged boolean;
