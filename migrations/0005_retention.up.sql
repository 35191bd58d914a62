-- What is removed of a category, and how far that has come. The app writes what somebody asked for, the retention login what
-- it has done of it.
create table manifold.retention_policies (
  tenant_id       uuid not null,
  category        text collate "C" not null,
  max_age_seconds bigint check (max_age_seconds > 0),
  max_count       bigint check (max_count >= 0),
  compact         boolean not null default false,
  force           jsonb not null default '{}', -- domain.RetentionForce: whose holds do not count
  revision        bigint not null,             -- begins anywhere, so that a policy that is made anew never meets its predecessor
  created_at      timestamptz not null default now(),
  updated_at      timestamptz not null default now(),
  asked_at        timestamptz,                 -- somebody wants it run now
  swept_to        bigint not null default 0,   -- up to here nothing is left that age or count says should go, but what is spared
  compacted_to    bigint not null default 0,   -- up to here each stream has its newest event only, but for what is spared
  spared          bigint not null default 0,   -- rows in retention_spared
  held_by         jsonb not null default '[]', -- domain.RetentionHold: what held the last run, the lowest first
  last_run_at     timestamptz,
  last_error      text,
  primary key (tenant_id, category)
) with (fillfactor = 50);

-- The highest position that was removed of a category, and the highest that is about to be. Written in the transaction that
-- removes; announced before anybody is asked what they still need. The rows outlive their policy.
create table manifold.retention_floors (
  tenant_id    uuid not null,
  category     text collate "C" not null,
  announced_to bigint not null,
  removed_to   bigint not null default 0,
  removed      bigint not null default 0, -- events
  run_id       uuid not null,             -- whoever announced last: nobody else may remove
  updated_at   timestamptz not null default now(),
  primary key (tenant_id, category)
) with (fillfactor = 50);

-- Events that should be gone, and are kept because a dead letter or a parked document names them.
create table manifold.retention_spared (
  tenant_id uuid not null,
  category  text collate "C" not null,
  position  bigint not null,
  primary key (tenant_id, category, position)
);

-- Builds that were made, or went on, when events that they fold were gone: their documents lack those.
create table manifold.build_losses (
  tenant_id  uuid not null,
  owner      uuid not null,
  name       text collate "C" not null,
  build      bigint not null,
  category   text collate "C" not null,
  removed_to bigint not null,
  at         timestamptz not null default now(),
  primary key (tenant_id, owner, name, build, category)
);

do $$
declare
  name text;
begin
  foreach name in array array['retention_policies', 'retention_floors', 'retention_spared', 'build_losses'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
  end loop;
  -- What is listed across tenants: whose policies there are, and how much of whose log is gone.
  foreach name in array array['retention_policies', 'retention_floors', 'build_losses'] loop
    execute format('create policy system on manifold.%I for select to manifold_system using (true)', name);
  end loop;
end $$;
grant select, insert, update, delete on manifold.retention_policies to manifold_app;
grant select on manifold.retention_floors to manifold_app;
grant select, insert, update, delete on manifold.build_losses to manifold_app;
grant select, delete on manifold.build_losses to manifold_retention;
grant select (tenant_id, owner, name, build) on manifold.build_losses to manifold_system;
grant select (tenant_id, category, revision, asked_at, last_run_at) on manifold.retention_policies to manifold_system;
grant select (tenant_id, category, announced_to, removed_to, removed) on manifold.retention_floors to manifold_system;
grant select, delete, update (asked_at, swept_to, compacted_to, spared, held_by, last_run_at, last_error)
  on manifold.retention_policies to manifold_retention;
grant select, insert, update, delete on manifold.retention_floors to manifold_retention;
grant select, insert, delete on manifold.retention_spared to manifold_retention;

-- Whether an event waits for a parked document is asked for event by event.
create index parked_events_position on manifold.parked_events (tenant_id, position, name);
create index parked_documents_position on manifold.parked_documents (tenant_id, position, name);

-- What was missing when it was made, where somebody took that into account.
alter table manifold.rebuilds add column loss jsonb;                              -- null: nothing
alter table manifold.snapshots add column removed_to bigint not null default 0;   -- the version up to which events were missing
