// Package totals sums numbers of the documents of shared projections, for the operator: by tenant, by key, and over all
// tenants. A definition says which numbers (domain.Totals). Start with Totals, which computes and reads them, and
// Postgres, which owns the rows.
//
// Each tenant's totals are computed from its live documents, by the process that owns the tenant, under that tenant.
// Only the sums are stored, and only these are added up across tenants
// (docs/decisions/0093-totals-are-computed-by-reading.md).
package totals
