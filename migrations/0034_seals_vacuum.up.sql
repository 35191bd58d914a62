-- Complete seals stay as they are, so autovacuum freezes them soon, as it does events. The seals of a log with few events
-- are replaced until they are complete. Autovacuum removes the old ones before they take much of the table. The settings
-- hold for the TOAST table, too, which has nearly all of the bytes.
alter table manifold.seals set (
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000, autovacuum_freeze_min_age = 0,
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
