package dispatch

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Consumer is one group of one tenant whose consumer is the service.
type Consumer struct {
	// Name is the group's, unique in its tenant: webhook.mail.
	Name string
	// Revision tells one making of the consumer from another: one that is listed with another revision than the one that runs is
	// stopped, and started anew when it has returned.
	Revision string
	// Run delivers what is due. It returns when nothing is due any more; it may linger a little for more. again is the time, by this
	// process's clock, at which something becomes due without the log growing or a Notice; zero: there is none. After an error it is called
	// again with growing pauses. It is never called twice at the same time, and returns soon after ctx ends; its error does
	// not matter then.
	Run func(ctx context.Context) (again time.Time, err error)
}

// Source lists the consumers of one kind.
type Source interface {
	// Consumers returns a tenant's consumers, each with a name that no other consumer of the tenant has. It is asked whenever
	// the tenant's log grows, by several goroutines, and so answers from memory where it can. After an error it is asked again; what
	// runs goes on meanwhile.
	Consumers(ctx context.Context, tenant domain.TenantID) ([]Consumer, error)
}

// Store is what a Dispatcher asks of Manifold's own database.
type Store interface {
	// Heads returns the heads of all logs with an event after a time, or of all where it is zero.
	Heads(ctx context.Context, since time.Time) ([]domain.Head, error)
}

// Config is what a Dispatcher is made of. Store must be set; where another field is zero it has a default.
type Config struct {
	Store   Store
	Sources []Source
	Owns    func(domain.TenantID) bool // whether this process runs a tenant's consumers, see Rebalance; must return at once; nil: all tenants'
	Log     *slog.Logger               // nil: none

	// First bounds how many consumers are run at the same time by a round through all tenants, as at the start; 0: DefaultFirst. What
	// takes longer than a moment no longer counts.
	First int
	// PauseMin and PauseMax are the pauses after the first error in a row and after many, jitter left out; 0: a second and a minute.
	PauseMin, PauseMax time.Duration
}

// DefaultFirst is Config.First where nothing is said.
const DefaultFirst = 16

// Times of a Dispatcher's work.
const (
	firstFor    = time.Second           // for which a consumer that a round has started counts in Config.First
	lookTimeout = 30 * time.Second      // for one source's list
	roundPause  = 2 * time.Second       // between two rounds at least, and after one that could not be begun
	leastSleep  = 10 * time.Millisecond // of a consumer that says when it is to be run again
)

// looks is how many tenants' sources are asked at the same time.
const looks = 16

// Dispatcher runs the consumers of the tenants that this process owns. All methods may be called concurrently; Wake, Notice and Rebalance
// return at once, and do nothing unless Run is running.
type Dispatcher struct {
	config  Config
	looking chan struct{} // has one for each look at a tenant's sources that is under way
	first   chan struct{} // has one for each consumer that counts in Config.First
	rounds  chan struct{} // has one while a round through all tenants is wanted

	mu      sync.Mutex
	ctx     context.Context // of all consumers; nil while Run is not running
	tenants map[domain.TenantID]*tenant
	running sync.WaitGroup
}

// New returns a Dispatcher, which works while Run does.
func New(config Config) *Dispatcher {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Owns == nil {
		config.Owns = func(domain.TenantID) bool { return true }
	}
	config.First = cmp.Or(config.First, DefaultFirst)
	config.PauseMin = cmp.Or(config.PauseMin, time.Second)
	config.PauseMax = max(config.PauseMin, cmp.Or(config.PauseMax, time.Minute))
	return &Dispatcher{
		config: config, looking: make(chan struct{}, looks), first: make(chan struct{}, config.First), rounds: make(chan struct{}, 1),
		tenants: make(map[domain.TenantID]*tenant),
	}
}

// Run works until ctx ends, and returns nil then, when every consumer has returned. It begins with a round through the
// tenants that this process owns. It may be called once.
func (d *Dispatcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.mu.Lock()
	d.ctx = ctx
	d.mu.Unlock()
	d.wantRound()
	d.goRound(ctx)
	d.mu.Lock()
	d.ctx = nil
	for id, t := range d.tenants {
		d.leave(id, t)
	}
	d.mu.Unlock()
	d.running.Wait()
	return nil
}

// Wake says that a log has grown: the tenant's consumers are run.
func (d *Dispatcher) Wake(head domain.Head) { d.look(head.Tenant) }

// Notice says that a tenant's consumers have changed, or one of their groups has: that it was resumed, say, or that the replay of
// dead letters was asked for. domain.Everyone stands for every tenant.
func (d *Dispatcher) Notice(tenant domain.TenantID) {
	if tenant == domain.Everyone {
		d.wantRound()
		return
	}
	d.look(tenant)
}

// Rebalance says that Owns may answer otherwise than before: the consumers of tenants that are no longer owned are stopped, and
// those of all others run once.
func (d *Dispatcher) Rebalance() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, t := range d.tenants {
		if !d.config.Owns(id) {
			d.leave(id, t)
		}
	}
	d.wantRound()
}

// Count returns how many consumers work just now, and how many wait after an error.
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

func (d *Dispatcher) wantRound() {
	select {
	case d.rounds <- struct{}{}:
	default:
	}
}
