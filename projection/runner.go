package projection

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/telemetry/tracing"
	"github.com/manifold-es/manifold/upcasting"
)

// RunnerConfig configures a Runner. Store, Drivers, Progress and Log must be set; other fields have defaults.
type RunnerConfig struct {
	Store    Store
	Drivers  map[string]drivers.Driver  // by the database's name in the configuration
	Handlers map[string]folding.Handler // written in Go, by name
	Progress *Progress                  // shared with the Catalog of this process
	Outages  Outages                    // nil: each pair finds out by itself
	Owns     func(domain.TenantID) bool // whether this process follows the tenant, see Rebalance; fast; nil: all
	Workers  int                        // pairs folded at a time, per database; 0: twice the processors
	Ceiling  int                        // the most for one tenant, unless its share differs; 0: all but one, at least 1
	Retries  domain.RetrySchedule       // of stopped pairs; 0: 30 s, and an hour
	Folds    int                        // how many compiled folds are kept; 0: 500
	Poll     time.Duration              // interval of reading all heads, as a fallback for Wake; 0: 5 s
	CatchUp  Limits                     // zero: CatchUpLimits
	Observer Observer
	Tracer   *tracing.Tracer // records a span of each batch with traced events; nil: none
	Log      *slog.Logger

	// Nodes returns the nodes of a cluster with a tenant's log, and with its documents in a database. It must return at
	// once. If there are at least three workers, tenants on one node occupy at most three quarters of them, and those
	// that are also on another node one less. nil: not a cluster.
	Nodes func(tenant domain.TenantID, database string) [2]int32

	// Pacing makes pairs that are far behind pause for appends. nil: they do not.
	Pacing *Pacing

	Upcasters *upcasting.Upcasters // applied to events first; nil: events are folded as they are in the log
	Inline    *Inline              // takes over inline builds that have caught up; nil: the Runner keeps following them
}

// Observer receives what a Runner does. Each function may be nil. Several goroutines call them, and they must return at
// once.
type Observer struct {
	Turn  func(domain.ProjectionID) // a pair's turn has ended
	Batch func(BatchInfo)           // a batch was saved
	Fault func(domain.Fault)        // a projection stopped before an event, for one tenant; not called for retries
	Retry func(id domain.ProjectionID, tenant domain.TenantID, err error)
	// Lost reports a live build that must be made again, since its table is missing, or the log has lost events that
	// are in its documents. It is called repeatedly.
	Lost func(id domain.ProjectionID, build int64)
}

// BatchInfo describes a batch that took effect.
type BatchInfo struct {
	Projection domain.ProjectionID
	Tenant     domain.TenantID
	Events     int
	Documents  int           // written or removed
	Took       time.Duration // since the reading's arrival
	Lag        time.Duration // between the recorded time of its last event and now
}

// Runner keeps the live builds of all projections up to date with the logs. Each (projection, tenant) pair whose log is
// ahead gets turns of one batch each. The order is fair, so a tenant with a million events to fold does not delay the
// others. While nothing is appended, the Runner only reads the heads now and then.
//
// Any number of processes may run one on the same databases. Each save is a compare-and-set, so at worst work is done
// twice. A runner that finds another one faster at a pair backs off there.
type Runner struct {
	config  RunnerConfig
	folds   *folds
	refresh chan struct{}

	mu              sync.Mutex
	start           func(work func(ctx context.Context)) // runs work in the background; nil before Run
	ended           bool
	pools           map[string]*workerPool // by database
	tenants         map[domain.TenantID]*tenant
	shares          map[domain.TenantID]domain.Share
	newest          time.Time // the newest LastAt of a head
	followed        map[domain.ProjectionID]*followed
	shared          map[*followed]struct{}
	heldPairs       map[*pair]struct{} // paused by a rebuild
	unchecked       map[*pair]struct{} // have saved documents recently, see recheckIdle
	projectionReads int                // changes when projections have been read, and when they have been applied
}

