package aggregate

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/upcasting"
)

// Config configures States. All but Store, Events and Log may be zero.
type Config struct {
	Store     *Postgres
	Events    *eventlog.Log
	Upcasters *upcasting.Upcasters // nil: events are folded as they are in the log
	// Tagger returns what adds the tags that the schemas of event types derive to an append, as the append itself will.
	// It returns nil if the tenant's schemas derive none; nil: no tenant's do.
	Tagger   func(ctx context.Context, tenant domain.TenantID) (schema.Tagger, error)
	Requests *budget.Requests // what Load and TakeSnapshot may cost; nil: the defaults of budget.New
	Log      *slog.Logger
	Workers  int           // snapshots taken at the same time; 0: 2
	Waiting  int           // streams that may wait for a snapshot, others are left to the sweep; 0: 10,000
	Sweep    time.Duration // interval between two sweeps; 0: a day
}

// States loads states and keeps snapshots. All methods may be called concurrently.
type States struct {
	store       *Postgres
	events      *eventlog.Log
	upcasters   *upcasting.Upcasters
	tagger      func(ctx context.Context, tenant domain.TenantID) (schema.Tagger, error)
	requests    *budget.Requests
	log         *slog.Logger
	sweep       time.Duration
	turnTime    time.Duration // how long a sweep stays with a tenant while others wait
	snapshotter *snapshotter
	renewals    *tenantQueue[renewal] // categories whose snapshots must be taken again
	folds       *foldCache            // valid while the stored definition and the upcasters are the same
	hot         *hotStates            // of streams that commands were sent to
}

// categoryKey identifies a tenant's category.
type categoryKey struct {
	tenant   domain.TenantID
	category string
}

// New returns States. Snapshots are taken while Run is running.
func New(config Config) (*States, error) {
	config.Workers = cmp.Or(config.Workers, 2)
	config.Waiting = cmp.Or(config.Waiting, 10_000)
	config.Sweep = cmp.Or(config.Sweep, 24*time.Hour)
	if config.Requests == nil {
		config.Requests = budget.New(budget.Limits{})
	}
	if config.Tagger == nil {
		config.Tagger = func(context.Context, domain.TenantID) (schema.Tagger, error) { return nil, nil }
	}
	s := &States{
		store: config.Store, events: config.Events, upcasters: config.Upcasters, tagger: config.Tagger, requests: config.Requests, log: config.Log, sweep: config.Sweep, turnTime: sweepTurnTime,
		renewals: newTenantQueue[renewal](maxRenewals, 1), hot: newHotStates(hotBytes),
	}
	var err error
	if s.folds, err = newFoldCache(); err != nil {
		return nil, err
	}
	if s.snapshotter, err = newSnapshotter(config.Workers, config.Waiting); err != nil {
		return nil, err
	}
	return s, nil
}

// At says as of when to load a state: now if all times are zero, or else a version or a moment, only one of which may
// be set. It also says whether the state may lack events that retention has removed.
type At struct {
	Version    int64     // after the stream's event of this version
	Time       time.Time // after the newest event recorded at or before it
	OccurredAt time.Time // of the events that happened at or before it, in the stream's order
	AcceptLoss bool      // fold the remaining events if no snapshot covers the removed ones

	until time.Time // stop after the event being folded then; zero: fold to the end
	rungs bool      // store snapshots on the way
	orNew bool      // a stream without events has the initial state
}

// State is the fold of a stream's events.
type State struct {
	Stream     string
	Version    int64           // of the last event folded
	Data       json.RawMessage // a JSON object, or null if the last event's expression gave null
	Snapshot   int64           // the version of the snapshot that it started from; 0: none
	EventsRead int             // events read after the snapshot
	RemovedTo  int64           // the highest missing version, with At.AcceptLoss; 0: none is missing

	tag           string
	last          domain.EventID // of the last event folded; zero: none was read
	object        *expr.Object   // the same as Data
	partial       bool           // it ends at At.until, before the stream's newest event
	rungs         []Snapshot     // with At.rungs: the snapshots on the way that are not stored yet
	snapshotEvery int64          // the definition's
}

// snapshot returns the state as a snapshot.
func (s *State) snapshot() Snapshot {
	return Snapshot{Stream: s.Stream, Version: s.Version, Tag: s.tag, State: s.Data, RemovedTo: s.RemovedTo}
}

// Load returns a stream's state. The error is domain.CodeNotFound without a definition of the category or without the
// stream, for a version that the stream has not reached, and for a moment before its first event. It is
// domain.CodeFaulted if an event cannot be folded, and domain.CodeEventsRemoved if retention has removed events that no
// snapshot covers. Config.Requests limits the cost.
func (s *States) Load(ctx context.Context, tenant domain.TenantID, stream string, at At) (State, error) {
	if err := domain.CheckStream("stream", stream); err != nil {
		return State{}, err
	}
	switch {
	case at.Version < 0:
		return State{}, domain.Errorf(domain.CodeInvalidRequest, "version", "%d is not a version; the first is 1", at.Version)
	case at.Version > 0 && !at.Time.IsZero():
		return State{}, domain.Errorf(domain.CodeInvalidRequest, "at", "give version or at, not both")
	case !at.OccurredAt.IsZero() && (at.Version > 0 || !at.Time.IsZero()):
		return State{}, domain.Errorf(domain.CodeInvalidRequest, "occurredAt", "give version, at or occurredAt: one of them")
	}
	ctx, end, err := s.requests.Begin(ctx, tenant, "a snapshot is being taken, from which a later request continues; take snapshots more often, or simplify the fold")
	if err != nil {
		return State{}, err
	}
	defer end()
	state, err := s.loadAt(ctx, tenant, stream, at)
	err = budget.Cause(ctx, err)
	if domain.IsCode(err, domain.CodeTooCostly) || domain.IsCode(err, domain.CodeOverloaded) {
		s.snapshotter.add(tenant, stream, allVersions) // fold in the background, from one snapshot to the next
	}
	return state, err
}

