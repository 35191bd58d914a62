alter table manifold.faults drop column retry_at, drop column retries;
