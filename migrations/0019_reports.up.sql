-- A projection that has stopped before an event tries it again by itself. Null in rows of the previous release.
alter table manifold.faults
  add column retries  bigint not null default 0, -- attempts that met the same fault again
  add column retry_at timestamptz;               -- the next attempt

-- Whether the service appends events about a tenant's dead letters, parked documents and alerts to its log.
create table manifold.report_settings (
  tenant_id  uuid primary key,
  enabled    boolean not null,
  since      timestamptz not null, -- when it was enabled last: earlier dead letters and parked documents are not reported
  max_lag    bigint not null default 0, -- seconds; 0: no lag is reported
  updated_at timestamptz not null default now()
);

-- Conditions that were reported, or are about to be, and have not ended. The ids of both events are chosen before they are
-- appended, so that a repeated append changes nothing.
create table manifold.alerts (
  tenant_id uuid not null,
  kind      text collate "C" not null,      -- report.Kind
  name      text collate "C" not null,      -- of the projection, group or webhook
  episode   text collate "C" not null,      -- tells apart conditions that follow one another
  data      jsonb not null,                 -- of both events
  opened_id uuid not null,
  reported  boolean not null default false, -- the event opened_id was appended
  closed_id uuid,                           -- the event that is to be appended because the condition has ended
  primary key (tenant_id, kind, name)
);

-- reported_at is the parked_at that was reported. So a dead letter that is parked once more is reported once more, even if the
-- previous release parks it.
alter table manifold.dead_letters add column reported_at timestamptz;
create index dead_letters_unreported on manifold.dead_letters (tenant_id, parked_at) where reported_at is distinct from parked_at;

-- retry_at is when the document is replayed automatically; retries counts that.
alter table manifold.parked_documents
  add column reported boolean not null default false,
  add column retries  bigint not null default 0,
  add column retry_at timestamptz not null default now() + interval '30 seconds';
create index parked_documents_retry on manifold.parked_documents (tenant_id, retry_at);
grant select (retry_at) on manifold.parked_documents to manifold_system;
create index parked_documents_unreported on manifold.parked_documents (tenant_id, parked_at) where not reported;

do $$
declare
  name text;
begin
  foreach name in array array['report_settings', 'alerts'] loop
    execute format('alter table manifold.%I enable row level security', name);
    execute format('alter table manifold.%I force row level security', name);
    execute format($policy$create policy tenant on manifold.%I to manifold_app, manifold_retention
      using (tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid)$policy$, name);
    execute format('grant select, insert, update, delete on manifold.%I to manifold_app', name);
    execute format('grant select, delete on manifold.%I to manifold_retention', name);
  end loop;
end $$;
create policy system on manifold.report_settings for select to manifold_system using (true);
grant select on manifold.report_settings to manifold_system;
