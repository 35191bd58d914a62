// Package erasure deletes tenants in the background. It removes every document and every row of a tenant in the state
// "deleting"; only the tenant's record remains, with a signed Receipt. Start with Eraser.Run, which takes each such
// tenant through its steps.
package erasure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/registry"
	"github.com/manifold-es/manifold/signing"
	"github.com/manifold-es/manifold/tenant"
)

// Options configure an Eraser. Tenants, Registry, Rows, Checkpoint, Keys and Log are required; the other fields may be
// zero.
type Options struct {
	Tenants  *tenant.Tenants
	Registry *registry.Registry // the builds to drop
	Rows     *Postgres
	Drivers  map[string]drivers.Driver // by the name of the database
	Log      *slog.Logger
	// Checkpoint returns the newest signed checkpoint of a log, for the receipt, or domain.CodeNotFound if there is
	// none.
	Checkpoint func(ctx context.Context, log domain.TenantID) (string, error)
	Keys       *signing.Keys // sign the receipt
	Backups    time.Duration // how long backups are kept, for the receipt
	// Heads returns the heads of all logs. After New, it is asked for audit logs of deleted tenants, to erase them: a
	// process of a release without audit logs leaves them. Nil: they are not looked for.
	Heads func(ctx context.Context, since time.Time) ([]domain.Head, error)
	// Left returns, perhaps repeatedly, all logs with a seal, and all tenants with erasures of data subjects. Every
	// hour, it is asked for those of deleted tenants, to erase these rows: a process of a release that does not know
	// the tables leaves them. Nil: they are not looked for.
	Left func(ctx context.Context) ([]domain.TenantID, error)
	// Erased records that everything of a tenant was removed. It is called before the tenant is marked deleted, and
	// again if that fails; the tenant is deleted once it has succeeded. Nil: nothing is recorded.
	Erased func(ctx context.Context, tenant domain.TenantID) error
	Every  time.Duration // between two scans for tenants to erase; 0: 10 s

	// Settle is how long work that began before a step may continue after it. Such work is a request whose key was
	// accepted before the tenant was deleting, or a save of events that were read before the log was erased. Settle
	// must be longer than keys are cached and longer than requests and saves may take. 0: one minute.
	Settle time.Duration

	now func() time.Time // the clock, for tests
}

// Eraser erases tenants. Its steps may be repeated and interrupted at any point, so several processes may erase the
// same tenant. Each process waits independently, and a restarted process begins its wait again.
type Eraser struct {
	options Options
	tenants map[domain.TenantID]*progress
	swept   bool // deleted tenants have no audit logs

	left time.Time // when deleted tenants had nothing left
}

// sweepLeftEvery is how often rows of deleted tenants are looked for.
const sweepLeftEvery = time.Hour

// progress is how far this process knows a tenant's erasure to be.
type progress struct {
	seen      time.Time // when this process first saw the tenant deleting
	logErased time.Time // when this process erased its log; zero: not yet
}

// New returns an Eraser that has not yet seen any tenant.
func New(options Options) *Eraser {
	if options.Every == 0 {
		options.Every = 10 * time.Second
	}
	if options.Settle == 0 {
		options.Settle = time.Minute
	}
	if options.now == nil {
		options.now = time.Now
	}
	return &Eraser{options: options, tenants: make(map[domain.TenantID]*progress)}
}

