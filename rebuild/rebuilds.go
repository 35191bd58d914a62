package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
)

// Store is what rebuilds ask of Manifold's own database.
type Store interface {
	projection.Log
	Head(ctx context.Context, tenant domain.TenantID) (domain.Head, error)
	Heads(ctx context.Context, since time.Time) ([]domain.Head, error)
	CountEvents(ctx context.Context, tenant domain.TenantID, source domain.Source, types []string, after, upTo int64) (int64, error)

	Projection(ctx context.Context, id domain.ProjectionID) (domain.Projection, error)
	Projections(ctx context.Context, owner domain.TenantID) ([]domain.Projection, error)
	NextBuild(ctx context.Context, owner domain.TenantID) (int64, error)
	HoldProjection(ctx context.Context, rebuild domain.Rebuild) error
	ReleaseProjection(ctx context.Context, rebuild domain.Rebuild) error
	SwapProjection(ctx context.Context, rebuild domain.Rebuild, dropAt time.Time) error

	CreateRebuild(ctx context.Context, rebuild domain.Rebuild) error
	Rebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error)
	Rebuilds(ctx context.Context, id domain.ProjectionID) ([]domain.Rebuild, error)
	RunningRebuilds(ctx context.Context) ([]domain.Rebuild, error)
	ClaimRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, worker string, staleAfter time.Duration) (domain.Rebuild, bool, error)
	SaveRebuild(ctx context.Context, rebuild domain.Rebuild) (cancel bool, err error)
	ReleaseRebuild(ctx context.Context, rebuild domain.Rebuild) error
	CancelRebuild(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) error
	EndRebuild(ctx context.Context, rebuild domain.Rebuild, dropAt time.Time) error

	RetiredBuilds(ctx context.Context, before time.Time) ([]domain.RetiredBuild, error)
	ForgetBuild(ctx context.Context, build domain.Build) error
}

// Config is what Rebuilds are made of. Store, Drivers, Catalog and Log must be set; where another field is zero it has a
// default.
type Config struct {
	Store      Store
	Drivers    map[string]drivers.Driver // by the database's name in the configuration
	Handlers   map[string]projection.Handler
	Catalog    *projection.Catalog
	Outages    projection.Outages // nil: rebuilds find out for themselves
	Tenants    int                // replayed at a time by one rebuild; 0: the number of processors, at least 2
	Concurrent int                // rebuilds that this process works on at a time, less those that rest after a failure; 0: 2
	Limits     projection.Limits  // of all of a rebuild's batches together; zero: projection.CatchUpLimits
	StaleAfter time.Duration      // another process takes a rebuild over when its worker gave no sign of life for so long; 0: 15 s
	Keep       time.Duration      // how long an old build stays after the swap; 0: an hour. Longer than any request may take
	Poll       time.Duration      // between two looks for rebuilds to work on and builds to drop, which back Wake up; 0: 5 s
	Observer   Observer
	Log        *slog.Logger
}

// Observer is told what becomes of rebuilds. Each function may be nil, and must return at once.
type Observer struct {
	Progress func(domain.Rebuild) // about once a second for each rebuild that this process works on
	Ended    func(domain.Rebuild) // swapped, cancelled or failed, by this process
}

// Rebuilds starts, lists and cancels rebuilds, and works on them while Run does. All methods may be called concurrently,
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

// Start queues a rebuild of a projection: with a new definition, or (nil) with the one that it has. While another one is
// under way it is domain.CodeRebuildRunning.
func (r *Rebuilds) Start(ctx context.Context, id domain.ProjectionID, definition *domain.Definition) (domain.Rebuild, error) {
	p, err := r.config.Store.Projection(ctx, id)
	if err != nil {
		return domain.Rebuild{}, err
	}
	if definition == nil {
		definition = &p.Definition
	}
	rebuild := domain.Rebuild{
		ProjectionID: id, ID: domain.NewRebuildID(),
		Definition: projection.WithDefaults(*definition), State: domain.RebuildQueued,
	}
	if err := r.config.Catalog.Check(id, rebuild.Definition); err != nil {
		return domain.Rebuild{}, err
	}
	if rebuild.Build, err = r.config.Store.NextBuild(ctx, id.Owner); err != nil {
		return domain.Rebuild{}, err
	}
	if err := r.config.Store.CreateRebuild(ctx, rebuild); err != nil {
		return domain.Rebuild{}, err
	}
	r.Wake()
	return r.config.Store.Rebuild(ctx, id, rebuild.ID)
}

