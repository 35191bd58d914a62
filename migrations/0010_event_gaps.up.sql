-- Why an event's data and metadata are not given out; null: they are. 'u': PostgreSQL cannot print it, and a reader that met it
-- has marked it. 'r': the operator has redacted it; its data is null, and its metadata {"redacted": the operator's reason}.
-- gap_at is since when.
--
-- The two are narrow on purpose. While a table has no statistics, the planner takes a column of type jsonb or text for 32 bytes, and
-- the number of rows from that: with one such column more it takes the tenant's part of the log for one row, to which all
-- indexes look alike, and picks any (store/plan_test.go).
alter table manifold.events add column gap "char", add column gap_at timestamptz;
grant update (event_data, metadata, gap, gap_at) on manifold.events to manifold_retention;
