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
	"github.com/manifold-es/manifold/projection"
)

// validatePage is how many documents are read at a time to look at all of them, while it is not known how large they are, and
// validateBytes how much. After that it is as many as are half of that, within bounds.
const (
	validatePage  = 500
	validateLeast = 50
	validateMost  = 5000
	validateBytes = 4 << 20
)

// validate holds every document of the new build against the assertions, and against the live build's, but for those of
// faulted tenants. It reads all documents of both builds, tenants in parallel, a page of each at a time.
func (a *attempt) validate(ctx context.Context) error {
	a.touched.begin()
	against, err := a.against(ctx)
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
			found, err := a.compare(groupCtx, tenant, against)
			if bad, ok := errors.AsType[*liveError](err); ok && groupCtx.Err() == nil && (errors.Is(err, drivers.ErrNoTable) || bad.database != a.build.Database) {
				// The comparison is for people. What they move away from, or what has vanished, must not be in the way.
				if report.abandon() {
					a.r.config.Log.Warn("the documents of the live build cannot be read, and are not compared", "projection", a.row.Name,
						"database", bad.database, "error", err)
				}
				found, err = a.compare(groupCtx, tenant, nil)
			}
			if err != nil {
				return a.leaveBehind(err)
			}
			report.add(found)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := a.requireSound(); err != nil {
		return err
	}
	a.work.mu.Lock()
	a.work.row.Documents = report.documents
	a.work.row.LiveBefore, a.work.row.Difference = 0, nil
	if against != nil && !report.abandoned {
		a.work.row.LiveBefore, a.work.row.Difference = report.live, &report.Difference
	}
	a.work.mu.Unlock()
	return a.enter(ctx, domain.RebuildValidating) // keeps it
}

// against returns what the new build is compared with; nil where there is nothing.
func (a *attempt) against(ctx context.Context) (*against, error) {
	p, err := a.r.config.Store.Projection(ctx, a.row.ProjectionID)
	if err != nil {
		return nil, fmt.Errorf("look the live build up: %w", err)
	}
	if p.Definition.Mode == domain.ModeLive || p.Build == a.row.Build && len(a.row.Tenants) == 0 {
		return nil, nil
	}
	live := &against{projection: p, source: p.Definition.Source}
	if a.r.config.Drivers[p.Definition.Database] == nil {
		return nil, nil // the projection moves away from a database that is gone
	}
	live.types = a.liveTypes(ctx, p.Definition)
	return live, nil
}

// liveTypes are the types that a live definition folds; all (nil) where it is one that this program cannot run any more.
func (a *attempt) liveTypes(ctx context.Context, definition domain.Definition) []string {
	fold, err := projection.CompileIn(ctx, definition, a.r.config.Handlers)
	if err != nil {
		return nil
	}
	return fold.Types()
}

// validateTouched holds those documents against the assertions that were saved after the others were validated, in the
// state in which they are swapped in: of all tenants, or of those named.
func (a *attempt) validateTouched(ctx context.Context, tenants ...domain.TenantID) error {
	touched, ok := a.touched.take(tenants)
	if !ok {
		return errors.New("so many documents have changed since they were validated that all are validated again")
	}
	for tenant, ids := range touched {
		if a.isFaulted(tenant) {
			continue
		}
		if err := a.leaveBehind(a.validateDocuments(ctx, tenant, ids)); err != nil {
			return err
		}
	}
	return a.requireSound()
}

// validateDocuments holds some of a tenant's documents against the assertions.
func (a *attempt) validateDocuments(ctx context.Context, tenant domain.TenantID, ids map[string]struct{}) error {
	for some := range slices.Chunk(slices.Collect(maps.Keys(ids)), validatePage) {
		documents, err := a.driver.Load(ctx, a.build, tenant, some)
		if err != nil {
			return fmt.Errorf("read the new build's documents: %w", err)
		}
		for _, document := range documents {
			if err := a.assert(ctx, tenant, document); err != nil {
				return err
			}
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
		return faulty(a.build, tenant, 0, err.Error())
	}
	return nil
}

// touchedMost bounds how many documents are kept in mind that were saved after they were validated: where there are more,
// all are validated again.
const touchedMost = 100_000

// touched are the documents that were saved since they were validated. It may be used by several goroutines.
type touched struct {
	mu    sync.Mutex
	begun bool
	all   bool // too many to keep them in mind
	count int
	ids   map[domain.TenantID]map[string]struct{}
}

// begin forgets what was saved before: everything is validated from now on.
func (t *touched) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun, t.all, t.count, t.ids = true, false, 0, make(map[domain.TenantID]map[string]struct{})
}

func (t *touched) add(tenant domain.TenantID, documents []domain.Document) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun || t.all {
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
	if t.count > touchedMost {
		t.all, t.count, t.ids = true, 0, nil
	}
}

// overflowed reports whether there were too many to keep them in mind.
func (t *touched) overflowed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// take returns the documents of those tenants, or of all where none is named, by tenant and id, and forgets them; false
// where there were too many to keep them in mind.
func (t *touched) take(tenants []domain.TenantID) (map[domain.TenantID]map[string]struct{}, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all {
		return nil, false
	}
	if len(tenants) == 0 {
		tenants = slices.Collect(maps.Keys(t.ids))
	}
	taken := make(map[domain.TenantID]map[string]struct{})
	for _, tenant := range tenants {
		taken[tenant] = t.ids[tenant]
		t.count -= len(t.ids[tenant])
		delete(t.ids, tenant)
	}
	return taken, true
}
