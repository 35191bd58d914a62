package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
)

// progress counts events, for people.
type progress struct{ done, total atomic.Int64 }

func (p *progress) events() (done, total int64) {
	done = p.done.Load()
	return done, max(done, p.total.Load())
}

// attempt is one run through all phases. It may be repeated after an error, and by another process after a crash.
type attempt struct {
	*work
	row    domain.Rebuild // the parts that never change
	build  domain.Build
	driver drivers.Driver
	fold   *projection.Fold
	limits projection.Limits // of all batches together

	mu        sync.Mutex
	positions map[domain.TenantID]int64               // up to where each tenant's log is folded
	touched   map[domain.TenantID]map[string]struct{} // documents saved since they were validated; nil: not yet
}

// nearEnough is when catching up ends: what is left takes no longer to fold, give or take, and then holds the live
// build still for as long.
const nearEnough = 500 * time.Millisecond

// attempt goes through all phases. After a try that did not come to its end batches are smaller: they may have been more
// than the database can take in the time that it is given.
func (w *work) attempt(ctx context.Context, tries int) error {
	w.mu.Lock()
	a := &attempt{
		work: w, row: w.row, build: w.row.NewBuild(), positions: make(map[domain.TenantID]int64),
		limits: share(w.r.config.Limits, 1<<min(tries-1, 8)),
	}
	w.mu.Unlock()
	if a.driver = w.r.config.Drivers[a.build.Database]; a.driver == nil {
		return failed("there is no database %q in this process's configuration", a.build.Database)
	}
	var err error
	if a.fold, err = projection.CompileWith(a.row.Definition, w.r.config.Handlers); err != nil {
		return failed("the definition does not compile: %s", err)
	}
	if err := a.buildUp(ctx); err != nil {
		return err
	}
	if err := a.catchUp(ctx); err != nil {
		return err
	}
	if err := w.enter(ctx, domain.RebuildValidating); err != nil {
		return err
	}
	if err := a.validate(ctx); err != nil {
		return err
	}
	return a.swap(ctx)
}

// buildUp makes the new build's table and folds every tenant's log into it, from its own checkpoints on.
func (a *attempt) buildUp(ctx context.Context) error {
	if err := a.enter(ctx, domain.RebuildBuilding); err != nil {
		return err
	}
	if err := a.driver.CreateTemporaryTable(ctx, a.build); err != nil {
		return fmt.Errorf("make the temporary table: %w", err)
	}
	a.progress.done.Store(0)
	a.progress.total.Store(0)
	for checkpoint, err := range a.driver.Checkpoints(ctx, a.build) {
		if err != nil {
			return fmt.Errorf("read the temporary table's checkpoints: %w", err)
		}
		a.positions[checkpoint.Tenant] = checkpoint.Position
	}
	heads, err := a.heads(ctx)
	if err != nil {
		return err
	}
	for tenant, position := range a.positions {
		n, err := a.count(ctx, tenant, 0, position)
		if err != nil {
			return err
		}
		a.progress.done.Add(n)
		a.progress.total.Add(n)
	}
	if err := a.pass(ctx, heads); err != nil {
		return err
	}
	if err := a.driver.IndexTable(ctx, a.build); err != nil {
		return fmt.Errorf("index the temporary table: %w", err)
	}
	return nil
}

// catchUp folds what was appended meanwhile, of all tenants that are there now, until a pass takes so little time that
// the rest can be folded while the live build is held still.
func (a *attempt) catchUp(ctx context.Context) error {
	if err := a.enter(ctx, domain.RebuildCatchingUp); err != nil {
		return err
	}
	for {
		began := time.Now()
		heads, err := a.heads(ctx)
		if err != nil {
			return err
		}
		if err := a.pass(ctx, heads); err != nil {
			return err
		}
		if time.Since(began) < nearEnough {
			return nil
		}
	}
}

// swap holds the live build still, passes every head that it can still have saved, and swaps.
//
// A live worker saves only what it has read in a reading that showed no hold; such a reading took the log's head before
// it looked at the projection's row, so it came before the hold, and the heads that are read here, after the hold was
// placed, are at or above everything in it. So the new build is never behind what readers have seen of the old one.
// docs/decisions/0002-swap-by-hold.md has the whole argument.
func (a *attempt) swap(ctx context.Context) (err error) {
	if err := a.r.config.Store.HoldProjection(ctx, a.row); err != nil {
		return fmt.Errorf("hold the live build still: %w", err)
	}
	defer func() {
		if err == nil {
			return
		}
		// The live build goes on, whatever comes of the rebuild; a failed or cancelled one lets go of it by itself.
		leaving, done := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		defer done()
		if releaseErr := a.r.config.Store.ReleaseProjection(leaving, a.row); releaseErr != nil && !isCode(releaseErr, domain.CodeConflict) && !isCode(releaseErr, domain.CodeNotFound) {
			err = errors.Join(err, fmt.Errorf("let go of the live build: %w", releaseErr))
		}
	}()
	heads, err := a.heads(ctx)
	if err != nil {
		return err
	}
	a.touched = make(map[domain.TenantID]map[string]struct{})
	if err := a.pass(ctx, heads); err != nil {
		return err
	}
	if err := a.validateTouched(ctx); err != nil {
		return err
	}
	// No beat may come behind the swap: the rebuild has ended then.
	a.work.mu.Lock()
	defer a.work.mu.Unlock()
	a.work.row.EventsDone, a.work.row.EventsTotal = a.progress.events()
	if err := a.r.config.Store.SwapProjection(ctx, a.work.row, time.Now().Add(a.r.config.Keep)); err != nil {
		return a.settleSwap(ctx, err)
	}
	return nil
}

