package projection

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/upcasting"
)

// folds keeps the folds that were used last, by the definitions that they are compiled from: many tenants may have the
// same one. A process may have to follow very many projections, few of them at a time: a compiled fold takes tens of
// kilobytes, its definition in Manifold's own database none here.
type folds struct {
	store    RunnerStore
	handlers map[string]Handler
	through  *upcasting.Upcasters
	kept     *foldMemory

	mu        sync.Mutex
	interests map[string]*interest
	databases map[string]string
}

// definitionSum tells definitions apart. The zero value is no definition's.
type definitionSum [16]byte

func sumOf(definition *domain.Definition) definitionSum {
	text, err := json.Marshal(definition)
	if err != nil {
		return definitionSum{} // it was read as JSON, so it can be written
	}
	sum := sha256.Sum256(text)
	return definitionSum(sum[:16])
}

// interest is what a projection sees of a log.
type interest struct {
	categories, types []string // none: all
}

func newFolds(store RunnerStore, handlers map[string]Handler, through *upcasting.Upcasters, most int) *folds {
	return &folds{
		store: store, handlers: handlers, through: through, kept: newFoldMemory(most),
		interests: make(map[string]*interest), databases: make(map[string]string),
	}
}

// get returns the fold of a build that is live for a tenant. Where its definition has to be looked up, and another build is
// live by now, it returns the projection as it is: the caller takes that over. Compiling happens outside the lock, so two
// may do it for the same definition.
func (f *folds) get(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build lived) (*Fold, *domain.Projection, error) {
	if fold := f.kept.get(build.sum); fold != nil {
		return fold, nil, nil
	}
	p, err := f.store.LiveProjection(ctx, tenant, id)
	if err != nil {
		return nil, nil, err
	}
	sum := sumOf(&p.Definition)
	if p.Build != build.number || sum != build.sum || p.Version != build.version {
		return nil, &p, nil
	}
	fold, err := CompileIn(ctx, p.Definition, f.handlers)
	if err != nil {
		return nil, nil, err
	}
	fold = fold.Through(f.through)
	f.kept.put(sum, fold)
	return fold, nil, nil
}

// interest returns what the definition sees, the same for all that see the same; nil where that is not known here.
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

// database returns a database's name, the same string for all.
func (f *folds) database(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.databases[name]; ok {
		return known
	}
	f.databases[strings.Clone(name)] = name
	return name
}

// relaxed is how long a projection's documents may be behind.
func (f *folds) relaxed(definition *domain.Definition) time.Duration {
	if handler, ok := f.handlers[definition.Handler].(Relaxed); ok && definition.Handler != "" {
		return handler.Interval()
	}
	return 0
}
