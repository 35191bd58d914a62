alter table manifold.rebuilds drop column faulted, drop column max_faulted;
alter table manifold.tenant_builds
  drop constraint tenant_builds_pinned, drop column fault_position, drop column fault, drop column pinned_to;
alter table manifold.skipped_events drop column lasting;
