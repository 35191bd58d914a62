-- How far a rebuild has made documents stream by stream, by tenant: domain.Fill. Null: in the order of the log, as the
-- previous release makes all of them.
alter table manifold.rebuilds add column fills jsonb;
