alter table manifold.snapshots drop column removed_to;
alter table manifold.rebuilds drop column loss;
drop index manifold.parked_documents_position, manifold.parked_events_position;
drop table manifold.build_losses, manifold.retention_spared, manifold.retention_floors, manifold.retention_policies;
