package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/upcasting"
)

// InlineConfig is what an Inline is made of. Store, Drivers and Log must be set.
type InlineConfig struct {
	Store    InlineStore
	Drivers  map[string]drivers.Driver // by the database's name in the configuration
	Handlers map[string]Handler        // written in Go, by name
	Keep     int                       // bytes of documents that are remembered from one append to the next, of all tenants; 0: 64 MiB; below 0: none
	Log      *slog.Logger

	// Upcasters are what events go through first; nil: they are folded as they are appended. They are asked while the
	// tenant's log is locked: see store.BySystem.
	Upcasters *upcasting.Upcasters
}

// Inline folds events into the inline builds of tenants as they are appended: what an event makes of the documents is
// worked out before the append's transaction, and saved in it. All methods may be called concurrently.
type Inline struct {
	config InlineConfig
	kept   atomic.Int64 // bytes of documents that are remembered

	mu    sync.Mutex
	folds map[inlineKey]*Fold
}

// inlineKey names a build, whose definition never changes.
type inlineKey struct {
	id    domain.ProjectionID
	build int64
}

const (
	inlineKeep     = 64 << 20 // bytes of documents remembered, of all tenants
	inlineKeepEach = 2 << 20  // and of one
	inlineFolds    = 500      // compiled, that are kept
	inlineBehind   = 10_000   // positions that an append waits for at most, until a build is at the head again
)

// NewInline returns an Inline.
func NewInline(config InlineConfig) *Inline {
	if config.Keep == 0 {
		config.Keep = inlineKeep
	}
	return &Inline{config: config, folds: make(map[inlineKey]*Fold)}
}

// fold returns the compiled fold of a build.
func (in *Inline) fold(ctx context.Context, b domain.TenantBuild) (*Fold, error) {
	key := inlineKey{b.ProjectionID, b.Build}
	in.mu.Lock()
	fold := in.folds[key]
	in.mu.Unlock()
	if fold != nil {
		return fold, nil
	}
	fold, err := CompileIn(ctx, *b.Definition, in.config.Handlers)
	if err != nil {
		return nil, err
	}
	fold = fold.Through(in.config.Upcasters)
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.folds) >= inlineFolds {
		for other := range in.folds { // any: they are compiled anew when they are needed
			delete(in.folds, other)
			break
		}
	}
	in.folds[key] = fold
	return fold, nil
}

// open makes ready to fold into a build; driver is nil where that cannot be done.
func (in *Inline) open(ctx context.Context, b domain.TenantBuild) (*inlineBuild, error) {
	p := domain.Projection{ProjectionID: b.ProjectionID, Build: b.Build, Definition: WithDefaults(*b.Definition)}
	driver, ok := in.config.Drivers[p.Definition.Database].(drivers.Transactional)
	if !ok {
		return nil, fmt.Errorf("documents in database %q cannot be saved with an append", p.Definition.Database)
	}
	fold, err := in.fold(ctx, b)
	if err != nil {
		return nil, err
	}
	_, pure := fold.handler.(*expressions)
	return &inlineBuild{fold: fold, build: p.LiveBuild(), driver: driver, pure: pure}, nil
}

// Open makes ready to fold into a tenant's builds, each with its Definition, whose log is at head. gone are those that
// cannot be folded into by this process: where there is one, nothing can be folded. Else checkpoints are the statements
// that read the builds' checkpoints, in their order. Whoever holds the log has to find all of them at head.
func (in *Inline) Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (folds *InlineFolds, checkpoints []domain.Statement, gone []domain.TenantBuild, err error) {
	folds = &InlineFolds{in: in, tenant: tenant, head: head, proven: true}
	if folds.upcasters, err = in.config.Upcasters.Now(ctx, tenant); err != nil {
		return nil, nil, nil, fmt.Errorf("read the upcasters for inline builds: %w", err)
	}
	for _, b := range builds {
		opened, err := in.open(ctx, b)
		if ctx.Err() != nil {
			return nil, nil, nil, context.Cause(ctx)
		}
		if err != nil {
			in.config.Log.Warn("an inline build cannot be folded into", "projection", b.Name, "tenant", tenant.String(), "build", b.Build, "error", err)
			gone = append(gone, b)
			continue
		}
		checkpoint, err := opened.driver.CheckpointIn(opened.build, tenant)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("open the inline build %d of projection %q: %w", b.Build, b.Name, err)
		}
		folds.builds, checkpoints = append(folds.builds, opened), append(checkpoints, checkpoint)
	}
	return folds, checkpoints, gone, nil
}

// Mend folds what is in the log up to head into builds that are behind. unfit are those that are too far behind for an
// append to wait, or met an event that they cannot fold: they are the runner's.
func (in *Inline) Mend(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (unfit []domain.TenantBuild, err error) {
	for _, b := range builds {
		opened, err := in.open(ctx, b)
		if ctx.Err() != nil {
			return unfit, context.Cause(ctx)
		}
		if err != nil {
			unfit = append(unfit, b)
			continue
		}
		checkpoint, err := opened.driver.Checkpoint(ctx, opened.build, tenant)
		if err == nil && head-checkpoint > inlineBehind {
			unfit = append(unfit, b)
			continue
		}
		if err == nil {
			err = CatchUpTo(ctx, in.config.Store, opened.driver, opened.build, tenant, opened.fold, head)
		}
		if _, faulted := errors.AsType[*EventError](err); faulted || errors.Is(err, drivers.ErrNoTable) {
			in.config.Log.Warn("an inline build is behind, and cannot be brought to the log's head", "projection", b.Name, "tenant", tenant.String(), "build", b.Build, "error", err)
			unfit = append(unfit, b)
			continue
		}
		if err != nil {
			return unfit, err
		}
	}
	return unfit, nil
}

// CatchUpTo folds a tenant's log into a build up to a position, and sees to it that the checkpoint says so: what is at the
// log's head can become inline. It does little where the build is there already.
func CatchUpTo(ctx context.Context, log Log, driver drivers.Driver, build domain.Build, tenant domain.TenantID, fold *Fold, to int64) error {
	for {
		checkpoint, err := driver.Checkpoint(ctx, build, tenant)
		if err != nil {
			return fmt.Errorf("read the checkpoint of build %d of projection %q: %w", build.Number, build.Name, err)
		}
		if checkpoint >= to {
			return nil
		}
		replay := &Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Limits: followLimits}
		if err := replay.Run(ctx, log, to); err != nil {
			return err
		}
		// Everything up to there has taken effect; that nothing did behind the last save need not be stored yet.
		if checkpoint, err = driver.Checkpoint(ctx, build, tenant); err == nil && checkpoint < to {
			err = driver.Save(ctx, build, tenant, drivers.Batch{From: checkpoint, To: to})
		}
		if err != nil && !errors.Is(err, drivers.ErrStale) {
			return fmt.Errorf("save the checkpoint of build %d of projection %q: %w", build.Number, build.Name, err)
		}
	}
}
