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

// validate holds every document of the new build against the assertions, and against the live build's. No event was
// refused: that would have failed the rebuild before. It reads all documents of both builds, tenants in parallel, a page of
// each at a time.
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
				return err
			}
			report.add(found)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
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
	// All types where the definition is one that this program cannot run any more.
	if fold, err := projection.CompileWith(p.Definition, a.r.config.Handlers); err == nil {
		live.types = fold.Types()
	}
	return live, nil
}

// validateTouched holds those documents against the assertions that were saved after the others were validated, in the
// state in which they are swapped in: of all tenants, or of those named.
func (a *attempt) validateTouched(ctx context.Context, tenants ...domain.TenantID) error {
	touched, ok := a.touched.take(tenants)
	if !ok {
		return errors.New("so many documents have changed since they were validated that all are validated again")
	}
	for tenant, ids := range touched {
		for some := range slices.Chunk(slices.Collect(maps.Keys(ids)), validatePage) {
			documents, err := a.driver.Load(ctx, a.build, tenant, some)
			if err != nil {
				return fmt.Errorf("read the new build's documents: %w", err)
			}
			for _, document := range documents {
				if err := a.assert(tenant, document); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (a *attempt) assert(tenant domain.TenantID, document domain.Document) error {
	if document.Data == nil || !a.fold.Asserts() {
		return nil // removed: see drivers.Driver.Load
	}
	err := a.fold.AssertDocument(document)
	switch {
	case err == nil:
		return nil
	case a.build.Shared():
		return failed("tenant %s: %s", tenant, err)
	}
	return failed("%s", err)
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
