-- Groups: named subscriptions of a tenant whose checkpoint, leases and dead letters are kept here.
create table manifold.subscriptions (
  tenant_id  uuid not null,
  name       text collate "C" not null,
  definition jsonb not null,
  revision   bigint not null, -- begins anywhere, so that a group that is made anew never meets those of its predecessor
  paused     boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (tenant_id, name)
);

-- One row a partition; a group without partitions has the one of number 0. The ledger says what is in flight, which is
-- bounded, so it is written whole with each step, and not compressed: each step replaces it. last_write is the step that
-- made the row what it is: what belongs to a step is written where the row has it. Who changes a partition's retries or dead
-- letters gives the row a new revision, and counts them here: there may be a million dead letters.
create table manifold.subscription_ledgers (
  tenant_id  uuid not null,
  name       text collate "C" not null,
  partition  integer not null,
  revision   bigint not null, -- begins anywhere, as the group's
  last_write uuid,
  ledger     bytea,           -- null: nothing was ever delivered
  checkpoint bigint not null,
  read_to    bigint not null,
  oldest     bigint not null default 0, -- 0: none
  in_flight  bigint not null default 0,
  retrying   bigint not null default 0,
  parked     bigint not null default 0,
  owner      uuid,
  updated_at timestamptz not null default now(),
  primary key (tenant_id, name, partition)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000);
alter table manifold.subscription_ledgers alter column ledger set storage external;

create table manifold.subscription_retries (
  tenant_id      uuid not null,
  name           text collate "C" not null,
  partition      integer not null,
  position       bigint not null,
  event_id       uuid not null,
  stream_id      text collate "C" not null,
  stream_version bigint not null,
  attempt        bigint not null,
  base           bigint not null,
  replays        bigint not null,
  due_at         timestamptz not null,
  reason         text not null,
  primary key (tenant_id, name, partition, position)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

create table manifold.dead_letters (
  tenant_id       uuid not null,
  name            text collate "C" not null,
  position        bigint not null,
  partition       integer not null,
  event_id        uuid not null,
  stream_id       text collate "C" not null,
  stream_version  bigint not null,
  event_type      text collate "C" not null,
  attempt         bigint not null,
  base            bigint not null,
  replays         bigint not null,
  reason          text not null,
  first_parked_at timestamptz not null,
  parked_at       timestamptz not null,
  replay_at       timestamptz, -- a replay was asked for
  primary key (tenant_id, name, position)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
create index dead_letters_event on manifold.dead_letters (tenant_id, event_id, name);
create index dead_letters_replay on manifold.dead_letters (tenant_id, name, partition, replay_at, position) where replay_at is not null;

-- Consumers that share a group's partitions, and their signs of life.
create table manifold.subscription_members (
  tenant_id uuid not null,
  name      text collate "C" not null,
  member_id uuid not null,
  label     text not null,
  joined_at timestamptz not null default now(),
  alive_at  timestamptz not null default now(),
  primary key (tenant_id, name, member_id)
);

-- Short-lived stand-ins for a key, for those who cannot send a header: a browser's EventSource and WebSocket.
create table manifold.tickets (
  tenant_id  uuid not null,
  ticket_id  uuid not null,
  key_id     uuid not null,
  hash       bytea not null,
  expires_at timestamptz not null,
  primary key (tenant_id, ticket_id)
);

do $$
declare
  name text;
begin
  foreach name in array array['subscriptions', 'subscription_ledgers', 'subscription_retries', 'dead_letters',
      'subscription_members', 'tickets'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
    execute format('grant select, insert, update, delete on manifold.%I to manifold_app', name);
    execute format('grant select, delete on manifold.%I to manifold_retention', name);
  end loop;
end $$;
-- A ticket is made, looked up, and gone.
revoke update on manifold.tickets from manifold_app;
