-- A projection's row is the one place that says which build is live. Shared projections have the nil UUID as their
-- owner, which no tenant ever has; tenants may read those rows, so that the build can be looked up with the events.
create table manifold.projections (
  tenant_id  uuid not null,
  name       text collate "C" not null,
  definition jsonb not null,
  build      bigint not null,
  revision   bigint not null default 1,
  held_by    uuid,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (tenant_id, name)
) with (fillfactor = 50);

-- Build numbers are never used again, also when everything that had them is gone.
create table manifold.build_numbers (
  tenant_id uuid primary key,
  last      bigint not null
);

create table manifold.rebuilds (
  tenant_id    uuid not null,
  name         text collate "C" not null,
  rebuild_id   uuid not null,
  build        bigint not null,
  definition   jsonb not null,
  state        text collate "C" not null check (state in
    ('queued', 'building', 'catching-up', 'validating', 'swapped', 'cancelled', 'failed')),
  cancel       boolean not null default false,
  worker       uuid,
  alive_at     timestamptz,
  events_done  bigint not null default 0,
  events_total bigint not null default 0,
  documents    bigint not null default 0,
  live_before  bigint not null default 0,
  error        text,
  created_at   timestamptz not null default now(),
  started_at   timestamptz,
  updated_at   timestamptz not null default now(),
  ended_at     timestamptz,
  primary key (tenant_id, name, rebuild_id)
);
-- One at a time for a projection.
create unique index rebuilds_running on manifold.rebuilds (tenant_id, name)
  where state in ('queued', 'building', 'catching-up', 'validating');

create table manifold.retired_builds (
  tenant_id  uuid not null,
  name       text collate "C" not null,
  build      bigint not null,
  database   text collate "C" not null,
  drop_at    timestamptz not null,
  primary key (tenant_id, name, build)
);

create table manifold.faults (
  tenant_id uuid not null,
  owner     uuid not null, -- the tenant's own projection, or (the nil UUID) a shared one
  name      text collate "C" not null,
  build     bigint not null,
  position  bigint not null,
  event_id  uuid not null,
  message   text not null,
  at        timestamptz not null default now(),
  primary key (tenant_id, owner, name, build)
);

do $$
declare
  name text;
begin
  foreach name in array array['projections', 'build_numbers', 'rebuilds', 'retired_builds', 'faults'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
    execute format('create policy system on manifold.%I for select to manifold_system using (true)', name);
    execute format('grant select, insert, update, delete on manifold.%I to manifold_app', name);
    execute format('grant select on manifold.%I to manifold_system', name);
    execute format('grant select, delete on manifold.%I to manifold_retention', name);
  end loop;
end $$;
create policy shared on manifold.projections for select to manifold_app
  using (tenant_id = '00000000-0000-0000-0000-000000000000'
    and nullif(current_setting('manifold.tenant', true), '') is not null);

-- Documents of projections whose database is this one. The documents role owns the schema and makes its tables itself;
-- the views' owner sees every tenant's documents, for people who read the database directly.
create schema manifold_documents;
grant all on schema manifold_documents to manifold_documents;
grant usage, create on schema manifold_documents to manifold_views;
do $$
begin
  if not pg_has_role('manifold_documents', 'manifold_views', 'member') then
    grant manifold_views to manifold_documents;
  end if;
end $$;
