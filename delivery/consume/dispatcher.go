package consume

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Consumer is one group of one tenant that the service itself consumes, or other work for one tenant that depends on
// its log, such as reports.
type Consumer struct {
	// Name is unique in its tenant: the name of the group, for example webhook.mail.
	Name string
	// Revision identifies a version of the consumer. If a running consumer is listed with another revision, it is
	// stopped, and started again when it has returned.
	Revision string
	// Run delivers what is due and returns when nothing more is due. It may wait a little for more. The result nextRun
	// is the time, by this process's clock, when something becomes due without an append or a Notice. Zero means never.
	// After an error, Run is called again after growing pauses. Calls of Run never overlap. Run returns soon after ctx
	// ends, and its error is then ignored.
	Run func(ctx context.Context) (nextRun time.Time, err error)
}

// Source lists the consumers of one kind. Webhooks, reactors, changes of documents, reports and
// each egress are one.
type Source interface {
	// Consumers returns a tenant's consumers. Each has a name that no other consumer of the tenant has. It is called by
	// several goroutines whenever the tenant's log grows, so it should answer from memory where it can. After an error
	// it is called again. Running consumers continue meanwhile.
	Consumers(ctx context.Context, tenant domain.TenantID) ([]Consumer, error)
}

// Config configures a Dispatcher. Heads is required. Other fields have a default for their zero value. See Rebalance
// for Owns.
type Config struct {
	// Heads returns the heads of all logs with an event after since, or of all logs if since is zero.
	Heads   func(ctx context.Context, since time.Time) ([]domain.Head, error)
	Sources []Source
	Owns    func(domain.TenantID) bool // whether this process runs a tenant's consumers; must return at once; nil: all
	Log     *slog.Logger               // nil: none

	// Admitted limits how many consumers a pass over all tenants, such as the one at the start, runs at the same time.
	// A consumer that runs longer than a second no longer counts. 0 means DefaultAdmitted.
	Admitted int
	// PauseMin and PauseMax are the pauses after the first consecutive error and after many, before jitter. 0 means one
	// second and one minute.
	PauseMin, PauseMax time.Duration
}

// DefaultAdmitted is the default of Config.Admitted.
const DefaultAdmitted = 16

// Timing of a Dispatcher.
const (
	admittedFor = time.Second           // how long a consumer started by a pass counts in Config.Admitted
	listTimeout = 30 * time.Second      // for listing one source
	passPause   = 2 * time.Second       // at least, between two passes, and after a pass that failed to start
	minSleep    = 10 * time.Millisecond // of a consumer that returned when to run again
)

// maxListings limits how many tenants' sources are listed at the same time.
const maxListings = 16

// Dispatcher runs the consumers of the tenants that this process owns. All methods may be called concurrently. Wake,
// Notice and Rebalance return at once, and do nothing unless Run is running.
type Dispatcher struct {
	config   Config
	listings chan struct{} // one entry for each listing of a tenant's sources in progress
	admitted chan struct{} // one entry for each consumer that counts in Config.Admitted
	passes   chan struct{} // one entry while a pass over all tenants is requested

	mu      sync.Mutex
	ctx     context.Context // parent of all consumers' contexts; nil while Run is not running
	tenants map[domain.TenantID]*tenant
	running sync.WaitGroup
}

// New returns a Dispatcher. It works while Run is running.
func New(config Config) *Dispatcher {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Owns == nil {
		config.Owns = func(domain.TenantID) bool { return true }
	}
	config.Admitted = cmp.Or(config.Admitted, DefaultAdmitted)
	config.PauseMin = cmp.Or(config.PauseMin, time.Second)
	config.PauseMax = max(config.PauseMin, cmp.Or(config.PauseMax, time.Minute))
	return &Dispatcher{
		config: config, listings: make(chan struct{}, maxListings), admitted: make(chan struct{}, config.Admitted), passes: make(chan struct{}, 1),
		tenants: make(map[domain.TenantID]*tenant),
	}
}

// Run works until ctx ends and every consumer has returned, and then returns nil. It starts with a pass over the
// tenants that this process owns. It may be called once.
func (d *Dispatcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.mu.Lock()
	d.ctx = ctx
	d.mu.Unlock()
	d.requestPass()
	d.runPasses(ctx)
	d.mu.Lock()
	d.ctx = nil
	for id, t := range d.tenants {
		d.leave(id, t)
	}
	d.mu.Unlock()
	d.running.Wait()
	return nil
}

// Wake reports that a log has grown, and runs the tenant's consumers.
func (d *Dispatcher) Wake(head domain.Head) { d.refresh(head.Tenant) }

// Notice reports that a tenant's consumers or one of their groups have changed. For example, a group was resumed, or a
// replay of its dead letters was requested. domain.Everyone means every tenant.
func (d *Dispatcher) Notice(tenant domain.TenantID) {
	if tenant == domain.Everyone {
		d.requestPass()
		return
	}
	d.refresh(tenant)
}

// Rebalance reports that the results of Owns may have changed. It stops the consumers of tenants that are no longer
// owned, and runs those of all owned tenants once.
func (d *Dispatcher) Rebalance() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, t := range d.tenants {
		if !d.config.Owns(id) {
			d.leave(id, t)
		}
	}
	d.requestPass()
}

// Count returns how many consumers are running, and how many are waiting after an error.
func (d *Dispatcher) Count() (working, failing int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tenants {
		for _, c := range t.consumers {
			switch {
			case c.failures > 0:
				failing++
			case c.running:
				working++
			}
		}
	}
	return working, failing
}

func (d *Dispatcher) requestPass() {
	select {
	case d.passes <- struct{}{}:
	default:
	}
}
