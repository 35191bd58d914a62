package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// validatePage is how many documents are read at a time to look at all of them, and validateBytes how much.
const (
	validatePage  = 500
	validateBytes = 16 << 20
)

// validate counts the documents of the new build and of the live one, and holds every document of the new one against
// the definition's assertions. No event was refused: that would have failed the rebuild before.
func (a *attempt) validate(ctx context.Context) error {
	live, err := a.r.config.Store.Projection(ctx, a.row.ProjectionID)
	if err != nil {
		return fmt.Errorf("look the live build up: %w", err)
	}
	liveBuild := live.LiveBuild()
	liveDriver := a.r.config.Drivers[liveBuild.Database] // nil where the projection moves away from a database that is gone
	var documents, before atomic.Int64
	var unknown atomic.Bool // how many documents the live build has
	unknown.Store(liveDriver == nil)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(a.r.config.Tenants)
	for tenant := range a.positions {
		group.Go(func() error {
			n, err := count(groupCtx, a.driver, a.build, tenant)
			if err != nil {
				return fmt.Errorf("count the new build's documents: %w", err)
			}
			documents.Add(n)
			if !unknown.Load() {
				n, err = count(groupCtx, liveDriver, liveBuild, tenant)
				switch {
				case err == nil:
					before.Add(n)
				case groupCtx.Err() == nil && (errors.Is(err, drivers.ErrNoTable) || liveBuild.Database != a.build.Database):
					// The number is for people. What they move away from, or what has vanished, must not be in the way.
					unknown.Store(true)
					a.r.config.Log.Warn("the documents of the live build cannot be counted, and are not compared", "projection", a.row.Name,
						"build", liveBuild.Number, "database", liveBuild.Database, "error", err)
				default:
					return fmt.Errorf("count the live build's documents: %w", err)
				}
			}
			if !a.fold.Asserts() {
				return nil
			}
			return pages(groupCtx, a.driver, a.build, tenant, func(documents []domain.Document) error { return a.assert(tenant, documents) })
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if unknown.Load() {
		before.Store(0)
	}
	a.work.mu.Lock()
	a.work.row.Documents, a.work.row.LiveBefore = documents.Load(), before.Load()
	a.work.mu.Unlock()
	return nil
}

// count counts a tenant's documents. A driver may give a count no more time than any query; those of a large build are then
// counted page by page.
func count(ctx context.Context, driver drivers.Driver, build domain.Build, tenant domain.TenantID) (int64, error) {
	n, err := driver.Count(ctx, build, tenant, nil)
	if !isCode(err, domain.CodeTooCostly) {
		return n, err
	}
	n = 0
	err = pages(ctx, driver, build, tenant, func(documents []domain.Document) error {
		n += int64(len(documents))
		return nil
	})
	return n, err
}

// pages reads all of a tenant's documents, in the order of their ids.
func pages(ctx context.Context, driver drivers.Driver, build domain.Build, tenant domain.TenantID, look func([]domain.Document) error) error {
	query := domain.DocumentQuery{Limit: validatePage, MaxBytes: validateBytes}
	for {
		documents, err := driver.Query(ctx, build, tenant, query)
		if err != nil {
			return fmt.Errorf("read the documents of build %d: %w", build.Number, err)
		}
		if err := look(documents); err != nil {
			return err
		}
		if query.Ended(documents) {
			return nil
		}
		query.After = &domain.SortKey{ID: documents[len(documents)-1].ID}
	}
}

// validateTouched holds those documents against the assertions that were saved after the others were validated, in the
// state in which they are swapped in.
func (a *attempt) validateTouched(ctx context.Context) error {
	for tenant, ids := range a.touched {
		for some := range slices.Chunk(slices.Collect(maps.Keys(ids)), validatePage) {
			documents, err := a.driver.Load(ctx, a.build, tenant, some)
			if err != nil {
				return fmt.Errorf("read the new build's documents: %w", err)
			}
			if err := a.assert(tenant, documents); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *attempt) assert(tenant domain.TenantID, documents []domain.Document) error {
	for _, document := range documents {
		if document.Data == nil {
			continue // removed: see drivers.Driver.Load
		}
		if err := a.fold.AssertDocument(document); err != nil {
			if a.build.Shared() {
				return failed("tenant %s: %s", tenant, err)
			}
			return failed("%s", err)
		}
	}
	return nil
}
