-- The service's keys for signatures. The newest one signs; the others only verify.
create table manifold.signing_keys (
  number     bigint primary key,
  verifier   text collate "C" not null, -- the public part, as golang.org/x/mod/sumdb/note writes it
  secret     bytea,                     -- the private part of the newest, likewise; null: it was erased
  key_id     text collate "C",          -- the name of the key that the private part is encrypted with; null: it is not encrypted
  created_at timestamptz not null
);
alter table manifold.signing_keys enable row level security;
alter table manifold.signing_keys force row level security;
create policy system on manifold.signing_keys to manifold_system using (true);
grant select, insert, update on manifold.signing_keys to manifold_system;

-- How far a log is sealed. Nearly every seal updates it, as an append updates manifold.logs.
create table manifold.sealed_logs (
  tenant_id  uuid primary key,
  size       bigint not null, -- positions up to here are sealed
  edge       bytea not null,  -- the right edge of the Merkle tree
  checkpoint text not null,   -- signed
  sealed_at  timestamptz not null
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The leaves of consecutive positions, at most 256 from a multiple of that, plus one, on. When these 256 are complete, their
-- rows become one. Hashes and salts do not compress.
create table manifold.seals (
  tenant_id      uuid not null,
  first_position bigint not null,
  leaves         bytea not null, -- 32 bytes for each position
  contents       bytea not null, -- 32 bytes: the salted hash of the event's content; zero: there was no event
  salts          bytea not null, -- 16 bytes; zero: erased
  primary key (tenant_id, first_position)
);
alter table manifold.seals alter leaves set storage external, alter contents set storage external, alter salts set storage external;

-- The roots of complete subtrees of 256, 256^2 ... leaves.
create table manifold.seal_subtrees (
  tenant_id uuid not null,
  level     bigint not null, -- 8, 16 ...: the logarithm of the number of leaves
  number    bigint not null, -- from 0
  hash      bytea not null,
  primary key (tenant_id, level, number)
);

-- Signed receipts for events that were removed or erased. Each is about one block of 4096 positions, and one cause.
create table manifold.seal_receipts (
  tenant_id  uuid not null,
  block      bigint not null, -- (position - 1) / 4096
  receipt_id uuid not null,
  receipt    text not null,
  primary key (tenant_id, block, receipt_id)
);

do $$
declare
  name text;
begin
  foreach name in array array['sealed_logs', 'seals', 'seal_subtrees', 'seal_receipts'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
    execute format('grant select, delete on manifold.%I to manifold_retention', name);
  end loop;
end $$;
create policy system on manifold.sealed_logs for select to manifold_system using (true);
grant select (tenant_id, size, sealed_at) on manifold.sealed_logs to manifold_system;
grant select, insert, update on manifold.sealed_logs to manifold_app;
grant select, insert, delete on manifold.seals to manifold_app;
grant select, insert on manifold.seal_subtrees to manifold_app;
grant select on manifold.seal_receipts to manifold_app;
-- Erasure erases salts, under the lock of the log's row, which it may have to make.
grant insert, update on manifold.sealed_logs to manifold_retention;
grant update (salts) on manifold.seals to manifold_retention;
grant insert, update (receipt) on manifold.seal_receipts to manifold_retention;
