package aggregate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// Config configures States. All but Store, Events and Log may be zero.
type Config struct {
	Store     *Postgres
	Events    *eventlog.Log
	Upcasters *upcasting.Upcasters // nil: events are folded as they are in the log
	Requests  *budget.Requests     // what Load and TakeSnapshot may cost; nil: the defaults of budget.New
	Log       *slog.Logger
	Workers   int           // snapshots taken at the same time; 0: 2
	Waiting   int           // streams that may wait for a snapshot, others are left to the sweep; 0: 10,000
	Sweep     time.Duration // interval between two sweeps; 0: a day
}

// States loads states and keeps snapshots. All methods may be called concurrently.
type States struct {
	store     *Postgres
	events    *eventlog.Log
	upcasters *upcasting.Upcasters
	requests  *budget.Requests
	log       *slog.Logger
	sweep     time.Duration
	turn      time.Duration // how long a sweep stays with a tenant while others wait
	taker     *taker
	renewals  *tenantQueue[renewal]          // categories whose snapshots must be taken again
	folds     *lru.Cache[categoryKey, *fold] // compiled; valid while the tag is that of the stored definition
}

// categoryKey identifies a tenant's category.
type categoryKey struct {
	tenant   domain.TenantID
	category string
}

// foldsKept is how many compiled definitions are kept.
const foldsKept = 1000

