-- The commands of a definition are separate from its fold: the previous release reads and writes the fold alone.
alter table manifold.aggregates add column commands jsonb;

-- Outcomes of commands with an idempotency key that appended nothing. The id derives from the key, as those of events do.
create table manifold.command_outcomes (
  tenant_id  uuid not null,
  outcome_id uuid not null,
  outcome    jsonb not null,
  kept_at    timestamptz not null default now(),
  primary key (tenant_id, outcome_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
create index command_outcomes_kept on manifold.command_outcomes (tenant_id, kept_at);

alter table manifold.command_outcomes enable row level security;
alter table manifold.command_outcomes force row level security;
create policy tenant on manifold.command_outcomes to manifold_app, manifold_retention
  using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid);
grant select, insert, delete on manifold.command_outcomes to manifold_app;
grant select, delete on manifold.command_outcomes to manifold_retention;
