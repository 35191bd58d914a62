-- A skipped event with lasting is passed over by every later version of the definition as well. Rows from before stay what
-- they were, and so do those that the previous release writes: they hold for their version alone.
alter table manifold.skipped_events add column lasting boolean not null default false;

-- While pinned_to is the projection's own live build, the tenant is on its build, by its definition, on purpose: it was left
-- there by a rebuild that met a fault in its events, which is fault (at fault_position, where it is one event's), or a
-- rebuild for some tenants brought that definition.
--
-- The check keeps the previous release from taking such a build for one that was forgotten, and ending it (base -1).
alter table manifold.tenant_builds
  add column pinned_to      bigint,
  add column fault          text,
  add column fault_position bigint,
  add constraint tenant_builds_pinned check (pinned_to is null or base is null or base > 0);

alter table manifold.rebuilds
  add column max_faulted integer not null default 1000, -- tenants that may be left behind
  add column faulted     jsonb;                         -- domain.FaultedTenants
