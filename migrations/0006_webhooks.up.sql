-- Webhooks: where events are sent to. Each is a group too, whose definition stands in the table of groups; both are made,
-- changed and removed in one transaction.
create table manifold.webhooks (
  tenant_id       uuid not null,
  name            text collate "C" not null,
  definition      jsonb not null,
  revision        bigint not null, -- begins anywhere, so that a webhook that is made anew never meets those of its predecessor
  paused          boolean not null default false,
  disabled_at     timestamptz,     -- the service has stopped it
  disabled_reason text not null default '',
  created_at      timestamptz not null default now(),
  updated_at      timestamptz not null default now(),
  primary key (tenant_id, name)
);

-- What signs. A signature is made with the secret itself, so it is kept as it is: for the app login alone.
create table manifold.webhook_secrets (
  tenant_id  uuid not null,
  name       text collate "C" not null, -- the webhook's
  secret_id  uuid not null,
  secret     bytea not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  primary key (tenant_id, name, secret_id)
);

-- The log of attempts. Ids grow with time.
create table manifold.webhook_attempts (
  tenant_id  uuid not null,
  name       text collate "C" not null, -- the webhook's
  attempt_id uuid not null,
  event_id   uuid not null,
  event_type text collate "C" not null,
  position   bigint not null, -- of the event; 0: a test message
  attempt    bigint not null,
  replay     boolean not null,
  url        text not null default '', -- where to; empty: nothing was sent
  outcome    text not null,
  status     bigint not null, -- of the answer; 0: there was none
  took       bigint not null, -- microseconds
  error      text not null,
  excerpt    text not null,
  at         timestamptz not null,
  next_at    timestamptz,
  primary key (tenant_id, name, attempt_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

-- Which events were sent, of those that the webhook takes for the same.
create table manifold.webhook_claims (
  tenant_id   uuid not null,
  name        text collate "C" not null, -- the group's: a replay has claims of its own
  claim       bytea not null,            -- SHA-256
  position    bigint not null,
  recorded_at timestamptz not null,      -- the event's
  primary key (tenant_id, name, claim, position)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
create index webhook_claims_recorded on manifold.webhook_claims (tenant_id, name, recorded_at);

-- The last replay of each webhook.
create table manifold.replays (
  tenant_id     uuid not null,
  name          text collate "C" not null, -- the webhook's
  from_position bigint not null,
  to_position   bigint not null,
  started_at    timestamptz not null default now(),
  done_at       timestamptz,
  primary key (tenant_id, name)
);

do $$
declare
  name text;
begin
  foreach name in array array['webhooks', 'webhook_secrets', 'webhook_attempts', 'webhook_claims', 'replays'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
    execute format('grant select, insert, update, delete on manifold.%I to manifold_app', name);
    execute format('grant select, delete on manifold.%I to manifold_retention', name);
  end loop;
end $$;
-- What was attempted, and what was sent, is not changed.
revoke update on manifold.webhook_attempts, manifold.webhook_claims from manifold_app;
-- Erasing removes secrets by their tenant, and reads no more of them than that.
revoke select on manifold.webhook_secrets from manifold_retention;
grant select (tenant_id, ctid) on manifold.webhook_secrets to manifold_retention;
-- Which tenants have webhooks. A URL may have a secret in it: it is not read across tenants.
create policy system on manifold.webhooks for select to manifold_system using (true);
grant select (tenant_id, name, revision, paused, disabled_at) on manifold.webhooks to manifold_system;
