package retention

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Holder knows of readers that still have to read events. Projections are known to a package that this one may not
// import.
type Holder interface {
	// RetentionHolds returns the readers that may still have to read events of a tenant's category, each with its
	// stored progress. A reader whose position cannot be determined has a Problem, and holds everything. The result may
	// include readers that need no more events.
	RetentionHolds(ctx context.Context, tenant domain.TenantID, category string) ([]domain.RetentionHold, error)
}

// Observer has callbacks for metrics; each may be nil.
type Observer struct {
	Removed func(events int64) // a slice of events was removed
}

// Config configures a Retention. Store and Log are required, and so is Owns if Run is called. Times and counts may be
// zero.
type Config struct {
	Store   *Postgres
	Holders []Holder
	Owns    func(domain.TenantID) bool // reports whether this process works for the tenant
	Log     *slog.Logger
	// Service reports whether the service itself has a group of that name for its tenants, such as a reactor's or an
	// egress's. The group need not have been created yet. Nil: there are none.
	Service func(group string) bool

	// Grace is how long every event stays, whatever a policy says. An append whose answer was lost is recognised by its
	// event ids as long as the events exist. Below 0: no grace, for tests. 0: one minute.
	Grace time.Duration
	// Every is the time between two runs of a policy that has work to do; 0: one minute.
	Every time.Duration
	// Share is the largest part of one connection's time that removal may use, for all tenants together; 0: a tenth.
	Share float64
	// Turn is how long a policy may remove events before another policy gets its turn; 0: 10 s.
	Turn time.Duration
	// Slice is how many events one transaction looks at; 0: 1,000.
	Slice    int
	Observer Observer
}

// The defaults of a Config.
const (
	DefaultGrace = time.Minute
	DefaultEvery = time.Minute
	DefaultShare = 0.1

	defaultTurn  = 10 * time.Second
	defaultSlice = 1000
)

// Retention stores policies, and applies them while Run is running. All methods may be called concurrently.
type Retention struct {
	config Config
	pace   *pace
	work   chan struct{} // has an element when Run should look for work

	mu       sync.Mutex
	look     bool // at all policies, not only those in line
	policies map[key]*policy
	line     []key // in the order of their turns

	superseded map[key]looked
}

// New returns a Retention that applies no policy until Run is called.
func New(config Config) *Retention {
	switch {
	case config.Grace == 0:
		config.Grace = DefaultGrace
	case config.Grace < 0:
		config.Grace = 0
	}
	config.Every = cmp.Or(config.Every, DefaultEvery)
	config.Share = cmp.Or(config.Share, DefaultShare)
	config.Turn = cmp.Or(config.Turn, defaultTurn)
	config.Slice = cmp.Or(config.Slice, defaultSlice)
	return &Retention{
		config: config, pace: &pace{share: config.Share}, work: make(chan struct{}, 1), policies: make(map[key]*policy),
		superseded: make(map[key]looked),
	}
}

// List returns a tenant's policies with their results so far, ordered by category.
func (r *Retention) List(ctx context.Context, tenant domain.TenantID) ([]Status, error) {
	return r.config.Store.RetentionPolicies(ctx, tenant)
}

// Get returns the policy of a category, or domain.CodeNotFound if there is none.
func (r *Retention) Get(ctx context.Context, tenant domain.TenantID, category string) (Status, error) {
	return r.config.Store.RetentionPolicy(ctx, tenant, category)
}

// Put stores a category's policy and replaces the previous one. A run starts soon after. Put returns
// domain.CodeInvalidRequest if the policy forces readers that do not exist, unless the previous policy forced them
// already.
func (r *Retention) Put(ctx context.Context, tenant domain.TenantID, policy Policy) (status Status, created bool, err error) {
	if err := policy.Check(); err != nil {
		return Status{}, false, err
	}
	before, err := r.forcedBefore(ctx, tenant, policy.Category)
	if err != nil {
		return Status{}, false, err
	}
	if err := r.checkForce(ctx, tenant, policy.Force, before); err != nil {
		return Status{}, false, err
	}
	return r.config.Store.PutRetentionPolicy(ctx, tenant, policy)
}

// Delete removes the policy of a category. Retention then removes no more of its events; events that were removed stay
// removed.
func (r *Retention) Delete(ctx context.Context, tenant domain.TenantID, category string) error {
	return r.config.Store.DeleteRetentionPolicy(ctx, tenant, category)
}

// Ask requests a run as soon as the process that works for the tenant gets to it, and returns the policy's status.
func (r *Retention) Ask(ctx context.Context, tenant domain.TenantID, category string) (Status, error) {
	return r.config.Store.AskRetention(ctx, tenant, category)
}
