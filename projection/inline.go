package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// InlineConfig configures an Inline. Store, Drivers and Log must be set.
type InlineConfig struct {
	Store    Store
	Drivers  map[string]drivers.Driver  // by the database's name in the configuration
	Handlers map[string]folding.Handler // written in Go, by name
	Log      *slog.Logger

	// Upcasters are applied to events before the fold; nil: events are folded as they are appended. They are read while
	// the tenant's log is locked: see registry.BySystem.
	Upcasters *upcasting.Upcasters
}

// Inline folds events into the inline builds of tenants as they are appended. It computes the documents before the
// append's transaction, which then saves them. All methods may be called concurrently.
type Inline struct {
	config InlineConfig
	kept   atomic.Int64 // bytes of remembered documents

	folds *lru.Cache[inlineKey, *folding.Fold]
}

// inlineKey identifies a build, whose definition never changes.
type inlineKey struct {
	id    domain.ProjectionID
	build int64
}

const (
	maxKeptBytes          = 64 << 20 // bytes of remembered documents, for all tenants
	maxKeptBytesPerTenant = 2 << 20  // and for one tenant
	maxInlineFolds        = 500      // how many compiled folds are kept
	maxCatchUpLag         = 10_000   // how many positions a build may lag for an append to wait until it has caught up
)

// NewInline returns an Inline.
func NewInline(config InlineConfig) *Inline {
	folds, err := lru.New[inlineKey, *folding.Fold](maxInlineFolds)
	if err != nil {
		panic(err) // impossible: the size is positive
	}
	return &Inline{config: config, folds: folds}
}

// fold returns the compiled fold of a build.
func (in *Inline) fold(ctx context.Context, b domain.TenantBuild) (*folding.Fold, error) {
	key := inlineKey{b.ProjectionID, b.Build}
	if fold, ok := in.folds.Get(key); ok {
		return fold, nil
	}
	fold, err := folding.CompileIn(ctx, *b.Definition, in.config.Handlers)
	if err != nil {
		return nil, err
	}
	fold = fold.WithUpcasters(in.config.Upcasters)
	in.folds.Add(key, fold)
	return fold, nil
}

// open prepares a build for folding. It returns an error if this process cannot fold into it.
func (in *Inline) open(ctx context.Context, b domain.TenantBuild) (*inlineBuild, error) {
	p := domain.Projection{ProjectionID: b.ProjectionID, Build: b.Build, Definition: folding.WithDefaults(*b.Definition)}
	driver, ok := in.config.Drivers[p.Definition.Database].(drivers.Transactional)
	if !ok {
		return nil, fmt.Errorf("documents in database %q cannot be saved with an append", p.Definition.Database)
	}
	fold, err := in.fold(ctx, b)
	if err != nil {
		return nil, err
	}
	return &inlineBuild{fold: fold, build: p.LiveBuild(), driver: driver, immutable: fold.Immutable() && !fold.Maps()}, nil
}

// Open prepares a tenant's builds, each with its Definition, for folding; head is the head of the tenant's log. gone
// are the builds that this process cannot fold into; if there are any, nothing can be folded. Otherwise checkpoints are
// the statements that read the builds' checkpoints, in the order of the builds. The caller that holds the log must find
// all of them at head.
func (in *Inline) Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (folds *InlineFolds, checkpoints []domain.Statement, gone []domain.TenantBuild, err error) {
	folds = &InlineFolds{in: in, tenant: tenant, head: head, atHead: true}
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

// CatchUp folds the log up to head into builds that lag. unfit are the builds that lag too far for an append to wait,
// or that met an event they cannot fold: the Runner takes those over.
func (in *Inline) CatchUp(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (unfit []domain.TenantBuild, err error) {
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
		if err == nil && head-checkpoint > maxCatchUpLag {
			unfit = append(unfit, b)
			continue
		}
		if err == nil {
			err = CatchUpTo(ctx, in.config.Store, opened.driver, opened.build, tenant, opened.fold, head)
		}
		if _, faulted := errors.AsType[*folding.EventError](err); faulted || errors.Is(err, drivers.ErrNoTable) {
			in.config.Log.Warn("an inline build lags behind the log, and cannot catch up", "projection", b.Name, "tenant", tenant.String(), "build", b.Build, "error", err)
			unfit = append(unfit, b)
			continue
		}
		if err != nil {
			return unfit, err
		}
	}
	return unfit, nil
}

// CatchUpTo folds a tenant's log into a build up to a position, and saves the checkpoint there, so that a build at the
// log's head can become inline. It does little if the build is already at that position.
func CatchUpTo(ctx context.Context, log Log, driver drivers.Driver, build domain.Build, tenant domain.TenantID, fold *folding.Fold, to int64) error {
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
		// Every event up to there has taken effect. The checkpoint may be lower if no event was folded since the last
		// save. It is not read again: a database that has crashed may have lost that save, and would then accept this
		// one.
		if replay.at.stored < to {
			err = driver.Save(ctx, build, tenant, drivers.Batch{From: replay.at.stored, To: to})
		}
		if err != nil && !errors.Is(err, drivers.ErrStale) {
			return fmt.Errorf("save the checkpoint of build %d of projection %q: %w", build.Number, build.Name, err)
		}
	}
}
