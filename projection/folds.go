package projection

import (
	"container/list"
	"context"
	"sync"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/upcasting"
)

// folds keeps the folds that were used last. A process may have to follow very many projections, few of them at a time:
// a compiled fold takes tens of kilobytes, its definition in Manifold's own database none here.
type folds struct {
	store    RunnerStore
	handlers map[string]Handler
	through  *upcasting.Upcasters
	most     int

	mu    sync.Mutex
	order list.List // of *compiled, the one used last in front
	byID  map[domain.ProjectionID]*list.Element
}

type compiled struct {
	projection domain.Projection
	fold       *Fold
}

func newFolds(store RunnerStore, handlers map[string]Handler, through *upcasting.Upcasters, most int) *folds {
	return &folds{store: store, handlers: handlers, through: through, most: most, byID: make(map[domain.ProjectionID]*list.Element)}
}

// get returns the projection as it is with that build live, and its fold. Where the database has another build by now,
// it returns that: the caller compares. Compiling happens outside the lock, so two may do it for the same projection.
func (f *folds) get(ctx context.Context, id domain.ProjectionID, build int64) (compiled, error) {
	f.mu.Lock()
	if e := f.byID[id]; e != nil {
		if c := e.Value.(*compiled); c.projection.Build == build {
			f.order.MoveToFront(e)
			f.mu.Unlock()
			return *c, nil
		}
	}
	f.mu.Unlock()

	p, err := f.store.Projection(ctx, id)
	if err != nil {
		return compiled{}, err
	}
	c := compiled{projection: p}
	if c.fold, err = CompileWith(p.Definition, f.handlers); err != nil {
		return c, err
	}
	c.fold = c.fold.Through(f.through)
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.byID[id]; e != nil {
		f.order.Remove(e)
	}
	f.byID[id] = f.order.PushFront(&c)
	for f.order.Len() > f.most {
		oldest := f.order.Back()
		f.order.Remove(oldest)
		delete(f.byID, oldest.Value.(*compiled).projection.ProjectionID)
	}
	return c, nil
}

// forget drops a projection's fold.
func (f *folds) forget(id domain.ProjectionID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.byID[id]; e != nil {
		f.order.Remove(e)
		delete(f.byID, id)
	}
}
