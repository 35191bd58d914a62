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

// TenantProgress is a rebuild's progress for one tenant.
type TenantProgress struct {
	Tenant   domain.TenantID
	Position int64 // how far its log is folded into the new build, as stored
	Head     int64 // its log's head
	Swapped  bool  // its readers see the new build
	// Fault is why the rebuild cannot be swapped in for the tenant; nil: no reason known.
	Fault *domain.TenantFault
}

// Tenants returns a rebuild's progress for the tenants after the one named, ordered by id, at most limit of them. more
// reports whether others follow. With faulted it returns only the tenants that the rebuild leaves behind: all of them
// once it is swapped, and some before. It omits tenants without events. A build that was dropped has position 0.
func (r *Rebuilds) Tenants(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, faulted bool, after domain.TenantID, limit int) (page []TenantProgress, more bool, err error) {
	row, err := r.config.Store.Rebuild(ctx, id, rebuild)
	if err != nil {
		return nil, false, err
	}
	heads, err := r.headsOf(ctx, row)
	if err != nil {
		return nil, false, err
	}
	if faulted {
		known, err := r.faultedOf(ctx, row)
		if err != nil {
			return nil, false, err
		}
		heads = slices.DeleteFunc(heads, func(head domain.Head) bool { return !known[head.Tenant] })
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

// positions reads the build's position for each tenant of a page.
func (r *Rebuilds) positions(ctx context.Context, row domain.Rebuild, page []TenantProgress) error {
	if row.Definition.Mode == domain.ModeLive {
		return nil
	}
	build := row.NewBuild()
	driver := r.config.Drivers[build.Database]
	if driver == nil {
		return domain.Errorf(domain.CodeUnavailable, "", "the rebuild's documents are in database %q, which is not in this process's configuration", build.Database)
	}
	for i := range page {
		position, err := driver.Checkpoint(ctx, build, page[i].Tenant)
		if errors.Is(err, drivers.ErrNoTable) {
			return nil // not created yet, or dropped
		}
		if err != nil {
			return err
		}
		page[i].Position = position
	}
	return nil
}

// swapped reads for which tenants of a page the build is live.
func (r *Rebuilds) swapped(ctx context.Context, row domain.Rebuild, page []TenantProgress) error {
	p, err := r.config.Store.Projection(ctx, row.ProjectionID)
	if domain.IsCode(err, domain.CodeNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	rows, err := r.config.Store.TenantBuildsOf(ctx, p.ProjectionID)
	if err != nil {
		return err
	}
	own := inForce(p, rows)
	for i := range page {
		live, ok := own[page[i].Tenant]
		page[i].Swapped = ok && live.Build == row.Build || !ok && p.Build == row.Build
		switch {
		case row.Faulted == nil || page[i].Swapped:
		case ok && live.PinnedTo == row.Build:
			page[i].Fault = live.Fault
		case !keepsInRows(row):
			n := slices.IndexFunc(row.Faulted.First, func(f domain.TenantFault) bool { return f.Tenant == page[i].Tenant })
			if n >= 0 {
				page[i].Fault = &row.Faulted.First[n]
			}
		}
	}
	return nil
}

// faultedOf returns the tenants that a rebuild leaves behind, as far as known.
func (r *Rebuilds) faultedOf(ctx context.Context, row domain.Rebuild) (map[domain.TenantID]bool, error) {
	faulted := make(map[domain.TenantID]bool)
	if row.Faulted == nil {
		return faulted, nil
	}
	rows, err := r.config.Store.TenantBuildsOf(ctx, row.ProjectionID)
	if err != nil {
		return nil, err
	}
	for _, b := range rows {
		faulted[b.Tenant] = b.PinnedTo == row.Build && b.Fault != nil
	}
	if !keepsInRows(row) {
		for _, fault := range row.Faulted.First {
			faulted[fault.Tenant] = true
		}
	}
	return faulted, nil
}

// keepsInRows reports whether a rebuild's left-behind tenants are recorded in their own rows, which are deleted when a
// tenant is brought along. That is the case for a swapped rebuild for all tenants.
func keepsInRows(row domain.Rebuild) bool {
	return len(row.Tenants) == 0 && (row.State == domain.RebuildSwapped || row.State == domain.RebuildRolledBack)
}

// inForce returns the tenant builds that are in force.
func inForce(p domain.Projection, rows []domain.TenantBuild) map[domain.TenantID]domain.TenantBuild {
	own := make(map[domain.TenantID]domain.TenantBuild)
	for _, b := range rows {
		if b.Base == 0 || b.Base == p.Build {
			own[b.Tenant] = b
		}
	}
	return own
}

// headsOf returns the heads of all logs that a rebuild covers: of all tenants, of some, or its owner's.
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
