package drivers

import "github.com/manifold-es/manifold/domain"

// Transactional is a Driver that can save documents in the transaction of the append whose events they are folded from.
// Its database is the log's own.
type Transactional interface {
	Driver

	// SaveIn returns the statements of Save, to be sent in this order in a transaction of the caller. That transaction
	// runs under the tenant (the setting manifold.tenant) and may do nothing else to the build. The statements fail the
	// transaction with SQLSTATE ML002 if the checkpoint is not Batch.From, and with 42P01 if the build's table does not
	// exist. The batch must not be a repair. Errors are as in Save, and CodeUnsupported if the database is not the
	// log's.
	SaveIn(build domain.Build, tenant domain.TenantID, batch Batch) ([]domain.Statement, error)

	// CheckpointIn returns a statement that reads the build's checkpoint in such a transaction. It yields one row with
	// one bigint, or no row if the checkpoint is 0. If the build's table does not exist, it fails with SQLSTATE 42P01.
	CheckpointIn(build domain.Build, tenant domain.TenantID) (domain.Statement, error)
}
