package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// swapTables points the public names of shared projections, all or those in one database, at their live builds. A
// process killed right after a swap, or a database outage, may have left a name behind.
func (r *Rebuilds) swapTables(ctx context.Context, only string) {
	for tries := 1; ctx.Err() == nil; tries++ {
		shared, err := r.config.Store.Projections(ctx, domain.Everyone)
		if err == nil {
			for _, p := range shared {
				if only == "" || p.Definition.Database == only {
					r.swapTable(ctx, p.ProjectionID)
				}
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff(tries)):
		}
	}
}

// Answers reports that a database of documents answers (again), so the rebuilds that wait for it continue. It returns
// at once.
func (r *Rebuilds) Answers(database string) {
	r.mu.Lock()
	r.back[database] = struct{}{}
	r.mu.Unlock()
	r.Wake()
}

// catchUpNames moves the public names in databases that are back.
func (r *Rebuilds) catchUpNames(ctx context.Context, all *sync.WaitGroup) {
	r.mu.Lock()
	back := r.back
	r.back = make(map[string]struct{})
	r.mu.Unlock()
	for database := range back {
		all.Go(func() { r.swapTables(ctx, database) })
	}
}

// swapTries is how many times in a row to try to move the public name. Readers of the name may lock it for long. Only
// people depend on the name, and it is moved again before the old build is dropped.
const swapTries = 8

// swapTable points a shared projection's public name at its live build.
func (r *Rebuilds) swapTable(ctx context.Context, id domain.ProjectionID) {
	if !id.Shared() {
		return
	}
	for tries := 1; ; tries++ {
		err := r.pointLive(ctx, id)
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

// pointLive is one try to move the name. It looks up the live build each time, since another swap may have come in
// between.
func (r *Rebuilds) pointLive(ctx context.Context, id domain.ProjectionID) error {
	p, err := r.config.Store.Projection(ctx, id)
	if domain.IsCode(err, domain.CodeNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if p.Definition.Mode == domain.ModeLive {
		return nil // it has no documents
	}
	driver := r.config.Drivers[p.Definition.Database]
	if driver == nil {
		return fmt.Errorf("there is no database %q in this process's configuration", p.Definition.Database)
	}
	if _, out := r.outage(p.Definition.Database); out {
		return nil // Answers reports when it is back
	}
	return r.pointAt(ctx, p)
}

// pointAt points a shared projection's public name at its live build, and at the tenant builds of those tenants that
// have one.
func (r *Rebuilds) pointAt(ctx context.Context, p domain.Projection) error {
	rows, err := r.config.Store.TenantBuildsOf(ctx, p.ProjectionID)
	if err != nil {
		return err
	}
	var overrides []drivers.Override
	for tenant, own := range inForce(p, rows) {
		elsewhere := own.Definition != nil && (own.Definition.Database != p.Definition.Database || own.Definition.Mode == domain.ModeLive)
		if own.Build != p.Build && !elsewhere {
			build := p.LiveBuild()
			build.Number = own.Build
			overrides = append(overrides, drivers.Override{Tenant: tenant, Build: build})
		}
	}
	return r.config.Drivers[p.Definition.Database].SwapTable(ctx, p.LiveBuild(), overrides)
}

// retired identifies a retired build.
type retired struct {
	id     domain.ProjectionID
	number int64
}

// dropTries are the failed attempts to drop a retired build.
type dropTries struct {
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
			r.config.Log.Warn("the tenants' builds that have ended could not all be cleared up; trying again", "error", err)
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
		key := retired{build.ProjectionID, build.Number}
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
	maps.DeleteFunc(r.drops, func(key retired, _ *dropTries) bool {
		return !slices.ContainsFunc(left, func(b domain.RetiredBuild) bool { return key == retired{b.ProjectionID, b.Number} })
	})
}

func (r *Rebuilds) dropDue(key retired) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.drops[key]
	return a == nil || !time.Now().Before(a.next)
}

// dropTried records an attempt. After a failure the next one follows in a minute, then at growing intervals up to an
// hour.
func (r *Rebuilds) dropTried(key retired, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.drops, key)
		return
	}
	a := r.drops[key]
	if a == nil {
		a = &dropTries{}
		r.drops[key] = a
	}
	a.next = time.Now().Add(min(time.Minute<<min(a.made, 6), time.Hour))
	a.made++
}

func (r *Rebuilds) drop(ctx context.Context, build domain.RetiredBuild) error {
	taken, err := r.config.Store.TakeRetired(ctx, build.Build)
	if err != nil || !taken {
		return err
	}
	driver := r.config.Drivers[build.Database]
	if driver == nil {
		if time.Since(build.DropAt) < forgetAfter {
			return fmt.Errorf("there is no such database in this process's configuration; given up at %s", build.DropAt.Add(forgetAfter).UTC().Format(time.RFC3339))
		}
		r.config.Log.Warn("a retired build is given up: its database is in the configuration no more, and its table stays there", "projection", build.Name,
			"build", build.Number, "database", build.Database)
		return r.config.Store.ForgetBuild(ctx, build.Build)
	}
	if build.Shared() {
		// Dropping removes the public name as well if it still points here.
		if err := r.pointName(ctx, build.Build); err != nil && !errors.Is(err, drivers.ErrNoTable) {
			return err
		}
	}
	if err := driver.DropTable(ctx, build.Build); err != nil {
		return err
	}
	return r.config.Store.ForgetBuild(ctx, build.Build)
}

// pointName points the public name in a retired build's database at the live build, if that is in the same database.
func (r *Rebuilds) pointName(ctx context.Context, build domain.Build) error {
	p, err := r.config.Store.Projection(ctx, build.ProjectionID)
	if domain.IsCode(err, domain.CodeNotFound) || err == nil && (p.Definition.Database != build.Database || p.Definition.Mode == domain.ModeLive) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.pointAt(ctx, p)
}
