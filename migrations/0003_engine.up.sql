-- What each definition of a projection was, from the first to the present. The rows outlive their projection.
create table manifold.projection_versions (
  tenant_id  uuid not null,
  name       text collate "C" not null,
  version    bigint not null,
  definition jsonb not null,
  cause      text collate "C" not null check (cause in ('created', 'changed', 'rolled-back', 'removed')),
  by         text not null,
  rebuild_id uuid,
  at         timestamptz not null default now(),
  primary key (tenant_id, name, version)
);
alter table manifold.projections add column version bigint not null default 1;
-- The owner of the tables sees every row for a moment.
alter table manifold.projections no force row level security;
insert into manifold.projection_versions (tenant_id, name, version, definition, cause, by, at)
  select p.tenant_id, p.name, 1, p.definition, 'created', 'before versions were kept', p.created_at from manifold.projections p;
alter table manifold.projections force row level security;

-- The build that is live for one tenant, where it is not simply the projection's own. It is in force while base is the
-- projection's own live build, so that a swap for all ends all of them at once; without base in any case (inline).
create table manifold.tenant_builds (
  tenant_id  uuid not null,
  owner      uuid not null, -- the tenant's own projection, or (the nil UUID) a shared one
  name       text collate "C" not null,
  build      bigint not null,
  base       bigint,
  definition jsonb,         -- null: the projection's
  held_by    uuid,
  updated_at timestamptz not null default now(),
  primary key (tenant_id, owner, name)
) with (fillfactor = 50);

-- Grows with each change of the tenant's inline builds: an append that has folded into others is a lost attempt.
alter table manifold.logs add column inline_revision bigint not null default 0;

alter table manifold.rebuilds
  add column options     jsonb not null default '{}', -- domain.RebuildOptions
  add column rollback_of uuid,
  add column by          text not null default '',
  add column paused      boolean not null default false,
  add column approved    boolean not null default false,
  add column difference  jsonb,
  add column previous    jsonb,
  add column events_per_second double precision not null default 0,
  drop constraint rebuilds_state_check,
  add constraint rebuilds_state_check check (state in ('queued', 'building', 'catching-up', 'validating', 'awaiting-approval',
    'swapped', 'reported', 'rolled-back', 'cancelled', 'failed'));
drop index manifold.rebuilds_running;
create unique index rebuilds_running on manifold.rebuilds (tenant_id, name)
  where state in ('queued', 'building', 'catching-up', 'validating', 'awaiting-approval');

-- A build that is being dropped cannot be rolled back to any more.
alter table manifold.retired_builds add column dropping boolean not null default false;

alter table manifold.faults
  add column stream      text collate "C" not null default '',
  add column event_type  text collate "C" not null default '',
  add column document_id text collate "C" not null default '',
  add column place       text not null default '', -- in the definition
  add column expression  text not null default '',
  add column before      jsonb;

-- Documents that are set aside, and the events that wait for them. A row of document_id '' would be events whose document
-- cannot be told: they are kept one by one, with the event's id behind a blank, which no document's id has at its start.
create table manifold.parked_documents (
  tenant_id   uuid not null,
  owner       uuid not null,
  name        text collate "C" not null,
  build       bigint not null,
  document_id text collate "C" not null,
  position    bigint not null,
  event_id    uuid not null,
  stream      text collate "C" not null,
  event_type  text collate "C" not null,
  place       text not null,
  expression  text not null,
  message     text not null,
  before      jsonb,
  removed_at  bigint,      -- a replay was about to remove the document by the event at this position
  parked_at   timestamptz not null default now(),
  primary key (tenant_id, owner, name, build, document_id)
);
create table manifold.parked_events (
  tenant_id   uuid not null,
  owner       uuid not null,
  name        text collate "C" not null,
  build       bigint not null,
  document_id text collate "C" not null,
  position    bigint not null,
  primary key (tenant_id, owner, name, build, document_id, position)
);
create table manifold.skipped_events (
  tenant_id uuid not null,
  owner     uuid not null,
  name      text collate "C" not null,
  version   bigint not null, -- of the definition
  position  bigint not null,
  event_id  uuid not null,
  message   text not null,
  reason    text not null,
  by        text not null,
  at        timestamptz not null default now(),
  primary key (tenant_id, owner, name, version, position)
);

create table manifold.upcasters (
  tenant_id  uuid not null, -- the nil UUID: of all tenants' events
  event_type text collate "C" not null,
  version    bigint not null,
  expression text not null,
  revision   bigint not null default 1,
  by         text not null,
  updated_at timestamptz not null default now(),
  primary key (tenant_id, event_type, version)
);

-- One row for each owner that has, or had, upcasters: the revision grows with each change, also when one is removed.
create table manifold.upcaster_sets (
  tenant_id uuid primary key,
  revision  bigint not null
);

do $$
declare
  name text;
begin
  foreach name in array array['projection_versions', 'tenant_builds', 'parked_documents', 'parked_events', 'skipped_events', 'upcasters',
      'upcaster_sets'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
    execute format('grant select, insert, update, delete on manifold.%I to manifold_app', name);
    execute format('grant select, delete on manifold.%I to manifold_retention', name);
  end loop;
  -- What is listed across tenants.
  foreach name in array array['tenant_builds', 'upcasters', 'upcaster_sets'] loop
    execute format('create policy system on manifold.%I for select to manifold_system using (true)', name);
    execute format('grant select on manifold.%I to manifold_system', name);
  end loop;
end $$;
-- Whose documents are parked is listed across tenants, and what they are is not.
create policy system on manifold.parked_documents for select to manifold_system using (true);
grant select (tenant_id, owner, name, build, document_id) on manifold.parked_documents to manifold_system;
create policy shared on manifold.upcasters for select to manifold_app
  using (tenant_id = '00000000-0000-0000-0000-000000000000'
    and nullif(current_setting('manifold.tenant', true), '') is not null);
create policy shared on manifold.upcaster_sets for select to manifold_app
  using (tenant_id = '00000000-0000-0000-0000-000000000000'
    and nullif(current_setting('manifold.tenant', true), '') is not null);

-- Processes that work on projections, and their signs of life. Small and global.
create table manifold.members (
  member_id  uuid primary key,
  name       text not null,
  version    text not null,
  started_at timestamptz not null default now(),
  alive_at   timestamptz not null default now()
);
alter table manifold.members enable row level security;
alter table manifold.members force row level security;
create policy system on manifold.members to manifold_system using (true);
grant select, insert, update, delete on manifold.members to manifold_system;

-- What a tenant gets of the work on projections.
alter table manifold.tenants
  add column weight  integer not null default 1 check (weight between 1 and 100),
  add column ceiling integer not null default 0 check (ceiling between 0 and 1000);

-- Inline projections: an append saves documents in its own transaction, as the app login, under its tenant. What the
-- documents' login has made already it grants itself, when it opens (drivers/postgres).
grant usage on schema manifold_documents to manifold_app;

-- By these an append's transaction gives itself up: what it has found, once it could not turn back any more, is not what it
-- was made for. ML001: somebody else has moved the log's head, or other builds are folded into. ML002: a build is not at
-- the head.
create function manifold.lost_attempt() returns timestamptz language plpgsql as $$
begin
  raise exception using errcode = 'ML001', message = 'somebody else has appended, or changed what appends fold into';
end $$;
create function manifold_documents.lost_attempt() returns boolean language plpgsql as $$
begin
  raise exception using errcode = 'ML002', message = 'the build is not where the batch starts';
end $$;
