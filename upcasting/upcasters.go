package upcasting

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/registry"
)

// reader reads upcasters: registry.Registry with the app login, registry.BySystem with the system login.
type reader interface {
	Upcasters(ctx context.Context, owner domain.TenantID) ([]domain.Upcaster, int64, error)
	UpcasterRevision(ctx context.Context, tenant domain.TenantID) (domain.UpcasterRevision, error)
}

// Upcasters are the upcasters of all tenants. All methods may be called concurrently. A nil *Upcasters returns no Set,
// for folds without a store.
type Upcasters struct {
	reader   reader
	registry *registry.Registry
	log      *eventlog.Log
	requests *budget.Requests

	mu    sync.Mutex
	kept  *simplelru.LRU[domain.TenantID, *layer]
	bytes int // of all expressions in kept
}

const (
	// maxCachedOwners limits the owners whose upcasters are cached.
	maxCachedOwners = 1000
	// maxCachedBytes limits their expressions; compiled ones take about ten times as much.
	maxCachedBytes = 4 << 20
)

// maxVersion is the highest schema version that an upcaster can convert.
const maxVersion = 1_000_000

// New returns the Upcasters of a database. Previews count against requests; nil means budget.New's defaults.
func New(registry *registry.Registry, log *eventlog.Log, requests *budget.Requests) (*Upcasters, error) {
	u, err := newUpcasters(registry)
	if err != nil {
		return nil, err
	}
	if requests == nil {
		requests = budget.New(budget.Limits{})
	}
	u.registry, u.log, u.requests = registry, log, requests
	return u, nil
}

// NewBySystem returns Upcasters that are read with the system login, see registry.BySystem. Only Now, Revision and At
// may be called.
func NewBySystem(registry *registry.Registry) (*Upcasters, error) {
	return newUpcasters(registry.BySystem())
}

func newUpcasters(reader reader) (*Upcasters, error) {
	u := &Upcasters{reader: reader}
	var err error
	u.kept, err = simplelru.NewLRU(maxCachedOwners, func(_ domain.TenantID, gone *layer) { u.bytes -= gone.bytes })
	return u, err
}

// Now returns the upcasters in force for a tenant, after asking the database.
func (u *Upcasters) Now(ctx context.Context, tenant domain.TenantID) (*Set, error) {
	if u == nil {
		return nil, nil
	}
	revision, err := u.Revision(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return u.At(ctx, tenant, revision)
}

// Revision returns the revision of the upcasters in force for a tenant, after asking the database.
func (u *Upcasters) Revision(ctx context.Context, tenant domain.TenantID) (domain.UpcasterRevision, error) {
	if u == nil {
		return domain.UpcasterRevision{}, nil
	}
	return u.reader.UpcasterRevision(ctx, tenant)
}

// At returns the upcasters in force for a tenant at a revision from the database, or newer ones. Usually it needs no
// query.
func (u *Upcasters) At(ctx context.Context, tenant domain.TenantID, revision domain.UpcasterRevision) (*Set, error) {
	if u == nil || revision == (domain.UpcasterRevision{}) {
		return nil, nil
	}
	set := &Set{}
	for _, owned := range []struct {
		owner    domain.TenantID
		revision int64
	}{{tenant, revision.Own}, {domain.Everyone, revision.Shared}} {
		l, err := u.layer(ctx, owned.owner, owned.revision)
		if err != nil {
			return nil, err
		}
		if l != nil && len(l.steps) > 0 {
			set.layers = append(set.layers, l)
		}
	}
	if len(set.layers) == 0 {
		return nil, nil
	}
	return set, nil
}

// layer returns an owner's upcasters, at the revision or a later one; nil if there never were any. Two goroutines may
// read the same ones at the same time.
func (u *Upcasters) layer(ctx context.Context, owner domain.TenantID, revision int64) (*layer, error) {
	if revision == 0 {
		return nil, nil
	}
	if l := u.known(owner); l != nil && l.revision >= revision {
		return l, nil
	}
	upcasters, revision, err := u.reader.Upcasters(ctx, owner)
	if err != nil {
		return nil, err
	}
	l := newLayer(upcasters, revision)
	u.keep(owner, l)
	return l, nil
}

func (u *Upcasters) known(owner domain.TenantID) *layer {
	u.mu.Lock()
	defer u.mu.Unlock()
	l, _ := u.kept.Get(owner)
	return l
}

func (u *Upcasters) keep(owner domain.TenantID, l *layer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if there, ok := u.kept.Peek(owner); ok {
		if there.revision > l.revision {
			return
		}
		u.kept.Remove(owner)
	}
	u.kept.Add(owner, l)
	for u.bytes += l.bytes; u.bytes > maxCachedBytes && u.kept.Len() > 1; {
		u.kept.RemoveOldest()
	}
}

// List returns a tenant's own upcasters and the shared ones, by type and version, its own first. For domain.Everyone it
// returns the shared ones.
func (u *Upcasters) List(ctx context.Context, tenant domain.TenantID) ([]domain.Upcaster, error) {
	all, _, err := u.registry.Upcasters(ctx, tenant)
	if err != nil || tenant == domain.Everyone {
		return all, err
	}
	shared, _, err := u.registry.Upcasters(ctx, domain.Everyone)
	if err != nil {
		return nil, err
	}
	all = append(all, shared...)
	slices.SortStableFunc(all, func(a, b domain.Upcaster) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Version, b.Version))
	})
	return all, nil
}

