drop index manifold.parked_documents_unreported;
drop index manifold.parked_documents_retry;
alter table manifold.parked_documents drop column reported, drop column retries, drop column retry_at;
drop index manifold.dead_letters_unreported;
alter table manifold.dead_letters drop column reported_at;
drop table manifold.alerts, manifold.report_settings;
alter table manifold.faults drop column retry_at, drop column retries;
