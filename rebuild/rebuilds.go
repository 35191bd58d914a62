package rebuild

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// Config configures Rebuilds. Store, Drivers, Catalog and Log must be set; other fields have defaults.
type Config struct {
	Store    projection.Store
	Drivers  map[string]drivers.Driver // by the database's name in the configuration
	Handlers map[string]folding.Handler
	Catalog  *projection.Catalog
	Outages  projection.Outages // nil: each rebuild finds out by itself
	// Yield returns when live work on a database leaves room for more. It is called between two batches. nil: rebuilds
	// do not wait.
	Yield      func(ctx context.Context, database string) error
	Pacing     *projection.Pacing // makes rebuilds pause for appends; nil: they do not
	Tenants    int                // tenants that one rebuild replays at a time; 0: the number of processors, at least 2
	Concurrent int                // rebuilds that this process runs at a time, except paused and waiting ones; 0: 2
	Limits     projection.Limits  // of all batches of a rebuild together; zero: projection.CatchUpLimits with 96 MiB of documents
	StaleAfter time.Duration      // a worker silent for this long loses its rebuild to another process; 0: 15 s
	Keep       time.Duration      // how long an old build stays after the swap, longer than any request; 0: an hour
	Poll       time.Duration      // interval of looking for rebuilds to run and builds to drop, besides Wake; 0: 5 s
	Observer   Observer
	Log        *slog.Logger

	Upcasters *upcasting.Upcasters // applied to events first; nil: events are folded as they are in the log
	// Seeds returns the next seeds of a category's streams; nil: there are none.
	Seeds projection.Seeds
}

// Observer receives what rebuilds do. Each function may be nil, and must return at once.
type Observer struct {
	Progress func(domain.Rebuild) // about once a second for each rebuild that this process runs
	Ended    func(domain.Rebuild) // with any outcome, by this process
}

// Rebuilds starts, lists, controls and undoes rebuilds, and works on them while Run is running. All methods may be
// called concurrently, by any number of processes on the same database.
type Rebuilds struct {
	config Config
	worker string        // identifies this process in the rebuilds' rows
	wake   chan struct{} // there may be a rebuild to work on
	slots  chan struct{} // has an element for each running rebuild that is not waiting after a failure

	mu        sync.Mutex
	active    map[domain.RebuildID]*work
	lost      map[domain.ProjectionID]*lostTable
	answering map[string]struct{} // databases that answer again, whose public names must be moved
	drops     map[retiredBuild]*failedDrops
}

// documentBytes is more than a follower holds, because a rebuild writes each document once if all fit.
const documentBytes = 96 << 20

// New returns Rebuilds. They work while Run is running.
func New(config Config) *Rebuilds {
	config.Tenants = cmp.Or(config.Tenants, max(2, runtime.GOMAXPROCS(0)))
	config.Concurrent = cmp.Or(config.Concurrent, 2)
	if config.Limits == (projection.Limits{}) {
		config.Limits = projection.CatchUpLimits
		config.Limits.DocumentBytes = documentBytes
	}
	config.StaleAfter = cmp.Or(config.StaleAfter, 15*time.Second)
	config.Keep = cmp.Or(config.Keep, time.Hour)
	config.Poll = cmp.Or(config.Poll, 5*time.Second)
	return &Rebuilds{
		config:    config,
		worker:    domain.NewRebuildID().String(), // any unique UUID
		wake:      make(chan struct{}, 1),
		slots:     make(chan struct{}, config.Concurrent),
		active:    make(map[domain.RebuildID]*work),
		lost:      make(map[domain.ProjectionID]*lostTable),
		answering: make(map[string]struct{}),
		drops:     make(map[retiredBuild]*failedDrops),
	}
}

// Get returns a rebuild. The error is domain.CodeNotFound if it does not exist.
func (r *Rebuilds) Get(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.config.Store.Rebuild(ctx, id, rebuild)
}

// List returns a projection's latest rebuilds, the newest first.
func (r *Rebuilds) List(ctx context.Context, id domain.ProjectionID) ([]domain.Rebuild, error) {
	return r.config.Store.Rebuilds(ctx, id)
}

// Wake reports that rebuilds may have been queued or cancelled. It returns at once.
func (r *Rebuilds) Wake() { notify(r.wake) }

// failure ends a rebuild, because a retry would fail in the same way. If fault is set, the failure concerns one tenant
// of a shared projection, and ends the rebuild for that tenant only.
type failure struct {
	message string
	fault   *domain.TenantFault
}

func (f *failure) Error() string { return f.message }

func failuref(format string, args ...any) error {
	return &failure{message: fmt.Sprintf(format, args...)}
}