// New returns States. Snapshots are taken while Run is running.
func New(config Config) (*States, error) {
	if config.Workers == 0 {
		config.Workers = 2
	}
	if config.Waiting == 0 {
		config.Waiting = 10_000
	}
	if config.Sweep == 0 {
		config.Sweep = 24 * time.Hour
	}
	if config.Requests == nil {
		config.Requests = budget.New(budget.Limits{})
	}
	s := &States{
		store: config.Store, events: config.Events, upcasters: config.Upcasters, requests: config.Requests, log: config.Log, sweep: config.Sweep, turn: sweepTurn,
		renewals: newTenantQueue[renewal](renewalsWaiting, 1),
	}
	var err error
	if s.folds, err = lru.New[categoryKey, *fold](foldsKept); err != nil {
		return nil, err
	}
	if s.taker, err = newTaker(config.Workers, config.Waiting); err != nil {
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
}

// State is the fold of a stream's events.
type State struct {
	Stream     string
	Version    int64           // of the last event folded
	Data       json.RawMessage // a JSON object, or null if the last event's expression gave null
	Snapshot   int64           // the version of the snapshot that it started from; 0: none
	EventsRead int             // events read after the snapshot
	RemovedTo  int64           // the highest missing version, with At.AcceptLoss; 0: none is missing

	tag     string
	partial bool // it ends at At.until, before the stream's newest event
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
	err = why(ctx, err)
	if problem, ok := errors.AsType[*domain.Error](err); ok && (problem.Code == domain.CodeTooCostly || problem.Code == domain.CodeOverloaded) {
		s.taker.add(tenant, stream, due) // fold in the background, from one snapshot to the next
	}
	return state, err
}

func (s *States) loadAt(ctx context.Context, tenant domain.TenantID, stream string, at At) (State, error) {
	f, definition, err := s.fold(ctx, tenant, domain.Category(stream))
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
	state, err := s.load(ctx, tenant, stream, f, at)
	if err == nil && at == (At{}) && state.EventsRead >= 2*cmp.Or(definition.SnapshotEvery, domain.DefaultSnapshotEvery) {
		s.taker.add(tenant, stream, due) // its last snapshot was missed
	}
	return state, err
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

// fold returns a category's current definition, and the compiled fold with the upcasters in force.
func (s *States) fold(ctx context.Context, tenant domain.TenantID, category string) (*fold, domain.Aggregate, error) {
	definition, err := s.store.Aggregate(ctx, tenant, category)
	if err != nil {
		return nil, domain.Aggregate{}, err
	}
	upcasters, err := s.upcasters.Now(ctx, tenant)
	if err != nil {
		return nil, domain.Aggregate{}, err
	}
	key := categoryKey{tenant, category}
	if f, ok := s.folds.Get(key); ok && f.tag == tagOf(definition, upcasters) {
		return f, definition, nil
	}
	var f *fold
	err = budget.Work(ctx, func() error {
		f, err = compile(expr.MeterOf(ctx), definition, upcasters)
		return err
	})
	if err != nil {
		return nil, domain.Aggregate{}, err
	}
	s.folds.Add(key, f)
	return f, definition, nil
}

// load folds a stream up to a version (0: the newest), or up to a moment. If events are missing, the error is
// domain.CodeEventsRemoved, unless the loss is accepted.
func (s *States) load(ctx context.Context, tenant domain.TenantID, stream string, f *fold, at At) (State, error) {
	state, err := s.loadFrom(ctx, tenant, stream, f, at, false)
	if problem, ok := errors.AsType[*domain.Error](err); ok && problem.Code == domain.CodeEventsRemoved && at.AcceptLoss {
		return s.loadFrom(ctx, tenant, stream, f, at, true)
	}
	return state, err
}

// loadFrom is load from the newest suitable snapshot. With lossy it also accepts snapshots with missing events, and
// skips missing events. The events of a snapshot may have happened at any time, so no snapshot suits a moment of
// occurrence.
func (s *States) loadFrom(ctx context.Context, tenant domain.TenantID, stream string, f *fold, at At, lossy bool) (State, error) {
	var state *expr.Object
	var snapshot domain.Snapshot
	var ok bool
	var err error
	version := at.Version
	loaded := State{Stream: stream, tag: f.tag}
	if at.OccurredAt.IsZero() {
		if snapshot, ok, err = s.store.Snapshot(ctx, tenant, stream, f.tag, version, lossy); err != nil {
			return State{}, err
		}
	}
	if ok {
		err := budget.Work(ctx, func() error {
			state, err = decode(snapshot.State)
			return err
		})
		if err != nil {
			return State{}, fmt.Errorf("the snapshot of %s at version %d: %w", stream, snapshot.Version, err)
		}
		loaded.Snapshot, loaded.Version, loaded.RemovedTo = snapshot.Version, snapshot.Version, snapshot.RemovedTo
	} else {
		state = f.initial
	}
	// miss handles missing events after the loaded version, up to another version.
	miss := func(upTo int64) error {
		if !lossy {
			return removed(stream, loaded.Version+1, upTo)
		}
		loaded.RemovedTo = upTo
		return nil
	}
	newest := int64(0) // the version of the last event that had happened
	meter := expr.MeterOf(ctx)
	// fold folds the next existing event into the state.
	fold := func(event domain.Event) (err error) {
		switch {
		case event.Gap == nil:
			state, err = f.next(meter, state, event)
		case !lossy:
			err = withoutData(event)
		default:
			loaded.RemovedTo = event.Version
		}
		return err
	}
	floor, err := s.read(ctx, tenant, stream, loaded.Version+1, version, func(events []domain.Event) error {
		for _, event := range events {
			if !meter.SpendBytes(len(event.Data) + len(event.Metadata)) {
				return nil // Work returns the reason
			}
			if !at.until.IsZero() && loaded.Version > loaded.Snapshot && time.Now().After(at.until) {
				return errUntil
			}
			if event.Version != loaded.Version+1 {
				if err := miss(event.Version - 1); err != nil {
					return err
				}
			}
			loaded.Version = event.Version
			if !at.OccurredAt.IsZero() && happened(&event).After(at.OccurredAt) {
				continue
			}
			newest = event.Version
			if err := fold(event); err != nil {
				return err
			}
		}
		loaded.EventsRead += len(events)
		return nil
	})
	if errors.Is(err, errUntil) {
		loaded.partial, floor, err = true, 0, nil
	}
	if err != nil {
		return State{}, err
	}
	// The last events may be missing as well: the stream's floor, or later events, show that.
	if version > loaded.Version {
		newest, err := s.events.StreamSlice(ctx, tenant, stream, domain.StreamQuery{Limit: 1, Direction: domain.Backward})
		if err != nil {
			return State{}, err
		}
		floor = min(newest.Version(), version)
	}
	if floor > loaded.Version && (version == 0 || floor == version) {
		if err := miss(floor); err != nil {
			return State{}, err
		}
		loaded.Version = floor
	}
	switch {
	case loaded.Version == 0:
		return State{}, domain.Errorf(domain.CodeNotFound, "stream", "there is no stream %s", stream)
	case !at.OccurredAt.IsZero() && newest == 0 && loaded.RemovedTo == 0:
		return State{}, domain.Errorf(domain.CodeNotFound, "occurredAt", "no event of stream %s had happened at %s", stream, at.OccurredAt.Format(time.RFC3339Nano))
	case version > loaded.Version:
		return State{}, domain.Errorf(domain.CodeNotFound, "version", "stream %s is at version %d; it has no version %d", stream, max(loaded.Version, floor), version)
	}
	if !at.OccurredAt.IsZero() {
		loaded.Version = max(newest, loaded.RemovedTo)
	}
	// Encode even a state that comes from a snapshot unchanged: equal states give equal bytes.
	err = budget.Work(ctx, func() error {
		loaded.Data, err = encode(state)
		if errors.Is(err, expr.ErrTooLarge) {
			return domain.Errorf(domain.CodeFaulted, "state", "the state of %s at version %d cannot be kept: %s", stream, loaded.Version, err)
		}
		if err != nil {
			return fmt.Errorf("write the state of %s: %w", stream, err)
		}
		return nil
	})
	if err != nil {
		return State{}, err
	}
	return loaded, nil
}

// happened returns when an event happened: by default, when it was recorded.
func happened(event *domain.Event) time.Time {
	if event.OccurredAt.IsZero() {
		return event.RecordedAt
	}
	return event.OccurredAt
}

// errUntil ends a load that has reached its time limit.
var errUntil = errors.New("the snapshots took too long")

// removed returns the error for removed events of a stream, of the versions from through to.
func removed(stream string, from, to int64) error {
	which := fmt.Sprintf("events %d to %d of %s are", from, to, stream)
	if from == to {
		which = fmt.Sprintf("event %d of %s is", from, stream)
	}
	return domain.Errorf(domain.CodeEventsRemoved, "", "%s no longer in the log, and no snapshot covers them; with acceptLoss the state is folded from the remaining events", which)
}

// withoutData returns the error for an event that exists in the stream but whose data is withheld.
func withoutData(event domain.Event) error {
	return domain.Errorf(domain.CodeEventsRemoved, "", "event %d of %s is %s: %s; with acceptLoss the state is folded from the others",
		event.Version, event.Stream, event.Gap.Reason, event.Gap.Message)
}

// Limits of one read: two slices, one being folded and one being read, take little memory.
const (
	sliceEvents = 1000
	sliceBytes  = 4 << 20
)

// read passes a stream's events from version from up to upTo (0: the newest) to each, slice by slice. It reads the next
// slice while each works on the last one. floor is the stream's, as of after the reading.
func (s *States) read(ctx context.Context, tenant domain.TenantID, stream string, from, upTo int64, each func([]domain.Event) error) (floor int64, err error) {
	if upTo > 0 && from > upTo {
		return 0, nil
	}
	fold := func(events []domain.Event) error {
		return budget.Work(ctx, func() error { return each(events) })
	}
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	type slice struct {
		domain.StreamSlice
		err error
	}
	read := func(from int64) slice {
		found, err := s.events.StreamSlice(reading, tenant, stream, domain.StreamQuery{From: from, To: upTo, Limit: sliceEvents, MaxBytes: sliceBytes})
		return slice{found, err}
	}
	got := read(from)
	for {
		if got.err != nil {
			return 0, why(ctx, got.err)
		}
		next, more := behind(got.Events, upTo)
		if !more {
			return got.Floor, fold(got.Events)
		}
		ahead := make(chan slice, 1)
		go func() { ahead <- read(next) }()
		err := fold(got.Events)
		if err != nil {
			cancel()
		}
		got = <-ahead // wait even after an error, so that nothing keeps running
		if err != nil {
			return 0, err
		}
	}
}

// why returns ctx's cause if ctx has ended, and otherwise err.
func why(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// behind returns the version after a slice, and whether there may be events at it. A slice ends before its limits only
// at the end of the stream. Bytes are counted generously, since an empty read costs less than a missed event.
func behind(events []domain.Event, upTo int64) (next int64, more bool) {
	if len(events) == 0 {
		return 0, false
	}
	next = events[len(events)-1].Version + 1
	if upTo > 0 && next > upTo {
		return next, false
	}
	bytes := 0
	for _, event := range events {
		bytes += len(event.Data) + len(event.Metadata)
	}
	return next, len(events) >= sliceEvents || bytes >= sliceBytes/2
}
