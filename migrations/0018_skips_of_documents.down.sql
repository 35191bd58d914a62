alter table manifold.skipped_events drop column documents;
