drop function manifold_documents.lost_attempt(), manifold.lost_attempt();
revoke usage on schema manifold_documents from manifold_app;
alter table manifold.tenants drop column weight, drop column ceiling;
drop table manifold.members, manifold.upcasters, manifold.upcaster_sets, manifold.skipped_events, manifold.parked_events, manifold.parked_documents,
  manifold.tenant_builds, manifold.projection_versions;
alter table manifold.faults drop column stream, drop column event_type, drop column document_id, drop column place,
  drop column expression, drop column before;
alter table manifold.retired_builds drop column dropping;
-- What the schema before has no word for ends as what comes nearest. The owner of the table sees every row for a moment.
alter table manifold.rebuilds no force row level security;
update manifold.rebuilds set state = 'cancelled', ended_at = coalesce(ended_at, now()) where state in ('awaiting-approval', 'reported');
update manifold.rebuilds set state = 'swapped' where state = 'rolled-back';
alter table manifold.rebuilds force row level security;
drop index manifold.rebuilds_running;
alter table manifold.rebuilds
  drop column options, drop column rollback_of, drop column by, drop column paused, drop column approved,
  drop column difference, drop column previous, drop column events_per_second,
  drop constraint rebuilds_state_check,
  add constraint rebuilds_state_check check (state in
    ('queued', 'building', 'catching-up', 'validating', 'swapped', 'cancelled', 'failed'));
create unique index rebuilds_running on manifold.rebuilds (tenant_id, name)
  where state in ('queued', 'building', 'catching-up', 'validating');
alter table manifold.logs drop column inline_revision;
alter table manifold.projections drop column version;
