-- Events are only inserted, and removed by retention. So autovacuum freezes them soon after they were written, while
-- their pages are in memory: the vacuum that prevents wraparound then finds little to do, however large the log is.
alter table manifold.events set (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000, autovacuum_freeze_min_age = 0);
