-- The expression by which a type's schema derives tags; empty: none.
alter table manifold.schema_types add column tags text not null default '';

-- Those of an event's tags that only its type's schema has given it; null: none. The others came with the append.
alter table manifold.event_tags add column derived text[] collate "C";

-- How far stored events have the tags that their type's schema derives. A row is made by each change of the expression.
create table manifold.schema_retags (
  tenant_id    uuid not null,
  event_type   text collate "C" not null,
  expression   text not null,               -- empty: derived tags are removed, and then the row
  not_before   timestamptz not null,        -- every process derives by the expression then
  upcasters    text not null default '',    -- a digest of those that the job applies
  position     bigint not null default 0,   -- events up to here are done
  until        bigint,                      -- the last event to look at; null: the job has not begun
  events       bigint not null default 0,   -- of the type, up to position
  changed      bigint not null default 0,   -- of them
  failed       bigint not null default 0,   -- of them, the expression failed
  failures     jsonb not null default '[]', -- schema.RetagFailure: the first of these
  worker       uuid,                        -- the worker that holds the lease
  leased_until timestamptz,                 -- when the lease expires
  started_at   timestamptz,
  updated_at   timestamptz not null default now(),
  finished_at  timestamptz,
  primary key (tenant_id, event_type)
) with (fillfactor = 50);

alter table manifold.schema_retags enable row level security;
alter table manifold.schema_retags force row level security;
create policy tenant on manifold.schema_retags to manifold_app, manifold_retention
  using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid);
create policy system on manifold.schema_retags for select to manifold_system using (true);
grant select, insert, update, delete on manifold.schema_retags to manifold_app;
grant select, delete on manifold.schema_retags to manifold_retention;
grant update (position, events, changed, failed, failures, leased_until, updated_at) on manifold.schema_retags to manifold_retention;
grant select (tenant_id, event_type, not_before, leased_until, finished_at) on manifold.schema_retags to manifold_system;

-- To retag events, the retention login, which alone changes stored events, replaces their tags, and the log's batch: so
-- writers notice that what they remember of tags is old.
grant update (tagged) on manifold.events to manifold_retention;
grant insert, update (tags, derived) on manifold.event_tags to manifold_retention;
grant insert on manifold.tagged_events to manifold_retention;
grant update (last_batch) on manifold.logs to manifold_retention;
