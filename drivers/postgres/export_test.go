package postgres

// TenantViewQuery is tenantViewQuery, for tests.
var TenantViewQuery = tenantViewQuery

// These are the constants of the same names, for tests.
const (
	OwnedTables  = ownedTables
	BeaconsTable = beaconsTable
	KeysTable    = keysTable
	CommonTable  = commonTable
)
