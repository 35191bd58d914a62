package rebuild

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/upcasting"
)

// Store is what rebuilds ask of Manifold's own database.
type Store interface {
	projection.Log
	projection.AsideStore
	ParkedDocuments(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, after string, limit int) ([]domain.ParkedDocument, error)
	Head(ctx context.Context, tenant domain.TenantID) (domain.Head, error)
	Heads(ctx context.Context, since time.Time) ([]domain.Head, error)
	AnyEvent(ctx context.Context, tenant domain.TenantID, source domain.Source, types []string, after, upTo int64) (bool, error)
	CountEvents(ctx context.Context, tenant domain.TenantID, source domain.Source, types []string, after, upTo int64) (int64, error)
	Tenant(ctx context.Context, id domain.TenantID) (domain.Tenant, error)
	TenantFloors(ctx context.Context, tenants []domain.TenantID, categories []string) ([]domain.TenantFloor, error)
	PutLosses(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, losses []domain.Loss) error

	Projection(ctx context.Context, id domain.ProjectionID) (domain.Projection, error)
	Projections(ctx context.Context, owner domain.TenantID) ([]domain.Projection, error)
	NextBuild(ctx context.Context, owner domain.TenantID) (int64, error)
	HoldProjection(ctx context.Context, rebuild domain.Rebuild) error
	ReleaseProjection(ctx context.Context, rebuild domain.Rebuild) error
	SwapProjection(ctx context.Context, rebuild domain.Rebuild, left []domain.TenantFault, dropAt time.Time) error
	ChangeDefinition(ctx context.Context, id domain.ProjectionID, before, definition domain.Definition, by string) (domain.Projection, error)

	LiveProjection(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID) (domain.Projection, error)
	TenantBuildsOf(ctx context.Context, id domain.ProjectionID) ([]domain.TenantBuild, error)
	HoldTenant(ctx context.Context, tenant domain.TenantID, rebuild domain.Rebuild) error
	ReleaseTenant(ctx context.Context, tenant domain.TenantID, rebuild domain.Rebuild) error
	SwapTenant(ctx context.Context, tenant domain.TenantID, rebuild domain.Rebuild) error
	FinishTenants(ctx context.Context, rebuild domain.Rebuild) error
	SettleTenantBuilds(ctx context.Context, dropAt time.Time) error
	InlineStore

	CreateRebuild(ctx context.Context, rebuild domain.Rebuild) error
	CreateRollback(ctx context.Context, undone domain.RebuildID, rebuild domain.Rebuild) (domain.Rebuild, error)
	Rebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error)
	Rebuilds(ctx context.Context, id domain.ProjectionID) ([]domain.Rebuild, error)
	RunningRebuilds(ctx context.Context) ([]domain.Rebuild, error)
	ClaimRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, worker string, staleAfter time.Duration) (domain.Rebuild, bool, error)
	SaveRebuild(ctx context.Context, rebuild domain.Rebuild) (saved domain.Rebuild, err error)
	BeatRebuild(ctx context.Context, rebuild domain.Rebuild) (saved domain.Rebuild, err error)
	ReleaseRebuild(ctx context.Context, rebuild domain.Rebuild) error
	CancelRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error
	PauseRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error
	ResumeRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error
	ApproveRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error
	EndRebuild(ctx context.Context, rebuild domain.Rebuild, dropAt time.Time) error

	RetiredBuilds(ctx context.Context, before time.Time) ([]domain.RetiredBuild, error)
	TakeRetired(ctx context.Context, build domain.Build) (bool, error)
	ForgetBuild(ctx context.Context, build domain.Build) error
}

