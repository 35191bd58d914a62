package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// Config configures an Egress. Name, Topic, Alphabet, Groups and Births are required, and so is Broker unless Remove is
// set.
type Config struct {
	Name      string           // valid according to domain.CheckName
	Selection domain.Selection // without Stream
	Tenants   []domain.TenantID
	Start     bool      // new groups begin at the start of the log
	From      time.Time // otherwise they begin at this time; zero: when the egress was first declared
	Topic     string    // a template with the placeholders {tenant}, {category}, {key} and {type}
	Alphabet  Alphabet  // of the values in Topic
	Broker    Broker
	Kind      string   // of broker, for reports
	Addresses []string // of the broker, without credentials; for reports
	// Remove makes the egress remove its groups, tenant by tenant, instead of publishing.
	Remove bool

	Groups *group.Groups   // store the checkpoints
	Births *group.Postgres // records since when the egress exists
	// Active reports whether a tenant may have a group. Nil means that every tenant may.
	Active func(ctx context.Context, tenant domain.TenantID) (bool, error)
	// Owns reports whether this process publishes a tenant's events. Only State uses it. Nil means all tenants.
	Owns func(domain.TenantID) bool
	// Owned returns the tenants whose events this process publishes, or false if it does not know them yet. Only Report
	// uses it, if Remove is set. Nil means that it never knows.
	Owned func() (tenants []domain.TenantID, known bool)
	// DataSchema returns the dataschema of events: see cloudevents.Encoder. Nil: none.
	DataSchema func(event *domain.Event) string
	Label      string // of the members of its groups; identifies the process
	// Died reports whether the process with a label has died. Then what its members have in flight is redelivered at
	// once. If Died is nil, such members are removed like any silent member.
	Died     func(label string) bool
	Log      *slog.Logger
	Observer Observer
	Tracer   *tracing.Tracer // records a span of each message; nil: none

	Bytes int           // of events of all tenants being published at the same time; 0: DefaultBytes
	Batch int           // maximum number of events published together; 0: DefaultBatch
	Stay  time.Duration // how long a tenant's consumer waits for more before it leaves its group; 0: DefaultStay

	// PauseMin and PauseMax limit the pauses of all tenants while the broker does not answer. 0 means one second and
	// one minute.
	PauseMin, PauseMax time.Duration
}

// Defaults of a Config.
const (
	DefaultBytes = 64 << 20
	DefaultBatch = 500
	DefaultStay  = 2 * time.Second
)

// Timing of an egress.
const (
	publishTimeout = 15 * time.Second // of one batch
	ackTimeout     = time.Minute      // of the groups; longer than publishing a batch takes
	leaveTimeout   = 5 * time.Second  // for calls to a group when a consumer ends
	justJoined     = 5 * time.Second  // time in which other processes may not know a new member's process yet
)

// reportWaiting is how long an event has waited before a report says so.
const reportWaiting = 5 * time.Second

// receiveBytes is the maximum size of a receive.
const receiveBytes = 8 << 20

// Observer reports what an egress does. Each function is optional. They are called by several goroutines and must
// return at once.
type Observer struct {
	Published func(messages int, delay time.Duration) // acknowledged by the broker; delay since the oldest was recorded
	Refused   func(messages int)                      // moved to the dead letters
	Failed    func(messages int)                      // not acknowledged; they are published again
}

// Egress is one egress for all its tenants. It is a source of consumers. Its methods may be called concurrently.
type Egress struct {
	config Config
	topic  template
	from   domain.From                  // where groups begin; set by Declare
	of     map[domain.TenantID]struct{} // tenants; empty: all
	group  string
	memory *semaphore.Weighted
	gate   gate

	mu      sync.Mutex
	ready   map[domain.TenantID]struct{}  // tenants whose group is up to date or was removed
	waiting map[domain.TenantID]time.Time // since when an event waits for the broker to accept it
	outage  failure                       // of the broker; zero while it answers
	failing map[domain.TenantID]failure   // tenants whose last attempt failed although the broker answered
}

// failure is why events are not published, and since when.
type failure struct {
	reason string
	since  time.Time
}

// messageError is why a message was not published.
type messageError struct {
	error
	topic string
}

func (e messageError) Unwrap() error { return e.error }

// reason returns an error for reports. Operators read them, so a topic, which may contain keys of a tenant's streams,
// is replaced by its template.
func (e *Egress) reason(err error) string {
	text := err.Error()
	if of, ok := errors.AsType[messageError](err); ok {
		text = strings.ReplaceAll(text, strconv.Quote(of.topic), strconv.Quote(e.config.Topic))
	}
	return consume.Truncate(text, domain.MaxReasonBytes)
}

// New returns an Egress. Its error names the invalid setting: topic or filter.
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
		ready: make(map[domain.TenantID]struct{}), waiting: make(map[domain.TenantID]time.Time), failing: make(map[domain.TenantID]failure),
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
	if _, err := group.Complete(e.definition()); err != nil {
		return nil, err
	}
	return e, nil
}

// Name returns the name of the egress.
func (e *Egress) Name() string { return e.config.Name }

