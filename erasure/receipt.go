package erasure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Receipt says that everything of a tenant was deleted. It is the JSON text of a note that the service has signed
// (golang.org/x/mod/sumdb/note), which the tenant's record keeps.
type Receipt struct {
	Tenant string `json:"tenant"`
	Name   string `json:"name"`
	// Checkpoint is a signed one of the tenant's log, the newest when the log was about to be erased: a number of
	// positions, and the root of their Merkle tree. Empty: nothing was sealed, or an earlier release has begun the
	// deletion.
	Checkpoint string    `json:"checkpoint,omitempty"`
	DeletedAt  time.Time `json:"deletedAt"`
	Limits     []string  `json:"limits"` // what the service cannot touch
	BackupsTo  time.Time `json:"backupsUntil"`
}

// receiptLimits is what no deletion touches.
var receiptLimits = []string{
	"the tenant's record: its id, name and times; and what the operators' audit log says about the tenant",
	"what was delivered before: to followers, groups, webhooks, reactors and brokers",
	"old versions of rows until the databases vacuum, and write-ahead logs and replicas until they are recycled",
	"memory that a process has released and not used again, and buffers of its connections, until it is restarted",
	"backups, until backupsUntil",
}

// keepCheckpoint keeps the last checkpoint of a tenant's log for the receipt, before the log and its seal are erased.
func (e *Eraser) keepCheckpoint(ctx context.Context, tenant domain.TenantID) error {
	checkpoint, err := e.options.Checkpoint(ctx, tenant)
	if domain.IsCode(err, domain.CodeNotFound) {
		return nil
	}
	if err == nil {
		err = e.options.Rows.keepCheckpoint(ctx, tenant, checkpoint)
	}
	return err
}

// leaveReceipt signs the receipt of a tenant of which everything but its record was erased, and keeps it there.
func (e *Eraser) leaveReceipt(ctx context.Context, tenant domain.Tenant) error {
	checkpoint, err := e.options.Rows.checkpoint(ctx, tenant.ID)
	if err != nil {
		return err
	}
	now := e.options.now().UTC().Truncate(time.Microsecond) // as PostgreSQL keeps times
	receipt, err := e.options.Keys.SignJSON(ctx, Receipt{
		Tenant: tenant.ID.String(), Name: tenant.Name, Checkpoint: checkpoint, DeletedAt: now, Limits: receiptLimits, BackupsTo: now.Add(e.options.Backups),
	})
	if err != nil {
		return err
	}
	return e.options.Rows.keepReceipt(ctx, tenant.ID, receipt)
}

func (s *Postgres) keepCheckpoint(ctx context.Context, tenant domain.TenantID, checkpoint string) error {
	_, err := s.db.System.Exec(ctx, `
		update tenants t set last_checkpoint = $2
		where t.tenant_id = $1 and t.state = 'deleting' and t.last_checkpoint is null`, tenant, checkpoint)
	if err != nil {
		return pg.Unavailable(fmt.Errorf("keep a tenant's checkpoint: %w", err))
	}
	return nil
}

// checkpoint returns what keepCheckpoint has kept, or an empty text.
func (s *Postgres) checkpoint(ctx context.Context, tenant domain.TenantID) (checkpoint string, err error) {
	err = s.db.System.QueryRow(ctx, "select coalesce(t.last_checkpoint, '') from tenants t where t.tenant_id = $1", tenant).Scan(&checkpoint)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", pg.Unavailable(fmt.Errorf("read a tenant's checkpoint: %w", err))
	}
	return checkpoint, nil
}

// keepReceipt keeps the receipt of a tenant that is deleting. It replaces one that an interrupted deletion has left.
func (s *Postgres) keepReceipt(ctx context.Context, tenant domain.TenantID, receipt string) error {
	_, err := s.db.System.Exec(ctx, "update tenants t set receipt = $2 where t.tenant_id = $1 and t.state = 'deleting'", tenant, receipt)
	if err != nil {
		return pg.Unavailable(fmt.Errorf("keep a tenant's receipt: %w", err))
	}
	return nil
}
