package rebuild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// DifferentDocument is a document that a rebuild would change.
type DifferentDocument struct {
	Tenant      domain.TenantID
	ID          string
	Kind        domain.DifferenceKind
	Fields      []string        // with DifferenceChanged: paths that differ, the first of them if there are many
	Live, Built json.RawMessage // the whole documents; nil: missing
}

// DifferenceQuery selects the documents of EachDifference.
type DifferenceQuery struct {
	Tenant domain.TenantID // of a shared projection, only this tenant's; domain.Everyone: those of all tenants
	// AfterTenant and After name the last document that is known already. They need not exist.
	AfterTenant domain.TenantID
	After       string
}

// EachDifference calls each with every document in which the build of a rebuild that awaits approval differs from the
// live one: by tenant, then by id. It calls pause before each page of documents that it reads, whether or not they
// differ. It stops at the first error of either.
//
// It reads both builds page by page, and holds one page of each. Events may arrive meanwhile, so a document may have
// DifferenceUnsettled. It leaves out deleted tenants, and those that the rebuild is known to leave behind.
//
// The error is domain.CodeConflict if the rebuild does not await approval, also if that ends meanwhile, and
// domain.CodeUnsupported if there are no documents to compare.
func (r *Rebuilds) EachDifference(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, q DifferenceQuery, each func(DifferentDocument) error, pause func() error) error {
	row, err := r.awaitingApproval(ctx, id, rebuild)
	if err != nil {
		return err
	}
	if row.Definition.Mode == domain.ModeLive {
		return domain.Errorf(domain.CodeUnsupported, "", "the rebuild makes projection %q live, without documents to compare", row.Name)
	}
	tenants, err := r.comparedTenants(ctx, row, q)
	if err != nil {
		return err
	}
	d := difference{Rebuilds: r, row: row, each: each, pause: pause}
	d.built = foldedBuild{Build: row.NewBuild(), source: row.Definition.Source, types: r.typesOf(ctx, row.Definition)}
	if d.built.driver, err = r.driver(d.built.Database); err != nil {
		return domain.Errorf(domain.CodeUnavailable, "", "%s", err)
	}
	for _, tenant := range tenants {
		after := ""
		if tenant == q.AfterTenant {
			after = q.After
		}
		if err := d.compare(ctx, tenant, after); err != nil && !errors.Is(err, errErased) {
			return err
		}
	}
	return nil
}

// awaitingApproval returns a rebuild whose documents and the live ones are both there, complete and up to date.
func (r *Rebuilds) awaitingApproval(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	row, err := r.config.Store.Rebuild(ctx, id, rebuild)
	if err != nil {
		return row, err
	}
	switch {
	case row.State.Ended():
		err = domain.Errorf(domain.CodeConflict, "", "the rebuild is %s: documents are compared only while it awaits approval; start one with approve: manual", row.State)
	case row.Cancel:
		err = domain.Errorf(domain.CodeConflict, "", "the rebuild is being cancelled, so its documents are not compared")
	case row.State != domain.RebuildAwaitingApproval:
		err = domain.Errorf(domain.CodeConflict, "", "the rebuild is %s: its documents are compared when it awaits approval", row.State)
	}
	return row, err
}

// comparedTenants returns the tenants whose documents are compared, in order.
func (r *Rebuilds) comparedTenants(ctx context.Context, row domain.Rebuild, q DifferenceQuery) ([]domain.TenantID, error) {
	heads, err := r.headsOf(ctx, row)
	if err != nil {
		return nil, err
	}
	faulted, err := r.faultedOf(ctx, row)
	if err != nil {
		return nil, err
	}
	var tenants []domain.TenantID
	for _, head := range heads {
		if t := head.Tenant; head.Position > 0 && !faulted[t] && (q.Tenant == domain.Everyone || t == q.Tenant) && bytes.Compare(t[:], q.AfterTenant[:]) >= 0 {
			tenants = append(tenants, t)
		}
	}
	slices.SortFunc(tenants, func(a, b domain.TenantID) int { return bytes.Compare(a[:], b[:]) })
	return tenants, nil
}

// errErased ends the comparison for a tenant whose log is being erased: its live documents are erased later.
var errErased = errors.New("the tenant's log was erased")

// difference finds the differences of a rebuild.
type difference struct {
	*Rebuilds
	row   domain.Rebuild
	built foldedBuild
	each  func(DifferentDocument) error
	pause func() error
}

// compare finds the differences among one tenant's documents after the one named.
func (d *difference) compare(ctx context.Context, tenant domain.TenantID, after string) error {
	p, err := d.config.Store.LiveProjection(ctx, tenant, d.row.ProjectionID)
	if err != nil {
		return fmt.Errorf("look up the live build: %w", err)
	}
	if p.Definition.Mode == domain.ModeLive {
		return domain.Errorf(domain.CodeUnsupported, "", "projection %q is live, without documents to compare", p.Name)
	}
	own := foldedBuild{Build: p.LiveBuild(), source: p.Definition.Source, types: d.typesOf(ctx, p.Definition)}
	if own.driver, err = d.driver(own.Database); err != nil {
		return domain.Errorf(domain.CodeUnavailable, "", "%s", err)
	}
	pagesOf := func(build *foldedBuild) *pages {
		return &pages{tenant: tenant, begun: after != "", last: after, read: func(ctx context.Context, page *pages) error {
			return d.readPage(ctx, page, build)
		}}
	}
	live, built := pagesOf(&own), pagesOf(&d.built)
	return merge(ctx, live, built, func(liveDocument, builtDocument *domain.Document) error {
		found := DifferentDocument{Tenant: tenant, Kind: domain.DifferenceChanged}
		switch {
		case liveDocument == nil:
			found.ID, found.Kind, found.Built = builtDocument.ID, domain.DifferenceNew, builtDocument.Data
		case builtDocument == nil:
			found.ID, found.Kind, found.Live = liveDocument.ID, domain.DifferenceGone, liveDocument.Data
		case bytes.Equal(liveDocument.Data, builtDocument.Data):
			return nil
		default:
			found.ID, found.Live, found.Built = liveDocument.ID, liveDocument.Data, builtDocument.Data
			for _, field := range differences(found.Live, found.Built) {
				found.Fields = append(found.Fields, field.path)
			}
			if found.Fields == nil {
				return nil
			}
		}
		if !isSettled(live, built, liveDocument, builtDocument) {
			found.Kind = domain.DifferenceUnsettled
		}
		return d.each(found)
	})
}

// readPage reads a page of a build, with a position that the build had reached before, and the log's head after it.
func (d *difference) readPage(ctx context.Context, page *pages, build *foldedBuild) error {
	if err := d.pause(); err != nil {
		return err
	}
	if err := d.giveWay(ctx, build.Database); err != nil {
		return err
	}
	before, err := d.config.Store.Head(ctx, page.tenant)
	if err != nil {
		return err
	}
	checkpoint, err := build.driver.Checkpoint(ctx, build.Build, page.tenant)
	if err != nil {
		return err
	}
	if page.at, err = d.reachedBy(ctx, page.tenant, build, checkpoint, before.Position); err != nil {
		return err
	}
	if page.page, err = build.driver.Query(ctx, build.Build, page.tenant, page.query()); err != nil {
		return err
	}
	// Documents are dropped only after the rebuild has ended or the log was erased. If neither has happened by now, the
	// page is complete.
	after, err := d.config.Store.Head(ctx, page.tenant)
	if err != nil {
		return err
	}
	if page.head = after.Position; page.head < page.at {
		return errErased
	}
	_, err = d.awaitingApproval(ctx, d.row.ProjectionID, d.row.ID)
	return err
}
