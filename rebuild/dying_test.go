package rebuild_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/tables"
)

var errDead = errors.New("the process is dead")

// countdown kills a worker: after so many calls to its databases none of them does anything any more, as if the process
// had been killed right there. Its rebuild is not given back, its hold not released.
type countdown struct {
	mu    sync.Mutex
	left  int
	saves int // that must have come to their end before it dies, however many other calls there were
	dead  chan struct{}
}

func (c *countdown) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 1 && c.saves > 0 {
		return nil
	}
	if c.left--; c.left == 0 {
		close(c.dead)
	}
	if c.left <= 0 {
		return errDead
	}
	return nil
}

func (c *countdown) saved() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saves--
}

// dying is the store as a worker sees it that is about to be killed.
type dying struct {
	*tables.Tables
	calls *countdown
}

func (d dying) ReadLog(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) ([]domain.Event, error) {
	if err := d.calls.alive(); err != nil {
		return nil, err
	}
	return d.Tables.ReadLog(ctx, tenant, q)
}

func (d dying) Heads(ctx context.Context, since time.Time) ([]domain.Head, error) {
	if err := d.calls.alive(); err != nil {
		return nil, err
	}
	return d.Tables.Heads(ctx, since)
}

func (d dying) HoldProjection(ctx context.Context, rebuild domain.Rebuild) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	return d.Tables.HoldProjection(ctx, rebuild)
}

func (d dying) ReleaseProjection(ctx context.Context, rebuild domain.Rebuild) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	return d.Tables.ReleaseProjection(ctx, rebuild)
}

func (d dying) SwapProjection(ctx context.Context, rebuild domain.Rebuild, left []domain.TenantFault, dropAt time.Time) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	if err := d.Tables.SwapProjection(ctx, rebuild, left, dropAt); err != nil {
		return err
	}
	return d.calls.alive() // or it dies with the answer
}

func (d dying) HoldTenant(ctx context.Context, tenant domain.TenantID, rebuild domain.Rebuild) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	return d.Tables.HoldTenant(ctx, tenant, rebuild)
}

func (d dying) ReleaseTenant(ctx context.Context, tenant domain.TenantID, rebuild domain.Rebuild) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	return d.Tables.ReleaseTenant(ctx, tenant, rebuild)
}

func (d dying) SwapTenant(ctx context.Context, tenant domain.TenantID, rebuild domain.Rebuild) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	if err := d.Tables.SwapTenant(ctx, tenant, rebuild); err != nil {
		return err
	}
	return d.calls.alive() // or it dies with the answer
}

func (d dying) FinishTenants(ctx context.Context, rebuild domain.Rebuild) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	if err := d.Tables.FinishTenants(ctx, rebuild); err != nil {
		return err
	}
	return d.calls.alive()
}

func (d dying) SettleTenantBuilds(ctx context.Context, dropAt time.Time) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	return d.Tables.SettleTenantBuilds(ctx, dropAt)
}

func (d dying) SaveRebuild(ctx context.Context, rebuild domain.Rebuild) (domain.Rebuild, error) {
	if err := d.calls.alive(); err != nil {
		return domain.Rebuild{}, err
	}
	return d.Tables.SaveRebuild(ctx, rebuild)
}

func (d dying) BeatRebuild(ctx context.Context, rebuild domain.Rebuild) (domain.Rebuild, error) {
	if err := d.calls.alive(); err != nil {
		return domain.Rebuild{}, err
	}
	return d.Tables.BeatRebuild(ctx, rebuild)
}

func (d dying) ClaimRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, worker string, staleAfter time.Duration) (domain.Rebuild, bool, error) {
	if err := d.calls.alive(); err != nil {
		return domain.Rebuild{}, false, err
	}
	return d.Tables.ClaimRebuild(ctx, id, rebuild, worker, staleAfter)
}

func (d dying) ReleaseRebuild(ctx context.Context, rebuild domain.Rebuild) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	return d.Tables.ReleaseRebuild(ctx, rebuild)
}

func (d dying) EndRebuild(ctx context.Context, rebuild domain.Rebuild, dropAt time.Time) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	return d.Tables.EndRebuild(ctx, rebuild, dropAt)
}

// dyingDriver is a driver as that worker sees it.
type dyingDriver struct {
	drivers.Driver
	calls *countdown
}

func (d dyingDriver) CreateTemporaryTable(ctx context.Context, build domain.Build) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	return d.Driver.CreateTemporaryTable(ctx, build)
}

func (d dyingDriver) IndexTable(ctx context.Context, build domain.Build) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	return d.Driver.IndexTable(ctx, build)
}

func (d dyingDriver) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	if err := d.calls.alive(); err != nil {
		return nil, err
	}
	return d.Driver.Load(ctx, build, tenant, ids)
}

func (d dyingDriver) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if err := d.calls.alive(); err != nil {
		return err
	}
	err := d.Driver.Save(ctx, build, tenant, batch)
	if err == nil {
		d.calls.saved()
	}
	return err
}

func (d dyingDriver) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	if err := d.calls.alive(); err != nil {
		return nil, err
	}
	return d.Driver.Query(ctx, build, tenant, query)
}

func (d dyingDriver) Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[drivers.Checkpoint, error] {
	if err := d.calls.alive(); err != nil {
		return func(yield func(drivers.Checkpoint, error) bool) { yield(drivers.Checkpoint{}, err) }
	}
	return d.Driver.Checkpoints(ctx, build)
}
