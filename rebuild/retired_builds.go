package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// retiredBuild identifies a retired build.
type retiredBuild struct {
	id     domain.ProjectionID
	number int64
}

// failedDrops are the failed attempts to drop a retired build.
type failedDrops struct {
	made int
	next time.Time
}

// forgetAfter is how long a retired build is remembered after its database has left the configuration. Starting a
// process once with a wrong configuration must not be enough to forget it.
const forgetAfter = 7 * 24 * time.Hour

// dropBuilds cleans up after ended tenant builds, and drops retired builds when they are due, until ctx ends.
func (r *Rebuilds) dropBuilds(ctx context.Context) {
	ticker := time.NewTicker(r.config.Poll)
	defer ticker.Stop()
	for {
		if err := r.config.Store.SettleTenantBuilds(ctx, time.Now().Add(r.config.Keep)); err != nil && ctx.Err() == nil {
			r.config.Log.Warn("some ended tenant builds could not be cleaned up; trying again", "error", err)
		}
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

// DropRetired drops every retired build that is due. Run calls it regularly. It may be called at any time, by several
// processes at once. It retries failed drops later, at growing intervals. If the build's database is no longer
// configured, DropRetired forgets the build after a week, and its table stays.
func (r *Rebuilds) DropRetired(ctx context.Context) error {
	builds, err := r.config.Store.RetiredBuilds(ctx, time.Now())
	if err != nil {
		return err
	}
	r.forgetDropped(builds)
	var wrong []error
	for _, build := range builds {
		key := retiredBuild{build.ProjectionID, build.Number}
		if !r.dropDue(key) {
			continue
		}
		err := r.drop(ctx, build)
		if ctx.Err() == nil {
			r.dropTried(key, err)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("drop build %d of projection %q in database %q: %w", build.Number, build.Name, build.Database, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(wrong...)
}

// forgetDropped forgets failed attempts for builds that another process has dropped.
func (r *Rebuilds) forgetDropped(left []domain.RetiredBuild) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.drops, func(key retiredBuild, _ *failedDrops) bool {
		return !slices.ContainsFunc(left, func(b domain.RetiredBuild) bool { return key == retiredBuild{b.ProjectionID, b.Number} })
	})
}

func (r *Rebuilds) dropDue(key retiredBuild) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.drops[key]
	return a == nil || !time.Now().Before(a.next)
}

// dropTried records an attempt. After a failure the next one follows in a minute, then at growing intervals up to an
// hour.
func (r *Rebuilds) dropTried(key retiredBuild, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.drops, key)
		return
	}
	a := r.drops[key]
	if a == nil {
		a = &failedDrops{}
		r.drops[key] = a
	}
	a.next = time.Now().Add(min(time.Minute<<min(a.made, 6), time.Hour))
	a.made++
}

func (r *Rebuilds) drop(ctx context.Context, build domain.RetiredBuild) error {
	taken, err := r.config.Store.MarkDropping(ctx, build.Build)
	if err != nil || !taken {
		return err
	}
	driver := r.config.Drivers[build.Database]
	if driver == nil {
		if time.Since(build.DropAt) < forgetAfter {
			return fmt.Errorf("the database is not in this process's configuration; given up at %s", build.DropAt.Add(forgetAfter).UTC().Format(time.RFC3339))
		}
		r.config.Log.Warn("a retired build is abandoned: its database is no longer in the configuration, and its table stays there", "projection", build.Name,
			"build", build.Number, "database", build.Database)
		return r.config.Store.ForgetBuild(ctx, build.Build)
	}
	if build.Shared() {
		// Dropping removes the public name as well if it still points here.
		if err := r.pointRetiredName(ctx, build.Build); err != nil && !errors.Is(err, drivers.ErrNoTable) {
			return err
		}
	}
	if err := driver.DropTable(ctx, build.Build); err != nil {
		return err
	}
	return r.config.Store.ForgetBuild(ctx, build.Build)
}

// pointRetiredName points the public name in a retired build's database at the live build, if that is in the same
// database.
func (r *Rebuilds) pointRetiredName(ctx context.Context, build domain.Build) error {
	p, err := r.config.Store.Projection(ctx, build.ProjectionID)
	if domain.IsCode(err, domain.CodeNotFound) || err == nil && (p.Definition.Database != build.Database || p.Definition.Mode == domain.ModeLive) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.pointName(ctx, p)
}
