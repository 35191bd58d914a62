// Package members decides which processes work for tenants (on projections, service groups and retention), and which
// process works for which tenant. Start with Members, which announces this process and answers Owns, and with Owner.
//
// Each process sends a sign of life to Manifold's database every second. A process is considered dead after six seconds
// without one, by the database's clock alone. If its connections have ended as well, other processes take over its
// tenants sooner. A process that cannot reach the database steps down by its own clock, one second before the others
// can consider it dead. So the local clock can only make it step down early.
//
// Tenants are assigned to members by rendezvous hashing (highest random weight: Thaler and Ravishankar, "Using
// Name-Based Mappings to Increase Hit Rates", IEEE/ACM Transactions on Networking 6(1), 1998). Each process computes
// the owner of a tenant from the list of members alone. A member that joins or leaves moves no tenants but its own.
//
// Ownership decides who does the work, never who is allowed to. Two processes may briefly believe that they own the
// same tenant. That does no harm, because every save is a compare-and-set on a checkpoint, a ledger or a floor.
package members