// Deployment is what became of a definition that was deployed.
type Deployment struct {
	Projection domain.Projection // as it is now
	Created    bool              // it is new
	Rebuild    *domain.Rebuild   // that puts the definition in; nil where it is there already
}

// Deploy sees to it that the owner's projection of the definition's name gets this definition: a new one is created, one
// that has it already stays as it is, and otherwise a rebuild is started, which the old definition serves until its end.
// Deploying what a rebuild under way is putting in returns that rebuild; domain.CodeRebuildRunning where one is putting
// in something else.
//
// by is who deploys it, for the projection's versions.
func (r *Rebuilds) Deploy(ctx context.Context, owner domain.TenantID, definition domain.Definition, by string) (Deployment, error) {
	definition = projection.WithDefaults(definition)
	id := domain.ProjectionID{Owner: owner, Name: definition.Name}
	// Twice, since somebody else may create or delete it between the look and the deed.
	for attempt := 0; ; attempt++ {
		p, err := r.config.Store.Projection(ctx, id)
		if isCode(err, domain.CodeNotFound) {
			p, err = r.config.Catalog.Create(ctx, owner, definition, by)
			if err == nil {
				return Deployment{Projection: p, Created: true}, nil
			}
			if attempt == 0 && isCode(err, domain.CodeAlreadyExists) {
				if _, err := r.config.Store.Projection(ctx, id); err == nil {
					continue
				}
			}
			return Deployment{}, err
		}
		if err != nil {
			return Deployment{}, err
		}
		d, err := r.change(ctx, p, definition)
		if attempt == 0 && isCode(err, domain.CodeNotFound) {
			continue
		}
		return d, err
	}
}

// change deploys a definition to a projection that is there.
func (r *Rebuilds) change(ctx context.Context, p domain.Projection, definition domain.Definition) (Deployment, error) {
	rebuilds, err := r.config.Store.Rebuilds(ctx, p.ProjectionID)
	if err != nil {
		return Deployment{}, err
	}
	for i := range rebuilds {
		if running := &rebuilds[i]; !running.State.Ended() && !running.Cancel && projection.SameDefinition(running.Definition, definition) {
			return Deployment{Projection: p, Rebuild: running}, nil
		}
	}
	if projection.SameDefinition(p.Definition, definition) {
		return Deployment{Projection: p}, nil
	}
	rebuild, err := r.Start(ctx, p.ProjectionID, &definition)
	if err != nil {
		return Deployment{}, err
	}
	return Deployment{Projection: p, Rebuild: &rebuild}, nil
}

// Get returns a rebuild; domain.CodeNotFound where there is none.
func (r *Rebuilds) Get(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.config.Store.Rebuild(ctx, id, rebuild)
}

// List returns a projection's last rebuilds, the newest first.
func (r *Rebuilds) List(ctx context.Context, id domain.ProjectionID) ([]domain.Rebuild, error) {
	return r.config.Store.Rebuilds(ctx, id)
}

// Cancel asks for a rebuild to be cancelled, whatever its phase, and returns it as it is then: its worker ends it soon.
// One that has ended is domain.CodeConflict.
func (r *Rebuilds) Cancel(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	if err := r.config.Store.CancelRebuild(ctx, id, rebuild); err != nil {
		return domain.Rebuild{}, err
	}
	r.Wake()
	return r.config.Store.Rebuild(ctx, id, rebuild)
}

// Wake says that rebuilds may have been queued or cancelled. It returns at once.
func (r *Rebuilds) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Speed returns how many events a rebuild folds in a second, on average since it was started, and how long what is left
// will take at that speed; both 0 where that cannot be said yet.
func Speed(r domain.Rebuild) (eventsPerSecond float64, left time.Duration) {
	took := r.UpdatedAt.Sub(r.StartedAt)
	if r.StartedAt.IsZero() || took <= 0 || r.EventsDone <= 0 {
		return 0, 0
	}
	eventsPerSecond = float64(r.EventsDone) / took.Seconds()
	if r.State.Ended() {
		return eventsPerSecond, 0
	}
	return eventsPerSecond, time.Duration(float64(max(0, r.EventsTotal-r.EventsDone)) / eventsPerSecond * float64(time.Second))
}

func isCode(err error, code domain.Code) bool {
	e, ok := errors.AsType[*domain.Error](err)
	return ok && e.Code == code
}

// failure ends a rebuild: repeating it would end in the same way.
type failure struct{ message string }

func (f *failure) Error() string { return f.message }

func failed(format string, args ...any) error { return &failure{fmt.Sprintf(format, args...)} }