// Run erases tenants until ctx ends. It returns nil.
func (e *Eraser) Run(ctx context.Context) error {
	ticker := time.NewTicker(e.options.Every)
	defer ticker.Stop()
	for {
		if err := errors.Join(e.runOnce(ctx), e.sweepAuditLogs(ctx), e.sweepLeft(ctx)); err != nil && ctx.Err() == nil {
			e.options.Log.Warn("a tenant was not erased; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// runOnce takes each deleting tenant as far as it can go now. A tenant that fails does not stop the others; the errors
// are joined.
func (e *Eraser) runOnce(ctx context.Context) error {
	deleting, err := e.options.Tenants.TenantsIn(ctx, domain.TenantDeleting)
	if err != nil {
		return err
	}
	still := make(map[domain.TenantID]*progress, len(deleting))
	var failed []error
	for _, tenant := range deleting {
		p := e.tenants[tenant.ID]
		if p == nil {
			p = &progress{seen: e.options.now()}
		}
		still[tenant.ID] = p
		if err := e.advance(ctx, tenant, p); err != nil {
			failed = append(failed, fmt.Errorf("erase tenant %s: %w", tenant.ID, err))
		}
	}
	e.tenants = still
	return errors.Join(failed...)
}

// advance takes the tenant's next step if it is due. The log goes first: while it exists, projections would fold
// removed documents again. The rows that say where documents are go last.
func (e *Eraser) advance(ctx context.Context, of domain.Tenant, p *progress) error {
	now, tenant := e.options.now(), of.ID
	switch {
	case now.Sub(p.seen) < e.options.Settle:
		return nil
	case p.logErased.IsZero():
		if err := e.keepCheckpoint(ctx, tenant); err != nil {
			return err
		}
		if err := e.options.Rows.EraseLog(ctx, tenant); err != nil {
			return err
		}
		p.logErased = e.options.now()
		return nil
	case now.Sub(p.logErased) < e.options.Settle:
		return nil
	}
	if err := e.dropDocuments(ctx, tenant); err != nil {
		return err
	}
	if err := e.options.Rows.EraseRows(ctx, tenant); err != nil {
		return err
	}
	if err := e.leaveReceipt(ctx, of); err != nil {
		return err
	}
	if e.options.Erased != nil {
		if err := e.options.Erased(ctx, tenant); err != nil {
			return fmt.Errorf("record the erasure: %w", err)
		}
	}
	if err := e.options.Rows.EraseTenant(ctx, tenant); err != nil {
		return err
	}
	e.options.Log.Info("a tenant was erased", "tenant", tenant.String())
	return nil
}

// sweepAuditLogs erases the audit logs that deleted tenants still have, until that has succeeded once.
func (e *Eraser) sweepAuditLogs(ctx context.Context) error {
	if e.swept || e.options.Heads == nil {
		return nil
	}
	heads, err := e.options.Heads(ctx, time.Time{})
	if err != nil {
		return err
	}
	left := make(map[domain.TenantID]bool)
	for _, head := range heads {
		left[head.Tenant] = true
	}
	deleted, err := e.options.Tenants.TenantsIn(ctx, domain.TenantDeleted)
	if err != nil {
		return err
	}
	for _, tenant := range deleted {
		if !left[tenant.ID.AuditLog()] {
			continue
		}
		if err := e.options.Rows.EraseAuditLog(ctx, tenant.ID); err != nil {
			return fmt.Errorf("erase the audit log of the deleted tenant %s: %w", tenant.ID, err)
		}
		e.options.Log.Info("the audit log of a deleted tenant was erased", "tenant", tenant.ID.String())
	}
	e.swept = true
	return nil
}

// sweepLeft erases the seals and erasures that deleted tenants still have, if it is time to look for them.
func (e *Eraser) sweepLeft(ctx context.Context) error {
	now := e.options.now()
	if e.options.Left == nil || now.Sub(e.left) < sweepLeftEvery {
		return nil
	}
	left, err := e.options.Left(ctx)
	if err != nil {
		return err
	}
	has := make(map[domain.TenantID]bool, len(left))
	for _, log := range left {
		has[log] = true
	}
	deleted, err := e.options.Tenants.TenantsIn(ctx, domain.TenantDeleted)
	if err != nil {
		return err
	}
	for _, tenant := range deleted {
		if !has[tenant.ID] && !has[tenant.ID.AuditLog()] {
			continue
		}
		if err := e.options.Rows.EraseLeft(ctx, tenant.ID); err != nil {
			return fmt.Errorf("erase what is left of the deleted tenant %s: %w", tenant.ID, err)
		}
		e.options.Log.Info("the seals and erasures of a deleted tenant were erased", "tenant", tenant.ID.String())
	}
	e.left = now
	return nil
}

// dropDocuments removes the tenant's documents from every build that may hold some: builds of its own and of shared
// projections, whether live, in progress or retired.
func (e *Eraser) dropDocuments(ctx context.Context, tenant domain.TenantID) error {
	for _, owner := range []domain.TenantID{tenant, domain.Everyone} {
		builds, err := e.options.Registry.Builds(ctx, owner)
		if err != nil {
			return err
		}
		for _, build := range builds {
			driver, ok := e.options.Drivers[build.Database]
			if !ok {
				return fmt.Errorf("projection %s: its documents are in the database %q, which is not in the configuration", build.Name, build.Database)
			}
			if err := driver.DropTenant(ctx, build, tenant); err != nil && !errors.Is(err, drivers.ErrNoTable) {
				return fmt.Errorf("projection %s, build %d: %w", build.Name, build.Number, err)
			}
		}
	}
	return nil
}
