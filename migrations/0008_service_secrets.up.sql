-- Secrets that all processes share and nobody else needs: the key that page tokens are encrypted with. Its rows belong
-- to no tenant, so their tenant is the nil UUID, which no tenant ever has.
create table manifold.service_secrets (
  tenant_id uuid not null,
  name      text collate "C" not null,
  secret    bytea not null,
  primary key (tenant_id, name)
);
-- 244 random bits; gen_random_uuid is cryptographically strong.
insert into manifold.service_secrets (tenant_id, name, secret)
  values ('00000000-0000-0000-0000-000000000000', 'page-tokens', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
alter table manifold.service_secrets enable row level security;
alter table manifold.service_secrets force row level security;
create policy system on manifold.service_secrets for select to manifold_system using (true);
grant select on manifold.service_secrets to manifold_system;
