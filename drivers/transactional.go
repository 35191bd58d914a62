package drivers

import "github.com/manifold-es/manifold/domain"

// Transactional is a Driver whose documents can be saved in a transaction that is somebody else's: that of the append
// whose events they are folded from. Its database is the log's own.
type Transactional interface {
	Driver

	// SaveIn returns the statements of Save, to be sent in this order in a transaction that runs under the tenant (the
	// setting manifold.tenant), and may do nothing to the build beside. Where the checkpoint is not Batch.From, or the
	// build's table is not there, they make the transaction fail: the checkpoint with SQLSTATE ML002, the table with 42P01.
	// The batch must go forward. Errors are as in Save, and CodeUnsupported where the database is not the log's.
	SaveIn(build domain.Build, tenant domain.TenantID, batch Batch) ([]domain.Statement, error)

	// CheckpointIn returns a statement that reads the build's checkpoint in such a transaction: one row with one bigint, or
	// no row where the checkpoint is 0. If the build's table is not there, the statement fails with SQLSTATE 42P01.
	CheckpointIn(build domain.Build, tenant domain.TenantID) (domain.Statement, error)
}
