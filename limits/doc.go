// Package limits holds tenants and keys to their limits and quotas, over all processes.
//
// An operator writes plans and assigns them to tenants (Postgres). Every process keeps all of that in memory
// (Settings). The API calls Limiter.Enter for each request, and Pass.Append for each append; both answer from memory. A
// tenant and a key with limits each have a ledger in the database (ledger.go): the tokens that are left, and what each
// process has leased. A process leases tokens in slices, for all of its tenants in one transaction (rounds.go). So what
// a request costs does not depend on the database, unless its process has no tokens left.
//
// Quota checks, in the transaction that creates something, that the tenant may have it. Counter counts the stored
// events of tenants with a quota for them.
//
// docs/decisions/0105-limits-are-leased.md says why the limits hold.
package limits
