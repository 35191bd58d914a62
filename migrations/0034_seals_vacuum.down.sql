alter table manifold.seals reset (
  autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold, autovacuum_freeze_min_age,
  autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
