-- The logins. They are the server's, not the database's: another Manifold database on it may have made them already.
do $$
declare
  name text;
begin
  foreach name in array array['manifold_app', 'manifold_system', 'manifold_documents', 'manifold_retention'] loop
    if not exists (select from pg_roles where rolname = name) then
      begin
        -- noinherit: the documents role may hand a view to manifold_views, but must not see by its policies itself
        execute format('create role %I login noinherit', name);
      exception when duplicate_object or unique_violation then
        null; -- made at this moment by somebody else
      end;
    end if;
  end loop;
  if not exists (select from pg_roles where rolname = 'manifold_views') then
    begin
      create role manifold_views nologin; -- owns the public views over documents, which see every tenant's
    exception when duplicate_object or unique_violation then
      null;
    end;
  end if;
end $$;

create schema manifold;
grant usage on schema manifold to manifold_app, manifold_system, manifold_documents, manifold_retention;

-- Small and global: a reference table where the database is sharded by tenant.
create table manifold.tenants (
  tenant_id  uuid primary key,
  name       text collate "C" not null,
  state      text collate "C" not null check (state in ('active', 'suspended', 'deleting', 'deleted')),
  created_at timestamptz not null default now(),
  deleted_at timestamptz
);
-- The one index that does not begin with the tenant: it is what names are unique by.
create unique index tenants_name on manifold.tenants (name) where state <> 'deleted';

create table manifold.keys (
  tenant_id  uuid not null,
  key_id     uuid not null,
  name       text collate "C" not null,
  hash       bytea not null,
  scopes     text[] not null,
  created_at timestamptz not null default now(),
  revoked_at timestamptz,
  primary key (tenant_id, key_id)
);

-- One row a tenant: the head of its log, and the batch that moved it there. Nearly every append updates it, so its pages
-- leave room for the next row version beside the last (heap-only updates).
create table manifold.logs (
  tenant_id  uuid primary key,
  head       bigint not null default 0,
  last_batch uuid,
  last_at    timestamptz
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

create table manifold.events (
  tenant_id      uuid not null,
  position       bigint not null,
  event_id       uuid not null,
  stream_id      text collate "C" not null,
  stream_version bigint not null,
  event_type     text collate "C" not null,
  event_data     jsonb not null,
  metadata       jsonb,
  occurred_at    timestamptz,
  created_at     timestamptz not null,
  category       text collate "C" not null generated always as (split_part(stream_id, '-', 1)) stored,
  primary key (tenant_id, position),
  unique (tenant_id, stream_id, stream_version),
  unique (tenant_id, event_id)
);
create index events_category on manifold.events (tenant_id, category, position) include (event_type);

-- The version that a stream had when retention removed its newest event: versions are never used twice.
create table manifold.stream_floors (
  tenant_id uuid not null,
  stream_id text collate "C" not null,
  version   bigint not null,
  primary key (tenant_id, stream_id)
);

create table manifold.aggregates (
  tenant_id  uuid not null,
  category   text collate "C" not null,
  definition jsonb not null,
  updated_at timestamptz not null default now(),
  primary key (tenant_id, category)
);

create table manifold.snapshots (
  tenant_id uuid not null,
  stream_id text collate "C" not null,
  tag       text collate "C" not null,
  version   bigint not null,
  state     jsonb not null,
  taken_at  timestamptz not null default now(),
  primary key (tenant_id, stream_id, tag, version)
);

-- Row-level security: the tenant is set locally in the transaction (set local manifold.tenant = '...'); where it is not,
-- no row is seen and none can be written. Forced, so that it holds for the tables' owner as well.
do $$
declare
  name text;
begin
  foreach name in array array['keys', 'logs', 'events', 'stream_floors', 'aggregates', 'snapshots'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
  end loop;
end $$;
alter table manifold.tenants enable row level security;
alter table manifold.tenants force row level security;
create policy tenant on manifold.tenants for select to manifold_app
  using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid);

-- What the system role reads across tenants, and the little that it writes.
create policy system on manifold.tenants to manifold_system using (true);
create policy system on manifold.keys to manifold_system using (true);
create policy system on manifold.logs for select to manifold_system using (true);
create policy system on manifold.aggregates for select to manifold_system using (true);

grant select, insert on manifold.events to manifold_app;
grant select, insert, update on manifold.logs to manifold_app;
grant select on manifold.stream_floors, manifold.tenants to manifold_app;
grant select, insert, update, delete on manifold.aggregates, manifold.snapshots to manifold_app;

grant select, insert, update on manifold.tenants to manifold_system;
grant select, insert, update, delete on manifold.keys to manifold_system;
grant select on manifold.logs, manifold.aggregates to manifold_system;
-- The migrations' own table, made before the first of them runs: a process looks at its start whether the schema fits.
grant select on manifold_schema to manifold_system;

grant select, delete on manifold.events, manifold.logs, manifold.aggregates, manifold.snapshots to manifold_retention;
grant select, insert, update, delete on manifold.stream_floors to manifold_retention;
