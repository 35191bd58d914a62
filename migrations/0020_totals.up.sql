-- Sums over a tenant's documents of a shared projection, for the operator.
create table manifold.totals (
  tenant_id    uuid not null,
  name         text collate "C" not null, -- the shared projection's
  build        bigint not null,           -- of the documents
  position     bigint not null,           -- events up to here are in the sums; later ones may be
  spec         text collate "C" not null, -- identifies what was summed
  keys_dropped boolean not null,          -- there were too many keys, or too long ones: their sums are under the empty key
  computed_at  timestamptz not null,      -- when the first document was read
  took_ms      bigint not null,           -- reading, summing and saving, without pauses
  revision     bigint not null,           -- increases with each change
  primary key (tenant_id, name)
);

create table manifold.total_sums (
  tenant_id uuid not null,
  name      text collate "C" not null,
  key       text collate "C" not null, -- empty: of documents without a key
  field     text collate "C" not null, -- a path in the document; empty: the row counts all documents of the key
  total     numeric not null,
  documents bigint not null,           -- those with a number in the field
  primary key (tenant_id, name, key, field)
);

do $$
declare
  name text;
begin
  foreach name in array array['totals', 'total_sums'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
    execute format('create policy system on manifold.%I for select to manifold_system using (true)', name);
    execute format('grant select, insert, update, delete on manifold.%I to manifold_app', name);
    execute format('grant select, delete on manifold.%I to manifold_retention', name);
    execute format('grant select on manifold.%I to manifold_system', name);
  end loop;
end $$;
