-- Consumers that the service runs for many tenants at once, and when they were first declared: from then on they are given
-- events. tenant_id is the tenant whose own a consumer is, or the nil uuid.
create table manifold.service_consumers (
  tenant_id uuid not null,
  kind      text collate "C" not null,
  name      text collate "C" not null,
  since     timestamptz not null default now(),
  primary key (tenant_id, kind, name)
);
alter table manifold.service_consumers enable row level security;
alter table manifold.service_consumers force row level security;
create policy system on manifold.service_consumers to manifold_system using (true);
grant select, insert, delete on manifold.service_consumers to manifold_system;
create policy tenant on manifold.service_consumers to manifold_retention
  using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid);
grant select, delete on manifold.service_consumers to manifold_retention;
