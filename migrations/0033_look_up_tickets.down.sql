revoke select on manifold.tickets from manifold_system;
drop policy system on manifold.tickets;
