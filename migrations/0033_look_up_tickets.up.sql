-- A ticket is looked up like a key, with the connections for what requests wait for.
create policy system on manifold.tickets for select to manifold_system using (true);
grant select on manifold.tickets to manifold_system;
