package postgres

// TenantViewQuery is tenantViewQuery, for tests.
var TenantViewQuery = tenantViewQuery