// Get returns the upcaster in force for a tenant, a type and a version: its own, or else the shared one. The error is
// domain.CodeNotFound if there is neither.
func (u *Upcasters) Get(ctx context.Context, tenant domain.TenantID, eventType string, version int64) (domain.Upcaster, error) {
	found, err := u.registry.Upcaster(ctx, tenant, eventType, version)
	if problem, ok := errors.AsType[*domain.Error](err); ok && problem.Code == domain.CodeNotFound && tenant != domain.Everyone {
		return u.registry.Upcaster(ctx, domain.Everyone, eventType, version)
	}
	return found, err
}

// Put stores an upcaster, in place of its owner's previous one for the same type and version. One with the same
// expression stays as it was. All of also happens in the same transaction. Errors are *domain.Error:
// domain.CodeInvalidDefinition if the expression does not compile.
func (u *Upcasters) Put(ctx context.Context, upcaster domain.Upcaster, also ...registry.InTransaction) (kept domain.Upcaster, created bool, err error) {
	if err := check(upcaster); err != nil {
		return domain.Upcaster{}, false, err
	}
	kept, before, err := u.registry.PutUpcaster(ctx, upcaster, also...)
	return kept, before == nil, err
}

// Delete removes an owner's upcaster. The error is domain.CodeNotFound if there is none. A shared one for the same type
// and version is then in force. Without a shared one, chains end before the gap.
func (u *Upcasters) Delete(ctx context.Context, owner domain.TenantID, eventType string, version int64) error {
	return u.registry.DeleteUpcaster(ctx, owner, eventType, version)
}

func check(upcaster domain.Upcaster) error {
	if err := domain.CheckType("type", upcaster.Type); err != nil {
		return err
	}
	if upcaster.Version < 1 || upcaster.Version > maxVersion {
		return domain.Errorf(domain.CodeInvalidRequest, "version", "%d is not a schema version that an upcaster can convert; give 1 to %d", upcaster.Version, maxVersion)
	}
	_, err := expr.CompileUpcaster(upcaster.Expression)
	if failure, ok := errors.AsType[*expr.CompileError](err); ok {
		return domain.Errorf(domain.CodeInvalidDefinition, "expression", "%s", failure)
	}
	return err
}

// Touched returns the projections that fold events of a type, by owner and name: the owner's, and for a tenant the
// shared ones last. It does not check whether their categories contain such events. For domain.Everyone it returns the
// shared ones only: tenants rebuild their own.
func (u *Upcasters) Touched(ctx context.Context, owner domain.TenantID, eventType string) ([]domain.Projection, error) {
	owners := []domain.TenantID{owner}
	if owner != domain.Everyone {
		owners = append(owners, domain.Everyone)
	}
	var touched []domain.Projection
	for _, owner := range owners {
		projections, err := u.registry.Projections(ctx, owner)
		if err != nil {
			return nil, err
		}
		for _, p := range projections {
			if types := p.Definition.Types(); p.Definition.Handler != "" || types == nil || slices.Contains(types, eventType) {
				touched = append(touched, p)
			}
		}
	}
	return touched, nil
}
