package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// swapTables points the public names of all shared projections at their live builds: a process that was killed right
// behind a swap may have left one behind.
func (r *Rebuilds) swapTables(ctx context.Context) {
	for tries := 1; ctx.Err() == nil; tries++ {
		shared, err := r.config.Store.Projections(ctx, domain.Everyone)
		if err == nil {
			for _, p := range shared {
				r.swapTable(ctx, p.ProjectionID)
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff(tries)):
		}
	}
}

// swapTries is how often the public name is tried to be moved at once. Readers of it may hold it for long; nothing but
// people depends on it, and it is tried again before the old build is dropped.
const swapTries = 8

// swapTable points a shared projection's public name at its live build.
func (r *Rebuilds) swapTable(ctx context.Context, id domain.ProjectionID) {
	if !id.Shared() {
		return
	}
	for tries := 1; ; tries++ {
		err := r.pointName(ctx, id)
		if err == nil || ctx.Err() != nil {
			return
		}
		if tries == swapTries {
			r.config.Log.Warn("the public name of a projection could not be pointed at its live build yet", "projection", id.Name, "error", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff(tries)):
		}
	}
}

// pointName is one try of it. Which build is live is looked up each time: another swap may have come in between.
func (r *Rebuilds) pointName(ctx context.Context, id domain.ProjectionID) error {
	p, err := r.config.Store.Projection(ctx, id)
	if isCode(err, domain.CodeNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	driver := r.config.Drivers[p.Definition.Database]
	if driver == nil {
		return fmt.Errorf("there is no database %q in this process's configuration", p.Definition.Database)
	}
	return driver.SwapTable(ctx, p.LiveBuild())
}

// dropBuilds drops retired builds when their time has come, until ctx ends.
func (r *Rebuilds) dropBuilds(ctx context.Context) {
	ticker := time.NewTicker(r.config.Poll)
	defer ticker.Stop()
	for {
		if err := r.DropRetired(ctx); err != nil && ctx.Err() == nil {
			r.config.Log.Warn("retired builds could not all be dropped; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// DropRetired drops every retired build whose time has come. Run does it again and again; it may be called at any time,
// by several processes at once.
func (r *Rebuilds) DropRetired(ctx context.Context) error {
	builds, err := r.config.Store.RetiredBuilds(ctx, time.Now())
	if err != nil {
		return err
	}
	var wrong []error
	for _, build := range builds {
		if err := r.drop(ctx, build.Build); err != nil {
			wrong = append(wrong, fmt.Errorf("drop build %d of projection %q: %w", build.Number, build.Name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(wrong...)
}

func (r *Rebuilds) drop(ctx context.Context, build domain.Build) error {
	driver := r.config.Drivers[build.Database]
	if driver == nil {
		return fmt.Errorf("there is no database %q in this process's configuration", build.Database)
	}
	if build.Shared() {
		// Dropping takes the public name along where it still points here.
		if err := r.pointName(ctx, build.ProjectionID); err != nil && !errors.Is(err, drivers.ErrNoTable) {
			return err
		}
	}
	if err := driver.DropTable(ctx, build); err != nil {
		return err
	}
	return r.config.Store.ForgetBuild(ctx, build)
}