// NewRunner returns a Runner. It works while Run is running.
func NewRunner(config RunnerConfig) *Runner {
	config.Workers = cmp.Or(config.Workers, 2*runtime.GOMAXPROCS(0))
	config.Ceiling = cmp.Or(config.Ceiling, max(1, config.Workers-1))
	config.Retries = retrySchedule(config.Retries)
	config.Folds = cmp.Or(config.Folds, 500)
	config.Poll = cmp.Or(config.Poll, 5*time.Second)
	config.CatchUp = cmp.Or(config.CatchUp, CatchUpLimits)
	r := &Runner{
		config:    config,
		folds:     newFolds(config.Store, config.Handlers, config.Upcasters, config.Folds),
		refresh:   make(chan struct{}, 1),
		pools:     make(map[string]*workerPool),
		tenants:   make(map[domain.TenantID]*tenant),
		followed:  make(map[domain.ProjectionID]*followed),
		shared:    make(map[*followed]struct{}),
		heldPairs: make(map[*pair]struct{}),
		unchecked: make(map[*pair]struct{}),
	}
	config.Progress.onWait = r.startRelaxed
	return r
}

// retrySchedule completes the schedule of automatic retries.
func retrySchedule(s domain.RetrySchedule) domain.RetrySchedule {
	s.First = cmp.Or(s.First, 30*time.Second)
	s.Longest = max(s.First, cmp.Or(s.Longest, time.Hour))
	return s
}

// Wake reports that a tenant's log has grown. It returns at once and is safe for concurrent use, even before and after
// Run.
func (r *Runner) Wake(head domain.Head) {
	if head.Tenant.IsAuditLog() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake(head)
}

// wake is Wake with the lock held.
func (r *Runner) wake(head domain.Head) {
	if head.LastAt.After(r.newest) {
		r.newest = head.LastAt
	}
	t := r.tenant(head.Tenant)
	if head.Position <= t.head {
		return
	}
	t.head = head.Position
	for f := range r.shared {
		r.wakePair(f, t)
	}
	for _, f := range t.own {
		r.wakePair(f, t)
	}
}

