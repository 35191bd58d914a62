package egress

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/manifold-es/manifold/dispatch"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/subscription"
)

// Groups is where the checkpoints of an egress are. *subscription.Groups has it.
type Groups interface {
	Get(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error)
	Put(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition) (status domain.GroupStatus, created bool, err error)
	Delete(ctx context.Context, tenant domain.TenantID, name string) error
	Join(ctx context.Context, tenant domain.TenantID, name, label string) (domain.GroupMember, error)
	Leave(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error
	Receive(ctx context.Context, tenant domain.TenantID, name string, wanted subscription.Receive) ([]domain.Delivery, error)
	Ack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error)
	Nack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, nack domain.Nack) ([]domain.Outcome, error)
	Seek(ctx context.Context, tenant domain.TenantID, name string, to domain.From) (domain.GroupStatus, error)
	Due(ctx context.Context, tenant domain.TenantID, name string) (subscription.Due, error)
	Members(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error)
}

// Births is where it is kept since when there is an egress. *store.Store has it.
type Births interface {
	// Declare returns since when there is a consumer for an owner, of a kind and by a name; where nobody has declared it before: since the
	// given time, or with the zero time since now.
	Declare(ctx context.Context, owner domain.TenantID, kind, name string, since time.Time) (time.Time, error)
	// Withdraw forgets that.
	Withdraw(ctx context.Context, owner domain.TenantID, kind, name string) error
}

// Config is what an Egress is made of. Name, Topic, Alphabet, Groups and Births must be set, and Broker unless Remove is.
type Config struct {
	Name      string           // as domain.CheckName accepts it
	Selection domain.Selection // without Stream
	Tenants   []domain.TenantID
	Start     bool      // each tenant's group begins at the start of its log, when it is made
	From      time.Time // else at this time; zero: when the egress was declared first
	Topic     string    // a template, with the places {tenant}, {category}, {key} and {type}
	Alphabet  Alphabet  // of the values in it
	Broker    Broker
	// Remove says that the egress is no more: its groups are removed, tenant by tenant.
	Remove bool

	Groups Groups
	Births Births
	// Active reports whether a tenant may be given a group; nil: each may.
	Active func(ctx context.Context, tenant domain.TenantID) (bool, error)
	// Owns reports whether this process publishes a tenant's events, for State; nil: all tenants'.
	Owns  func(domain.TenantID) bool
	Label string // of the members of its groups; it names the process
	// Died reports whether the process that a label names has died: what its members have in flight goes to others at once.
	// nil: they are swept like any other's.
	Died     func(label string) bool
	Log      *slog.Logger
	Observer Observer

	Bytes int           // of events of all tenants that are on their way at the same time; 0: DefaultBytes
	Batch int           // events published together, at most; 0: DefaultBatch
	Stay  time.Duration // for which a tenant's consumer waits for more before it leaves its group; 0: DefaultStay

	// PauseMin and PauseMax are the pauses of all tenants while the broker does not answer; 0: a second and a minute.
	PauseMin, PauseMax time.Duration
}

// Defaults of a Config.
const (
	DefaultBytes = 64 << 20
	DefaultBatch = 500
	DefaultStay  = 2 * time.Second
)

// Times of an egress's work.
const (
	publishTimeout = 15 * time.Second // of one batch
	ackTimeout     = time.Minute      // of the groups; more than it takes to publish a batch
	lastWord       = 5 * time.Second  // for what is said to a group when a consumer ends
	justJoined     = 5 * time.Second  // in which a member's process may not be known to all others
)

// receiveBytes is what a receive may give, at most.
const receiveBytes = 8 << 20

// Observer is told what an egress does. Each function may be nil; they are called by several goroutines and must return at once.
type Observer struct {
	Published func(messages int, delay time.Duration) // acknowledged by the broker; delay is since the oldest of them was recorded
	Refused   func(messages int)                      // put to the dead letters
	Failed    func(messages int)                      // not acknowledged; they are published again
}

// Egress is one egress of all its tenants: a source of consumers. Its methods may be called concurrently.
type Egress struct {
	config Config
	topic  template
	from   domain.From                  // where groups begin; set by Declare
	of     map[domain.TenantID]struct{} // the tenants; empty: all
	group  string
	memory *semaphore.Weighted
	gate   gate

	mu      sync.Mutex
	ready   map[domain.TenantID]struct{}  // whose group is as it is to be, or was removed
	waiting map[domain.TenantID]time.Time // since when an event waits for a broker that does not take it
}

