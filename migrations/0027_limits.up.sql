-- Named sets of limits and quotas. The plan "default", if there is one, is that of tenants without a plan.
create table manifold.plans (
  name       text collate "C" primary key,
  limits     jsonb not null, -- domain.Limits
  quotas     jsonb not null, -- domain.Quotas
  updated_at timestamptz not null default now()
);

-- A tenant's plan, and what replaces the plan's limits and quotas.
create table manifold.tenant_limits (
  tenant_id  uuid primary key,
  plan       text collate "C", -- null: the default plan
  limits     jsonb not null,
  quotas     jsonb not null,
  updated_at timestamptz not null default now()
);

-- What each process has leased of a tenant's or key's limits. Rows in use are updated several times a second, so their
-- pages leave room for the next row versions (heap-only updates). A row that is lost, or unused for a day, begins anew.
create table manifold.limit_ledgers (
  tenant_id  uuid not null,
  key_id     uuid not null, -- zero: the tenant's
  state      jsonb not null,
  updated_at timestamptz not null default now(),
  primary key (tenant_id, key_id)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Whoever creates something that a quota limits updates its row first, so that transactions count one after the other.
create table manifold.quota_checks (
  tenant_id  uuid not null,
  quota      text collate "C" not null,
  checked_at timestamptz not null default now(),
  primary key (tenant_id, quota)
);

-- What is stored of the events up to counted_to, of tenants with a quota for that.
create table manifold.stored_events (
  tenant_id  uuid primary key,
  counted_to bigint not null default 0,
  events     bigint not null default 0,
  bytes      bigint not null default 0,
  complete   boolean not null default false -- counted_to has reached the head of the log once
);

-- What tenants have used by UTC days.
create table manifold.usage_days (
  tenant_id  uuid not null,
  day        date not null,
  events     bigint not null,
  bytes      bigint not null,
  documents  bigint not null,
  deliveries bigint not null,
  steps      bigint not null, -- of expressions
  primary key (tenant_id, day)
);

-- The number of the last batch that a process has added to usage_days, so that a repeated batch is not added again.
create table manifold.usage_writers (
  writer_id uuid primary key,
  number    bigint not null,
  saved_at  timestamptz not null default now()
);

-- Limits of a key, within those of its tenant; null: none.
alter table manifold.keys add column limits jsonb;

do $$
declare
  name text;
begin
  foreach name in array array['tenant_limits', 'limit_ledgers', 'quota_checks', 'stored_events', 'usage_days'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
    execute format('create policy system on manifold.%I to manifold_system using (true)', name);
    execute format('grant select, delete on manifold.%I to manifold_retention', name);
  end loop;
end $$;
alter table manifold.usage_writers enable row level security;
alter table manifold.usage_writers force row level security;
create policy system on manifold.usage_writers to manifold_system using (true);
alter table manifold.plans enable row level security;
alter table manifold.plans force row level security;
create policy system on manifold.plans to manifold_system using (true);
create policy app on manifold.plans for select to manifold_app using (true);

grant select, insert, update, delete on manifold.plans, manifold.tenant_limits, manifold.limit_ledgers, manifold.quota_checks, manifold.usage_days, manifold.usage_writers
  to manifold_system;
grant select on manifold.plans, manifold.tenant_limits to manifold_app;
grant select, insert, update on manifold.quota_checks, manifold.stored_events to manifold_app;
grant select on manifold.stored_events to manifold_system;
grant update on manifold.stored_events to manifold_retention;