// Refresh reports that projections may have been created, changed or swapped. It returns at once.
func (r *Runner) Refresh() {
	select {
	case r.refresh <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, waits for the work it has begun, and returns nil. Interrupted work resumes from the
// checkpoints. It may be called once.
func (r *Runner) Run(ctx context.Context) error {
	var all sync.WaitGroup
	r.mu.Lock()
	r.start = func(work func(ctx context.Context)) { all.Go(func() { work(ctx) }) }
	for _, pool := range r.pools {
		r.resume(pool)
	}
	r.mu.Unlock()
	r.keepReading(ctx)
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	all.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.allPairs() {
		if p.retry != nil {
			p.retry.Stop()
		}
	}
	return nil
}

// headsOverlap is how long an append may take before its head shows: LastAt is when its transaction began.
const headsOverlap = time.Minute

// keepReading keeps the runner's projections and heads up to date until ctx ends.
func (r *Runner) keepReading(ctx context.Context) {
	var seen changesSeen
	var failures int
	poll := time.NewTimer(0)
	defer poll.Stop()
	proof := time.NewTicker(durableDelay)
	defer proof.Stop()
	r.Refresh()
	for {
		refresh := false
		select {
		case <-ctx.Done():
			return
		case <-proof.C:
			r.recheckIdle()
			continue
		case <-poll.C:
			refresh = failures > 0
		case <-r.refresh:
			refresh = true
		}
		// A projection that is new to this process starts from the known heads.
		err := r.readHeads(ctx)
		if err == nil && refresh {
			err = r.readProjections(ctx, &seen)
		}
		wait := r.config.Poll
		if failures++; err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			r.config.Log.Warn("the runner cannot read what to follow; trying again", "error", err)
			wait = Backoff(failures)
		}
		poll.Reset(wait)
	}
}

// changesSeen is the time of the newest applied change to projections and to tenants' builds.
type changesSeen struct{ projections, builds time.Time }

func (r *Runner) readProjections(ctx context.Context, seen *changesSeen) error {
	if err := r.readShares(ctx); err != nil {
		return err
	}
	projections, err := r.config.Store.AllProjections(ctx, seen.projections)
	if err != nil {
		return err
	}
	// A tenant's build belongs to an existing projection, so read the builds after the projections.
	builds, err := r.config.Store.TenantBuilds(ctx, seen.builds)
	if err != nil {
		return err
	}
	// A turn that began before this may know less than these rows. They do not interrupt it, so it must notice at its
	// end, even if that is before all of them are applied.
	r.mu.Lock()
	r.projectionReads++
	r.mu.Unlock()
	begun := make(surveys)
	for i := range projections {
		r.applyProjection(&projections[i], begun)
		seen.projections = later(seen.projections, projections[i].UpdatedAt)
	}
	for i := range builds {
		r.applyTenantBuild(&builds[i], begun)
		seen.builds = later(seen.builds, builds[i].UpdatedAt)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startSurveys(begun)
	r.projectionReads++
	for p := range r.heldPairs {
		r.enqueue(p) // its next reading shows whether it is paused
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (r *Runner) readHeads(ctx context.Context) error {
	r.mu.Lock()
	since := r.newest
	r.mu.Unlock()
	if !since.IsZero() {
		since = since.Add(-headsOverlap)
	}
	heads, err := r.config.Store.Heads(ctx, since)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, head := range heads {
		r.wake(head)
	}
	for p := range r.heldPairs {
		r.enqueue(p)
	}
	for _, pool := range r.pools {
		if pool.suspended {
			if _, out := r.config.Outages.of(pool.database); !out {
				r.resume(pool) // Answers came first
			}
		}
	}
	return nil
}

// durableDelay is how long a database may take to write confirmed data to its disk.
const durableDelay = 2 * time.Second

// recheckIdle re-reads the checkpoints of pairs that have saved documents and then become idle. A driver need not wait
// until a save is on disk. So a database that crashed may have lost a pair's last saves, and nothing would show that
// before its log grows again.
func (r *Runner) recheckIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.unchecked {
		if p.state != pairIdle {
			delete(r.unchecked, p)
		} else if time.Since(p.at.savedAt) >= durableDelay {
			delete(r.unchecked, p)
			p.at.known = false
			r.enqueue(p)
		}
	}
}

// Lag is how far the runner's pairs lag behind their logs, as far as this process knows.
type Lag struct {
	Projection string // the name of a shared projection; empty: all tenants' own together
	Positions  int64  // between what was seen and the heads
	Faulted    int    // pairs that have stopped at an event
}

// Lags returns the lag of each shared projection, and of all others together, for the tenants that this process
// follows. It visits every known pair, so use it for a metrics page, not for every request.
func (r *Runner) Lags() []Lag {
	r.mu.Lock()
	defer r.mu.Unlock()
	lags := make(map[string]*Lag, len(r.shared)+1)
	lags[""] = &Lag{}
	for f := range r.shared {
		lags[f.id.Name] = &Lag{Projection: f.id.Name}
	}
	for p := range r.allPairs() {
		name := ""
		if p.followed.id.Shared() {
			name = p.followed.id.Name
		}
		lag := lags[name]
		if p.state == pairInline || p.state == pairSurveyed {
			continue // appends fold it, or it is not known yet how much there is to fold
		}
		lag.Positions += max(0, p.tenant.head-p.at.seen)
		if p.state == pairFaulted || p.retriesFault {
			lag.Faulted++
		}
	}
	all := make([]Lag, 0, len(lags))
	for _, lag := range lags {
		all = append(all, *lag)
	}
	return all
}

// Backoff returns how long to wait after failures in a row: 100 ms, doubled each time up to 30 s. It subtracts up to a
// half at random, so that what failed together is not retried together.
func Backoff(failures int) time.Duration {
	wait := min(100*time.Millisecond<<min(failures-1, 9), 30*time.Second)
	return wait - rand.N(wait/2)
}
