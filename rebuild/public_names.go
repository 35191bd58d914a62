package rebuild

import (
	"context"
	"sync"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
)

// movePublicNames points the public names of shared projections, all or those in one database, at their live builds. A
// process killed right after a swap, or a database outage, may have left a name behind.
func (r *Rebuilds) movePublicNames(ctx context.Context, only string) {
	for tries := 1; ctx.Err() == nil; tries++ {
		shared, err := r.config.Store.Projections(ctx, domain.Everyone)
		if err == nil {
			for _, p := range shared {
				if only == "" || p.Definition.Database == only {
					r.movePublicName(ctx, p.ProjectionID)
				}
			}
			return
		}
		_ = sleep(ctx, projection.Backoff(tries)) // the loop ends with ctx
	}
}

// Answers reports that a database of documents answers (again), so the rebuilds that wait for it continue. It returns
// at once.
func (r *Rebuilds) Answers(database string) {
	r.mu.Lock()
	r.answering[database] = struct{}{}
	r.mu.Unlock()
	r.Wake()
}

// moveNamesAfterOutage moves the public names in databases that are back.
func (r *Rebuilds) moveNamesAfterOutage(ctx context.Context, all *sync.WaitGroup) {
	r.mu.Lock()
	back := r.answering
	r.answering = make(map[string]struct{})
	r.mu.Unlock()
	for database := range back {
		all.Go(func() { r.movePublicNames(ctx, database) })
	}
}

// maxNameTries is how many times in a row to try to move the public name. Readers of the name may lock it for long.
// Only people depend on the name, and it is moved again before the old build is dropped.
const maxNameTries = 8

// movePublicName points a shared projection's public name at its live build.
func (r *Rebuilds) movePublicName(ctx context.Context, id domain.ProjectionID) {
	if !id.Shared() {
		return
	}
	for tries := 1; ; tries++ {
		err := r.tryMovePublicName(ctx, id)
		if err == nil || ctx.Err() != nil {
			return
		}
		if tries == maxNameTries {
			r.config.Log.Warn("the public name of a projection does not point at its live build yet", "projection", id.Name, "error", err)
			return
		}
		if sleep(ctx, projection.Backoff(tries)) != nil {
			return
		}
	}
}

// tryMovePublicName is one try to move the name. It looks up the live build each time, since another swap may have come
// in between.
func (r *Rebuilds) tryMovePublicName(ctx context.Context, id domain.ProjectionID) error {
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
	if _, err := r.driver(p.Definition.Database); err != nil {
		return err
	}
	if _, out := r.outage(p.Definition.Database); out {
		return nil // Answers reports when it is back
	}
	return r.pointName(ctx, p)
}

// pointName points a shared projection's public name at its live build, and at the tenant builds of those tenants that
// have one.
func (r *Rebuilds) pointName(ctx context.Context, p domain.Projection) error {
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
