package domain

// auditVersion replaces the version of a tenant's id in the id of its audit log. RFC 9562 reserves it, so no tenant has
// such an id.
const auditVersion = 0xa0

// AuditLog returns the id under which a tenant's audit log is kept; that of Everyone is the operators'. An audit log is
// a log like a tenant's, but it belongs to no row of tenants: it has no keys, projections or quotas.
func (id TenantID) AuditLog() TenantID {
	id[6] = id[6]&0x0f | auditVersion
	return id
}

// IsAuditLog reports whether the id is that of an audit log, instead of a tenant's.
func (id TenantID) IsAuditLog() bool { return id[6]&0xf0 == auditVersion }
