-- The service's keys for signatures. The newest one signs; the others only verify.
create table manifold.signing_keys (
  number     bigint primary key,
  verifier   text collate "C" not null, -- the public part, as golang.org/x/mod/sumdb/note writes it
  secret     bytea,                     -- the private part, likewise; null: it was erased
  key_id     text collate "C",          -- the name of the key that the private part is encrypted with; null: it is not encrypted
  created_at timestamptz not null
);
alter table manifold.signing_keys enable row level security;
alter table manifold.signing_keys force row level security;
create policy system on manifold.signing_keys to manifold_system using (true);
grant select, insert, update on manifold.signing_keys to manifold_system;
