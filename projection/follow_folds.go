package projection

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// folds keeps the most recently used folds by their definitions, since many tenants may have the same definition. A
// process may follow very many projections, but only a few at a time. A compiled fold takes tens of kilobytes, while a
// definition stays in Manifold's own database.
type folds struct {
	store     Store
	handlers  map[string]folding.Handler
	upcasters *upcasting.Upcasters
	cache     *folding.Cache

	mu        sync.Mutex
	interests map[string]*interest
	databases map[string]string
}

// interest is the part of a log that a projection reads.
type interest struct {
	categories, types []string // none: all
}

func newFolds(store Store, handlers map[string]folding.Handler, through *upcasting.Upcasters, most int) *folds {
	return &folds{
		store: store, handlers: handlers, upcasters: through, cache: folding.NewCache(most),
		interests: make(map[string]*interest), databases: make(map[string]string),
	}
}

// get returns the fold of a build that is live for a tenant. If it has to look up the definition and finds that another
// build is live by now, it returns that projection instead; the caller adopts it. Compiling happens outside the lock,
// so two goroutines may compile the same definition.
func (f *folds) get(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build liveBuild) (*folding.Fold, *domain.Projection, error) {
	if fold, ok := f.cache.Get(build.sum); ok {
		return fold, nil, nil
	}
	p, err := f.store.LiveProjection(ctx, tenant, id)
	if err != nil {
		return nil, nil, err
	}
	sum := folding.SumOf(&p.Definition)
	if p.Build != build.number || sum != build.sum || p.Version != build.version {
		return nil, &p, nil
	}
	fold, err := folding.CompileIn(ctx, p.Definition, f.handlers)
	if err != nil {
		return nil, nil, err
	}
	fold = fold.WithUpcasters(f.upcasters)
	f.cache.Add(sum, fold)
	return fold, nil, nil
}

// interest returns the part of a log that the definition reads. Definitions with the same interest share one value. It
// returns nil if this process does not have the handler.
func (f *folds) interest(definition *domain.Definition) *interest {
	sees := interest{categories: sorted(definition.Source.Categories), types: definition.Types()}
	if definition.Handler != "" {
		handler := f.handlers[definition.Handler]
		if handler == nil {
			return nil
		}
		sees.types = handler.Types()
	}
	sees.types = sorted(sees.types)
	key := strings.Join(sees.categories, "\x00") + "\x00\x00" + strings.Join(sees.types, "\x00")
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.interests[key]; known != nil {
		return known
	}
	f.interests[key] = &sees
	return &sees
}

// sorted returns the texts sorted, each once.
func sorted(texts []string) []string { return slices.Compact(slices.Sorted(slices.Values(texts))) }

// database returns a database's name, always as the same string.
func (f *folds) database(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.databases[name]; ok {
		return known
	}
	f.databases[strings.Clone(name)] = name
	return name
}

// relaxedInterval returns how far, in time, a projection's documents may lag behind the log.
func (f *folds) relaxedInterval(definition *domain.Definition) time.Duration {
	if handler, ok := f.handlers[definition.Handler].(folding.Relaxed); ok && definition.Handler != "" {
		return handler.Interval()
	}
	return 0
}