func (s *States) loadAt(ctx context.Context, tenant domain.TenantID, stream string, at At) (State, error) {
	var f *fold
	var snapshot *Snapshot
	var err error
	if at.Time.IsZero() && at.OccurredAt.IsZero() {
		f, snapshot, err = s.start(ctx, tenant, stream, at.Version)
	} else {
		f, err = s.fold(ctx, tenant, domain.Category(stream))
	}
	if err != nil {
		return State{}, err
	}
	if !at.Time.IsZero() {
		if at.Version, err = s.events.VersionAt(ctx, tenant, stream, at.Time); err != nil {
			return State{}, err
		}
		if at.Version == 0 {
			return State{}, s.noVersionAt(ctx, tenant, stream, at.Time)
		}
	}
	state, err := s.load(ctx, tenant, stream, f, snapshot, at)
	if err == nil && at == (At{}) && state.EventsRead >= 2*f.snapshotEvery {
		s.snapshotter.add(tenant, stream, allVersions) // its last snapshot was missed
	}
	return state, err
}

// start returns the current fold of a stream's category, and the newest complete snapshot up to a version (0: any),
// normally in one round trip. A snapshot of version 0 means that there is none; nil, that it is not known, because the
// definition has changed.
func (s *States) start(ctx context.Context, tenant domain.TenantID, stream string, version int64) (*fold, *Snapshot, error) {
	tag := ""
	if known, ok := s.folds.Get(categoryKey{tenant, domain.Category(stream)}); ok {
		tag = known.tag
	}
	found, err := s.store.readStart(ctx, tenant, stream, tag, version)
	if err != nil {
		return nil, nil, err
	}
	f, err := s.compiled(ctx, tenant, domain.Category(stream), found)
	if err != nil || f.tag != tag || !found.asked {
		return f, nil, err
	}
	return f, &found.snapshot, nil
}

// noVersionAt returns the error for a stream that has no version at a moment.
func (s *States) noVersionAt(ctx context.Context, tenant domain.TenantID, stream string, at time.Time) error {
	slice, err := s.events.StreamSlice(ctx, tenant, stream, domain.StreamQuery{Limit: 1, Direction: domain.Backward})
	if err != nil {
		return err
	}
	if len(slice.Events) == 0 && slice.Floor > 0 {
		return domain.Errorf(domain.CodeEventsRemoved, "at", "no event of %s is left in the log, so its version at %s is unknown; ask for a version",
			stream, domain.FormatTime(at))
	}
	return domain.Errorf(domain.CodeNotFound, "at", "stream %s had no event at %s", stream, domain.FormatTime(at))
}

// recentFold returns the fold of a category's definition, as it was in the database within definitionAge.
func (s *States) recentFold(tenant domain.TenantID, category string) (*fold, bool) {
	f, ok := s.folds.Get(categoryKey{tenant, category})
	return f, ok && time.Since(time.Unix(0, f.checked.Load())) < definitionAge
}

// fold returns the fold of a category's current definition and of the upcasters in force.
func (s *States) fold(ctx context.Context, tenant domain.TenantID, category string) (*fold, error) {
	found, err := s.store.readStart(ctx, tenant, category, "", 0)
	if err != nil {
		return nil, err
	}
	return s.compiled(ctx, tenant, category, found)
}

// compiled returns the fold of a definition and upcasters that were just read.
func (s *States) compiled(ctx context.Context, tenant domain.TenantID, category string, found start) (*fold, error) {
	key := categoryKey{tenant, category}
	if f, ok := s.folds.Get(key); ok && f.stored.equal(found.definition) && f.revision == found.upcasters {
		f.checked.Store(time.Now().UnixNano())
		return f, nil
	}
	definition, err := found.definition.decode(category)
	if err != nil {
		return nil, err
	}
	upcasters, err := s.upcasters.At(ctx, tenant, found.upcasters)
	if err != nil {
		return nil, err
	}
	var f *fold
	err = budget.Work(ctx, func() error {
		f, err = compile(expr.MeterOf(ctx), definition, upcasters)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.stored, f.revision = found.definition, found.upcasters
	f.checked.Store(time.Now().UnixNano())
	s.folds.Add(key, f)
	return f, nil
}

// Forget forgets the states of a tenant's streams and boundaries, or with domain.Everyone those of all tenants, because
// stored events have changed.
func (s *States) Forget(tenant domain.TenantID) { s.hot.dropTenant(tenant) }