// Config is what Rebuilds are made of. Store, Drivers, Catalog and Log must be set; where another field is zero it has a
// default.
type Config struct {
	Store    Store
	Drivers  map[string]drivers.Driver // by the database's name in the configuration
	Handlers map[string]projection.Handler
	Catalog  *projection.Catalog
	Outages  projection.Outages // nil: rebuilds find out for themselves
	// Yield returns when live work on a database leaves room for more; it is called between two batches. nil: nobody is
	// waited for.
	Yield      func(ctx context.Context, database string) error
	Tenants    int               // replayed at a time by one rebuild; 0: the number of processors, at least 2
	Concurrent int               // rebuilds that this process works on at a time, less those that rest or wait for approval; 0: 2
	Limits     projection.Limits // of all of a rebuild's batches together; zero: projection.CatchUpLimits
	StaleAfter time.Duration     // another process takes a rebuild over when its worker gave no sign of life for so long; 0: 15 s
	Keep       time.Duration     // how long an old build stays after the swap; 0: an hour. Longer than any request may take
	Poll       time.Duration     // between two looks for rebuilds to work on and builds to drop, which back Wake up; 0: 5 s
	Observer   Observer
	Log        *slog.Logger

	Upcasters *upcasting.Upcasters // what events go through first; nil: they are folded as they are in the log
}

// Observer is told what becomes of rebuilds. Each function may be nil, and must return at once.
type Observer struct {
	Progress func(domain.Rebuild) // about once a second for each rebuild that this process works on
	Ended    func(domain.Rebuild) // in whatever way, by this process
}

// Rebuilds starts, lists, steers and undoes rebuilds, and works on them while Run does. All methods may be called concurrently,
// by any number of processes on the same database.
type Rebuilds struct {
	config Config
	worker string        // this process, in the rebuilds' rows
	wake   chan struct{} // a rebuild may be there to work on
	places chan struct{} // has an element for each rebuild that is worked on, and does not rest after a failure

	mu     sync.Mutex
	active map[domain.RebuildID]*work
	lost   map[domain.ProjectionID]*loss
	back   map[string]struct{} // databases that answer again, whose public names are to be moved
	drops  map[retired]*dropTries
}

// New returns Rebuilds, which work while Run does.
func New(config Config) *Rebuilds {
	if config.Tenants <= 0 {
		config.Tenants = max(2, runtime.GOMAXPROCS(0))
	}
	if config.Concurrent <= 0 {
		config.Concurrent = 2
	}
	if config.Limits == (projection.Limits{}) {
		config.Limits = projection.CatchUpLimits
	}
	if config.StaleAfter <= 0 {
		config.StaleAfter = 15 * time.Second
	}
	if config.Keep <= 0 {
		config.Keep = time.Hour
	}
	if config.Poll <= 0 {
		config.Poll = 5 * time.Second
	}
	return &Rebuilds{
		config: config,
		worker: domain.NewRebuildID().String(), // any UUID of its own will do
		wake:   make(chan struct{}, 1),
		places: make(chan struct{}, config.Concurrent),
		active: make(map[domain.RebuildID]*work),
		lost:   make(map[domain.ProjectionID]*loss),
		back:   make(map[string]struct{}),
		drops:  make(map[retired]*dropTries),
	}
}

// Get returns a rebuild; domain.CodeNotFound where there is none.
func (r *Rebuilds) Get(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.config.Store.Rebuild(ctx, id, rebuild)
}

// List returns a projection's last rebuilds, the newest first.
func (r *Rebuilds) List(ctx context.Context, id domain.ProjectionID) ([]domain.Rebuild, error) {
	return r.config.Store.Rebuilds(ctx, id)
}

// Wake says that rebuilds may have been queued or cancelled. It returns at once.
func (r *Rebuilds) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// failure ends a rebuild: repeating it would end in the same way. Where fault is set, it is one tenant's of a shared
// projection, and ends the rebuild for that tenant alone.
type failure struct {
	message string
	fault   *domain.TenantFault
}

func (f *failure) Error() string { return f.message }

func failed(format string, args ...any) error { return &failure{message: fmt.Sprintf(format, args...)} }
