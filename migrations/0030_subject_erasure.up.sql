-- True for an event from which the data of a person was removed; otherwise null. Narrow, as gap is (see 0010).
alter table manifold.events add column erased boolean;

-- Which erasures have changed which events. It explains a changed event, and an interrupted erasure continues from here.
-- An event's id and stream stay here if retention removes the event in the middle of an erasure.
create table manifold.erased_events (
  tenant_id  uuid not null,
  position   bigint not null,
  erasure_id uuid not null,
  derived    boolean not null default false, -- made by the service from an event of the subject
  event_id   uuid not null,
  stream_id  text collate "C" not null,
  erased_at  timestamptz not null default now(),
  primary key (tenant_id, position, erasure_id)
);
create index erased_events_erasure on manifold.erased_events (tenant_id, erasure_id, position);
create index erased_events_stream on manifold.erased_events (tenant_id, erasure_id, stream_id);

-- Erasures of data subjects. subject is null once nothing needs it any longer.
create table manifold.erasures (
  tenant_id    uuid not null,
  erasure_id   uuid not null,
  subject      text collate "C",
  subject_hash bytea not null,            -- SHA-256 of the erasure's id, a line feed and the subject
  what         text collate "C" not null, -- subjects.What
  reason       text not null,
  accept_loss  boolean not null,          -- documents may be folded again although retention has removed events
  requested_by jsonb not null,            -- subjects.Actor
  approved_by  jsonb,
  state        text collate "C" not null, -- subjects.State
  step         text collate "C" not null default 'events', -- subjects.Step
  until        bigint not null,           -- the log's head when it was requested: later events are not covered
  position     bigint not null default 0, -- of the step
  counts       jsonb not null default '{}',
  plan         jsonb not null default '{}', -- subjects.plan
  problem      text,                      -- why it does not proceed
  not_before   timestamptz,               -- when the step may begin
  worker       uuid,
  leased_until timestamptz,
  receipt      text,
  created_at   timestamptz not null default now(),
  approved_at  timestamptz,
  erased_at    timestamptz,               -- when the last events were erased
  finished_at  timestamptz,
  primary key (tenant_id, erasure_id)
);
create index erasures_running on manifold.erasures (tenant_id, created_at, erasure_id) where state = 'running';

-- JSON Pointers to the personal data in an event of the version; null: all of its data is personal.
alter table manifold.schema_versions add column personal jsonb;

do $$
declare
  name text;
begin
  foreach name in array array['erased_events', 'erasures'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
    execute format('grant select, delete on manifold.%I to manifold_retention', name);
  end loop;
end $$;
create policy system on manifold.erasures for select to manifold_system using (true);
grant select (tenant_id, erasure_id, state, not_before, leased_until, created_at) on manifold.erasures to manifold_system;
grant select on manifold.erased_events to manifold_app;
grant insert on manifold.erased_events to manifold_retention;
grant select, insert, update on manifold.erasures to manifold_app;
grant update (position, counts, plan, leased_until) on manifold.erasures to manifold_retention;
grant update (erased) on manifold.events to manifold_retention;
