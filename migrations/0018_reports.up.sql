-- A projection that has stopped before an event tries it again by itself. Null in rows of the previous release.
alter table manifold.faults
  add column retries  bigint not null default 0, -- attempts that met the same fault again
  add column retry_at timestamptz;               -- the next attempt