// settleSwap finds out whether a swap whose answer was lost has happened.
func (a *attempt) settleSwap(ctx context.Context, swapErr error) error {
	if ctx.Err() != nil {
		return swapErr
	}
	now, err := a.r.config.Store.Rebuild(ctx, a.row.ProjectionID, a.row.ID)
	if err == nil && now.State == domain.RebuildSwapped {
		return nil
	}
	return fmt.Errorf("swap: %w", swapErr)
}

// heads returns the heads of all logs that the projection sees: those of all tenants, or its owner's.
func (a *attempt) heads(ctx context.Context) ([]domain.Head, error) {
	if a.build.Shared() {
		heads, err := a.r.config.Store.Heads(ctx, time.Time{})
		if err != nil {
			return nil, fmt.Errorf("read the heads of all logs: %w", err)
		}
		return heads, nil
	}
	head, err := a.r.config.Store.Head(ctx, a.build.Owner)
	if err != nil {
		return nil, fmt.Errorf("read the log's head: %w", err)
	}
	return []domain.Head{{Tenant: a.build.Owner, Position: head.Position}}, nil
}

func (a *attempt) count(ctx context.Context, tenant domain.TenantID, after, upTo int64) (int64, error) {
	n, err := a.r.config.Store.CountEvents(ctx, tenant, a.row.Definition.Source, a.fold.Types(), after, upTo)
	if err != nil {
		return 0, fmt.Errorf("count the events of tenant %s: %w", tenant, err)
	}
	return n, nil
}

// pass folds every log that is ahead of the new build up to its head, several tenants at a time.
func (a *attempt) pass(ctx context.Context, heads []domain.Head) error {
	type todo struct {
		tenant   domain.TenantID
		from, to int64
	}
	var ahead []todo
	for _, head := range heads {
		if from := a.positions[head.Tenant]; from < head.Position {
			ahead = append(ahead, todo{head.Tenant, from, head.Position})
		}
	}
	if len(ahead) == 0 {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for _, t := range ahead {
			n, err := a.count(ctx, t.tenant, t.from, t.to)
			if err != nil {
				return err
			}
			a.progress.total.Add(n)
		}
		return nil
	})
	limits := share(a.limits, min(a.r.config.Tenants, len(ahead)))
	next := make(chan todo)
	group.Go(func() error {
		defer close(next)
		for _, t := range ahead {
			select {
			case next <- t:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range min(a.r.config.Tenants, len(ahead)) {
		group.Go(func() error {
			for t := range next {
				if err := a.replay(ctx, t.tenant, t.to, limits); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// share divides limits among so many replays that run at the same time, but not below what a batch should have.
func share(limits projection.Limits, among int) projection.Limits {
	part := func(whole, least int) int { return min(whole, max(least, whole/among)) }
	return projection.Limits{
		Events:        part(limits.Events, 1000),
		Bytes:         part(limits.Bytes, 1<<20),
		DocumentBytes: part(limits.DocumentBytes, 1<<20),
	}
}

// replay folds one tenant's log up to a position.
func (a *attempt) replay(ctx context.Context, tenant domain.TenantID, to int64, limits projection.Limits) error {
	replay := &projection.Replay{
		Driver: a.driver, Build: a.build, Tenant: tenant, Fold: a.fold, Limits: limits,
		Folded: func(events, _ int) { a.progress.done.Add(int64(events)) },
	}
	if a.touched != nil && a.fold.Asserts() {
		replay.Saved = func(documents []domain.Document) { a.touch(tenant, documents) }
	}
	err := replay.Run(ctx, a.r.config.Store, to)
	if fault, ok := errors.AsType[*projection.EventError](err); ok {
		if a.build.Shared() {
			return failed("tenant %s: %s", tenant, fault)
		}
		return failed("%s", fault)
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.positions[tenant] = replay.Position()
	return nil
}

func (a *attempt) touch(tenant domain.TenantID, documents []domain.Document) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := a.touched[tenant]
	if ids == nil {
		ids = make(map[string]struct{})
		a.touched[tenant] = ids
	}
	for _, document := range documents {
		ids[document.ID] = struct{}{}
	}
}
