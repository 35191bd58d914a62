-- The documents that skip the event; null: all of its documents.
alter table manifold.skipped_events add column documents text[] collate "C";
