package rebuild

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// TenantProgress is how far a rebuild is with one tenant.
type TenantProgress struct {
	Tenant   domain.TenantID
	Position int64 // up to where its log is folded into the new build, as it is stored
	Head     int64 // its log's
	Swapped  bool  // its readers see the new build
}

// Tenants returns how far a rebuild is with each tenant behind after, in the order of their ids, at most limit of them; more
// reports whether there are others behind these. Tenants without events are left out. A build that was dropped has
// position 0.
func (r *Rebuilds) Tenants(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, after domain.TenantID, limit int) (page []TenantProgress, more bool, err error) {
	row, err := r.config.Store.Rebuild(ctx, id, rebuild)
	if err != nil {
		return nil, false, err
	}
	heads, err := r.headsOf(ctx, row)
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(heads, func(a, b domain.Head) int { return bytes.Compare(a.Tenant[:], b.Tenant[:]) })
	for _, head := range heads {
		if bytes.Compare(head.Tenant[:], after[:]) <= 0 || head.Position == 0 {
			continue
		}
		if more = len(page) == limit; more {
			break
		}
		page = append(page, TenantProgress{Tenant: head.Tenant, Head: head.Position})
	}
	if err := r.positions(ctx, row, page); err != nil {
		return nil, false, err
	}
	return page, more, r.swapped(ctx, row, page)
}

// positions looks up how far the build is with each tenant of a page.
func (r *Rebuilds) positions(ctx context.Context, row domain.Rebuild, page []TenantProgress) error {
	if row.Definition.Mode == domain.ModeLive {
		return nil
	}
	build := row.NewBuild()
	driver := r.config.Drivers[build.Database]
	if driver == nil {
		return domain.Errorf(domain.CodeUnavailable, "", "the rebuild's documents are in database %q, which this process has no configuration for", build.Database)
	}
	for i := range page {
		position, err := driver.Checkpoint(ctx, build, page[i].Tenant)
		if errors.Is(err, drivers.ErrNoTable) {
			return nil // not made yet, or dropped
		}
		if err != nil {
			return err
		}
		page[i].Position = position
	}
	return nil
}

// swapped looks up for which tenants of a page the build is live.
func (r *Rebuilds) swapped(ctx context.Context, row domain.Rebuild, page []TenantProgress) error {
	p, err := r.config.Store.Projection(ctx, row.ProjectionID)
	if isCode(err, domain.CodeNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	own, err := r.ownBuilds(ctx, p)
	if err != nil {
		return err
	}
	for i := range page {
		live, ok := own[page[i].Tenant]
		if !ok {
			live = p.Build
		}
		page[i].Swapped = live == row.Build
	}
	return nil
}

// ownBuilds returns the builds of those tenants that have one of their own in force.
func (r *Rebuilds) ownBuilds(ctx context.Context, p domain.Projection) (map[domain.TenantID]int64, error) {
	rows, err := r.config.Store.TenantBuildsOf(ctx, p.ProjectionID)
	if err != nil {
		return nil, err
	}
	own := make(map[domain.TenantID]int64)
	for _, b := range rows {
		if b.Base == 0 || b.Base == p.Build {
			own[b.Tenant] = b.Build
		}
	}
	return own, nil
}

// headsOf returns the heads of all logs that a rebuild is about: those of all tenants, of some, or its owner's.
func (r *Rebuilds) headsOf(ctx context.Context, row domain.Rebuild) ([]domain.Head, error) {
	tenants := row.Tenants
	switch {
	case len(tenants) > 0:
	case row.Shared():
		return r.config.Store.Heads(ctx, time.Time{})
	default:
		tenants = []domain.TenantID{row.Owner}
	}
	heads := make([]domain.Head, 0, len(tenants))
	for _, tenant := range tenants {
		head, err := r.config.Store.Head(ctx, tenant)
		if err != nil {
			return nil, err
		}
		head.Tenant = tenant
		heads = append(heads, head)
	}
	return heads, nil
}
