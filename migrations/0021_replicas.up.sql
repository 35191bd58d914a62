-- What a process has last written to the primary. A replica that shows a number has everything that was committed before
-- the process wrote it.
create table manifold.replica_beacons (
  member_id uuid primary key,
  number    bigint not null,
  at        timestamptz not null default now()
);

alter table manifold.replica_beacons enable row level security;
alter table manifold.replica_beacons force row level security;
create policy system on manifold.replica_beacons to manifold_system using (true);
create policy app on manifold.replica_beacons for select to manifold_app using (true);
grant select, insert, update, delete on manifold.replica_beacons to manifold_system;
grant select on manifold.replica_beacons to manifold_app;