// New returns an Egress. An error says which of the settings is wrong: topic or filter.
func New(config Config) (*Egress, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Bytes == 0 {
		config.Bytes = DefaultBytes
	}
	if config.Batch == 0 {
		config.Batch = DefaultBatch
	}
	if config.Stay == 0 {
		config.Stay = DefaultStay
	}
	if config.PauseMin == 0 {
		config.PauseMin = time.Second
	}
	if config.PauseMax == 0 {
		config.PauseMax = time.Minute
	}
	e := &Egress{
		config: config, gate: gate{least: config.PauseMin, most: max(config.PauseMin, config.PauseMax)}, group: domain.ServiceGroup(domain.ServiceEgress, config.Name), memory: semaphore.NewWeighted(int64(max(config.Bytes, receiveBytes))),
		of:    make(map[domain.TenantID]struct{}, len(config.Tenants)),
		ready: make(map[domain.TenantID]struct{}), waiting: make(map[domain.TenantID]time.Time),
	}
	for _, tenant := range config.Tenants {
		e.of[tenant] = struct{}{}
	}
	if config.Remove {
		return e, nil
	}
	var err error
	if e.topic, err = newTemplate(config.Topic, config.Alphabet); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	if _, err := subscription.Complete(e.definition()); err != nil {
		return nil, err
	}
	return e, nil
}

// Name is the egress's.
func (e *Egress) Name() string { return e.config.Name }

// Declare notes since when there is the egress, or that it is no more. It is to be called before any consumer runs.
func (e *Egress) Declare(ctx context.Context) error {
	if e.config.Remove {
		return e.config.Births.Withdraw(ctx, domain.Everyone, domain.ServiceEgress, e.config.Name)
	}
	born, err := e.config.Births.Declare(ctx, domain.Everyone, domain.ServiceEgress, e.config.Name, time.Time{})
	switch {
	case err != nil:
		return err
	case e.config.Start:
	case e.config.From.IsZero():
		e.from.Time = born
	default:
		e.from.Time = e.config.From
	}
	return nil
}

// definition is that of each tenant's group. Its one partition has one holder. Attempts are no measure: an event that the broker
// does not take is tried for ever.
func (e *Egress) definition() domain.GroupDefinition {
	return domain.GroupDefinition{
		Selection: e.config.Selection, BatchSize: e.config.Batch, MaxInFlight: e.config.Batch, AckTimeout: ackTimeout,
		MaxAttempts: domain.MaxMaxAttempts, Ordering: domain.OrderingNone, Partitions: 1,
	}
}

// Consumers implements dispatch.Source.
func (e *Egress) Consumers(_ context.Context, tenant domain.TenantID) ([]dispatch.Consumer, error) {
	if _, ours := e.of[tenant]; !ours && len(e.of) > 0 {
		return nil, nil
	}
	run := e.consume
	if e.config.Remove {
		if e.isReady(tenant) {
			return nil, nil
		}
		run = e.remove
	}
	return []dispatch.Consumer{{Name: e.group, Run: func(ctx context.Context) (time.Time, error) { return run(ctx, tenant) }}}, nil
}

// State is how an egress is, for metrics.
type State struct {
	Up  bool          // the broker has answered when it was asked last
	Lag time.Duration // since when the event has waited that has done so for longest, of those that this process knows of; 0: none waits
}

// State returns how the egress is.
func (e *Egress) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := State{Up: e.gate.open()}
	for tenant, since := range e.waiting {
		if e.config.Owns != nil && !e.config.Owns(tenant) {
			delete(e.waiting, tenant) // another process has taken it over while it paused
			continue
		}
		s.Lag = max(s.Lag, time.Since(since))
	}
	return s
}

// waits notes since when a tenant's next event waits.
func (e *Egress) waits(tenant domain.TenantID, since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, ok := e.waiting[tenant]; !ok || since.Before(before) {
		e.waiting[tenant] = since
	}
}

// waitsNoMore notes that no event of a tenant waits as far as is known.
func (e *Egress) waitsNoMore(tenant domain.TenantID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting, tenant)
}

// up notes that the broker has answered.
func (e *Egress) up() {
	if e.gate.passed() {
		e.config.Log.Info("the broker answers again", "egress", e.config.Name)
	}
}

// down notes that the broker has not answered, and returns when to try again.
func (e *Egress) down(err error) time.Time {
	first, again := e.gate.failed(time.Now())
	if first {
		e.config.Log.Warn("the broker does not answer; trying again and again", "egress", e.config.Name, "error", err)
	}
	return again
}

func (e *Egress) isReady(tenant domain.TenantID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ready := e.ready[tenant]
	return ready
}

func (e *Egress) setReady(tenant domain.TenantID, ready bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ready {
		e.ready[tenant] = struct{}{}
	} else {
		delete(e.ready, tenant)
	}
}