// Declare records since when the egress exists, or that it was removed. It must be called before any consumer runs.
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

// definition returns the definition of each tenant's group. It has one partition, and so one holder. Attempts are not
// limited: an event that the broker does not accept is retried indefinitely.
func (e *Egress) definition() domain.GroupDefinition {
	return domain.GroupDefinition{
		Selection: e.config.Selection, BatchSize: e.config.Batch, MaxInFlight: e.config.Batch, AckTimeout: ackTimeout,
		MaxAttempts: domain.MaxMaxAttempts, Ordering: domain.OrderingNone, Partitions: 1,
	}
}

// Consumers implements consume.Source. Audit logs are not published.
func (e *Egress) Consumers(_ context.Context, tenant domain.TenantID) ([]consume.Consumer, error) {
	if tenant.IsAuditLog() {
		return nil, nil
	}
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
	return []consume.Consumer{{Name: e.group, Run: func(ctx context.Context) (time.Time, error) { return run(ctx, tenant) }}}, nil
}

// State returns the state of the egress in this process.
func (e *Egress) State() domain.EgressState {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgetForeignTenants()
	s := domain.EgressState{Up: true, Failing: len(e.failing)}
	if len(e.waiting) > 0 { // otherwise nothing would notice that the broker answers again
		s.Up, s.Error, s.ErrorSince = e.gate.open(), e.outage.reason, e.outage.since
	}
	for _, since := range e.waiting {
		if s.WaitingSince.IsZero() || since.Before(s.WaitingSince) {
			s.WaitingSince = since
		}
	}
	if s.Error != "" {
		return s
	}
	for tenant, f := range e.failing {
		if s.ErrorSince.IsZero() || f.since.Before(s.ErrorSince) {
			s.Error, s.ErrorSince, s.ErrorTenant = f.reason, f.since, tenant.String()
		}
	}
	return s
}

// forgetForeignTenants forgets what is known of tenants that another process has taken over during a pause. The caller
// holds the lock.
func (e *Egress) forgetForeignTenants() {
	if e.config.Owns == nil {
		return
	}
	foreign := func(tenant domain.TenantID) bool { return !e.config.Owns(tenant) }
	maps.DeleteFunc(e.waiting, func(tenant domain.TenantID, _ time.Time) bool { return foreign(tenant) })
	maps.DeleteFunc(e.failing, func(tenant domain.TenantID, _ failure) bool { return foreign(tenant) })
}

// Report returns the settings and the state of the egress. While events are published at once, it stays the same.
func (e *Egress) Report() domain.EgressReport {
	c := &e.config
	if c.Remove {
		return domain.EgressReport{Name: c.Name, Remove: true, Removed: e.removedAll(), EgressState: domain.EgressState{Up: true}}
	}
	s := e.State()
	if time.Since(s.WaitingSince) < reportWaiting {
		s.WaitingSince = time.Time{}
	}
	return domain.EgressReport{
		Name: c.Name, Kind: c.Kind, Addresses: c.Addresses, Topic: c.Topic, Tenants: len(c.Tenants),
		Categories: c.Selection.Categories, Types: c.Selection.Types, Query: c.Selection.Query, Filter: c.Selection.Filter,
		EgressState: s,
	}
}

// removedAll reports whether the groups of all tenants of this process are removed.
func (e *Egress) removedAll() bool {
	if e.config.Owned == nil {
		return false
	}
	tenants, known := e.config.Owned()
	return known && !slices.ContainsFunc(tenants, func(tenant domain.TenantID) bool { return !e.isReady(tenant) })
}

// noteWaiting records since when a tenant's next event has waited.
func (e *Egress) noteWaiting(tenant domain.TenantID, since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, ok := e.waiting[tenant]; !ok || since.Before(before) {
		e.waiting[tenant] = since
	}
}

// clearWaiting records that no event of a tenant is known to wait.
func (e *Egress) clearWaiting(tenant domain.TenantID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting, tenant)
}

// noteAttempt records how an attempt to publish a tenant's events ended.
func (e *Egress) noteAttempt(tenant domain.TenantID, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		delete(e.failing, tenant)
		return
	}
	since := time.Now()
	if before, ok := e.failing[tenant]; ok {
		since = before.since
	}
	e.failing[tenant] = failure{e.reason(err), since}
}

// noteOutage records that the broker does not answer, or with nil that it does.
func (e *Egress) noteOutage(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		e.outage = failure{}
	case e.outage.since.IsZero():
		e.outage = failure{e.reason(err), time.Now()}
	default:
		e.outage.reason = e.reason(err)
	}
}

// up records that the broker has answered.
func (e *Egress) up() {
	e.noteOutage(nil)
	if e.gate.succeeded() {
		e.config.Log.Info("the broker answers again", "egress", e.config.Name)
	}
}

// down records that the broker has not answered, and returns when to try again.
func (e *Egress) down(err error) time.Time {
	e.noteOutage(err)
	first, nextRun := e.gate.failed(time.Now())
	if first {
		e.config.Log.Warn("the broker does not answer; retrying", "egress", e.config.Name, "error", err)
	}
	return nextRun
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
