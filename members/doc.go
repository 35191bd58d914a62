// Package members is which processes work for tenants (on projections, service groups and retention), and which of them
// for which.
//
// Each process announces itself in Manifold's database with a sign of life every second. One that has given none for
// six is taken for dead; that is decided by the database's clock alone. Where its connections have ended as well, others work
// for its tenants sooner. A process that cannot reach the database steps down
// by its own clock, a second before the others can take it for dead: the local clock only ever makes it step down early.
//
// Tenants go to members by rendezvous hashing (highest random weight: Thaler and Ravishankar, "Using Name-Based Mappings to
// Increase Hit Rates", IEEE/ACM Transactions on Networking 6(1), 1998): each process works out for itself, from the list of
// members alone, to whom a tenant belongs, and a member that comes or goes moves no tenants but its own.
//
// Who owns a tenant is about who does the work, never about who may: for a moment two processes may believe that they own
// one, and neither does harm: whatever is saved is a compare-and-set, on a checkpoint, a ledger or a floor.
package members
