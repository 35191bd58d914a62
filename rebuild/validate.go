package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
)

// pageDocuments is how many documents a validation reads at a time while their size is unknown, and pageBytes limits
// a page's bytes. Once the size is known, a page has as many documents as fit into half of that, within limits.
const (
	pageDocuments    = 500
	minPageDocuments = 50
	maxPageDocuments = 5000
	pageBytes        = 4 << 20
)

// validate validates the new build, if it has documents.
func (a *attempt) validate(ctx context.Context) error {
	if err := a.enter(ctx, domain.RebuildValidating); err != nil || !a.stored() {
		return err
	}
	return a.validateAll(ctx)
}

// validateAll checks the assertions on every document of the new build, and compares it with the live build's, except
// for faulted and erased tenants. It reads all documents of both builds, tenants in parallel, one page of each at a
// time.
func (a *attempt) validateAll(ctx context.Context) error {
	a.touched.begin()
	baseline, err := a.findBaseline(ctx)
	if err != nil {
		return err
	}
	var report report
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(a.r.config.Tenants)
	for _, tenant := range a.tenants() {
		if a.isFaulted(tenant) {
			continue
		}
		group.Go(func() error {
			found, err := a.compare(groupCtx, tenant, baseline)
			if bad, ok := errors.AsType[*liveError](err); ok && groupCtx.Err() == nil && (errors.Is(err, drivers.ErrNoTable) || bad.database != a.build.Database) {
				// The comparison is for people. A live build that is being moved away from, or has vanished, must not
				// block the rebuild.
				if report.abandon() {
					a.r.config.Log.Warn("the documents of the live build cannot be read, and are not compared", "projection", a.row.Name,
						"database", bad.database, "error", err)
				}
				found, err = a.compare(groupCtx, tenant, nil)
			}
			if err != nil {
				return a.leaveBehind(err)
			}
			if found.Gone+found.Changed > 0 {
				if erased, err := a.isErased(groupCtx, tenant); err != nil || erased {
					return err
				}
			}
			report.add(found)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := a.requireUnfaulted(); err != nil {
		return err
	}
	a.work.mu.Lock()
	defer a.work.mu.Unlock()
	a.work.row.Documents = report.documents
	a.work.row.LiveBefore, a.work.row.Difference = 0, nil
	if baseline != nil && !report.abandoned {
		a.work.row.LiveBefore, a.work.row.Difference = report.live, &report.Difference
	}
	return a.saveRow(ctx)
}

// isErased reports whether a tenant's log was erased after it was folded, perhaps in part. Its live documents are
// erased later, so a comparison with them shows nothing.
func (a *attempt) isErased(ctx context.Context, tenant domain.TenantID) (bool, error) {
	head, err := a.r.config.Store.Head(ctx, tenant)
	if err != nil {
		return false, fmt.Errorf("read the log's head: %w", err)
	}
	return head.Position < a.position(tenant), nil
}

// findBaseline returns what to compare the new build with; nil if there is nothing.
func (a *attempt) findBaseline(ctx context.Context) (*baseline, error) {
	p, err := a.r.config.Store.Projection(ctx, a.row.ProjectionID)
	if err != nil {
		return nil, fmt.Errorf("look up the live build: %w", err)
	}
	if p.Definition.Mode == domain.ModeLive || p.Build == a.row.Build && len(a.row.Tenants) == 0 {
		return nil, nil
	}
	live := &baseline{projection: p, source: p.Definition.Source}
	if a.r.config.Drivers[p.Definition.Database] == nil {
		return nil, nil // the projection moves away from a database that is gone
	}
	live.types = a.r.typesOf(ctx, p.Definition)
	return live, nil
}

// typesOf returns the types that a definition folds; all (nil) if this program cannot run it.
func (r *Rebuilds) typesOf(ctx context.Context, definition domain.Definition) []string {
	fold, err := folding.CompileIn(ctx, definition, r.config.Handlers)
	if err != nil {
		return nil
	}
	return fold.Types()
}

// validateTouched checks the assertions on the documents saved after the others were validated, in the state in which
// they are swapped in. It covers all tenants, or those named.
func (a *attempt) validateTouched(ctx context.Context, tenants ...domain.TenantID) error {
	touched, ok := a.touched.drain(tenants)
	if !ok {
		return errors.New("too many documents have changed since their validation; validating all again")
	}
	for tenant, ids := range touched {
		if a.isFaulted(tenant) {
			continue
		}
		if err := a.leaveBehind(a.validateDocuments(ctx, tenant, ids)); err != nil {
			return err
		}
	}
	return a.requireUnfaulted()
}

// validateDocuments checks the assertions on some of a tenant's documents.
func (a *attempt) validateDocuments(ctx context.Context, tenant domain.TenantID, ids map[string]struct{}) error {
	for some := range slices.Chunk(slices.Collect(maps.Keys(ids)), pageDocuments) {
		err := drivers.LoadEach(ctx, a.driver, a.build, tenant, some, func(documents []domain.Document) error {
			for _, document := range documents {
				if err := a.assert(ctx, tenant, document); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) assert(ctx context.Context, tenant domain.TenantID, document domain.Document) error {
	if document.Data == nil || !a.fold.Asserts() {
		return nil // removed: see drivers.Driver.Load
	}
	err := a.fold.AssertDocument(ctx, document)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return tenantFailure(a.build, tenant, 0, err.Error())
	}
	return nil
}

// maxTouched limits how many documents are remembered that were saved after their validation. If there are more, all
// are validated again.
const maxTouched = 100_000

// touchedDocuments are the documents saved since they were validated. It is safe for concurrent use.
type touchedDocuments struct {
	mu       sync.Mutex
	begun    bool
	overflow bool // too many to remember
	count    int
	ids      map[domain.TenantID]map[string]struct{}
}

// begin forgets earlier saves: everything is validated from now on.
func (t *touchedDocuments) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun, t.overflow, t.count, t.ids = true, false, 0, make(map[domain.TenantID]map[string]struct{})
}

func (t *touchedDocuments) add(tenant domain.TenantID, documents []domain.Document) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun || t.overflow {
		return
	}
	ids := t.ids[tenant]
	if ids == nil {
		ids = make(map[string]struct{})
		t.ids[tenant] = ids
	}
	for _, document := range documents {
		if _, ok := ids[document.ID]; !ok {
			ids[document.ID] = struct{}{}
			t.count++
		}
	}
	if t.count > maxTouched {
		t.overflow, t.count, t.ids = true, 0, nil
	}
}

// overflowed reports whether there were too many to remember.
func (t *touchedDocuments) overflowed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.overflow
}

// drain returns, by tenant and id, the documents of the named tenants, or of all if none is named, and forgets them. It
// returns false if there were too many to remember.
func (t *touchedDocuments) drain(tenants []domain.TenantID) (map[domain.TenantID]map[string]struct{}, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.overflow {
		return nil, false
	}
	if len(tenants) == 0 {
		tenants = slices.Collect(maps.Keys(t.ids))
	}
	drained := make(map[domain.TenantID]map[string]struct{})
	for _, tenant := range tenants {
		drained[tenant] = t.ids[tenant]
		t.count -= len(t.ids[tenant])
		delete(t.ids, tenant)
	}
	return drained, true
}
