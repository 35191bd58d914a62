-- Schemas of event types, and which categories check them. All rows of a tenant share one revision, which grows with each
-- change: processes that keep schemas in memory compare it.
create table manifold.schema_sets (
  tenant_id uuid primary key,
  revision  bigint not null
);

create table manifold.schema_types (
  tenant_id     uuid not null,
  event_type    text collate "C" not null,
  compatibility text not null, -- schema.Compatibility
  updated_at    timestamptz not null default now(),
  primary key (tenant_id, event_type)
);

create table manifold.schema_versions (
  tenant_id  uuid not null,
  event_type text collate "C" not null,
  version    bigint not null,
  schema     text not null,    -- as it was sent
  breaking   boolean not null, -- incompatible with the version before, which an upcaster converts
  revision   bigint not null,  -- of the change that added it, so no two versions of a tenant have the same
  by         text not null,
  created_at timestamptz not null default now(),
  primary key (tenant_id, event_type, version)
);

create table manifold.schema_rules (
  tenant_id     uuid not null,
  category      text collate "C" not null,
  mode          text not null,    -- schema.Mode
  unknown_types text not null,    -- schema.UnknownTypes
  by            text not null,
  updated_at    timestamptz not null default now(),
  primary key (tenant_id, category)
);

do $$
declare
  name text;
begin
  foreach name in array array['schema_sets', 'schema_types', 'schema_versions', 'schema_rules'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
    execute format('grant select, insert, update, delete on manifold.%I to manifold_app', name);
    execute format('grant select, delete on manifold.%I to manifold_retention', name);
  end loop;
end $$;
