package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// Store is where events, definitions and snapshots are kept.
type Store interface {
	StreamSlice(ctx context.Context, tenant domain.TenantID, stream string, query domain.StreamQuery) (domain.StreamSlice, error)
	VersionAt(ctx context.Context, tenant domain.TenantID, stream string, at time.Time) (int64, error)
	PositionAt(ctx context.Context, tenant domain.TenantID, at time.Time) (int64, error)
	Heads(ctx context.Context, since time.Time) ([]domain.Head, error)

	PutAggregate(ctx context.Context, tenant domain.TenantID, aggregate domain.Aggregate) error
	Aggregate(ctx context.Context, tenant domain.TenantID, category string) (domain.Aggregate, error)
	Aggregates(ctx context.Context, tenant domain.TenantID) ([]domain.Aggregate, error)
	DeleteAggregate(ctx context.Context, tenant domain.TenantID, category string) error

	PutSnapshot(ctx context.Context, tenant domain.TenantID, snapshot domain.Snapshot) error
	Snapshot(ctx context.Context, tenant domain.TenantID, stream, tag string, atMost int64, lossy bool) (domain.Snapshot, bool, error)
	LatestSnapshot(ctx context.Context, tenant domain.TenantID, stream string) (domain.Snapshot, bool, error)
	UnsnapshottedStreams(ctx context.Context, tenant domain.TenantID, category, tag string, behind, after, upTo int64) (streams []string, seen int64, err error)
}

// Config says what States work with. All but Store and Log may be zero.
type Config struct {
	Store     Store
	Upcasters *upcasting.Upcasters // nil: events are folded as they are in the log
	Log       *slog.Logger
	Workers   int           // snapshots taken at once; 0: 2
	Waiting   int           // streams that may wait for a snapshot, those beyond are left to the sweep; 0: 10,000
	Sweep     time.Duration // between two sweeps; 0: a day
}

// States loads states and keeps snapshots. All methods may be called concurrently.
type States struct {
	store     Store
	upcasters *upcasting.Upcasters
	log       *slog.Logger
	sweep     time.Duration
	taker     *taker
	renewals  chan categoryKey               // categories whose snapshots are to be taken anew
	folds     *lru.Cache[categoryKey, *fold] // compiled definitions; one counts while its tag is that of the kept definition
}

// categoryKey names a tenant's category.
type categoryKey struct {
	tenant   domain.TenantID
	category string
}

// foldsKept is how many compiled definitions are remembered.
const foldsKept = 1000

// New returns States. Snapshots are taken while Run runs.
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
	s := &States{
		store: config.Store, upcasters: config.Upcasters, log: config.Log, sweep: config.Sweep,
		renewals: make(chan categoryKey, renewalsWaiting),
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

// At says of when a state is wanted: now where both are zero, else at a version or at a moment, of which one is given; and
// whether it may lack events that retention has removed.
type At struct {
	Version    int64     // after the stream's event of this version
	Time       time.Time // after the newest event recorded at or before it
	AcceptLoss bool      // fold what is left, where no snapshot stands for what is gone
}

// State is what a stream's events amount to.
type State struct {
	Stream     string
	Version    int64           // of the last event in it
	Data       json.RawMessage // a JSON object, or null where the last event's expression gave null
	Snapshot   int64           // the version of the snapshot that it was folded on from; 0: from the first event
	EventsRead int             // events read behind the snapshot
	RemovedTo  int64           // the highest version that is missing in it, with At.AcceptLoss; 0: none is

	tag string
}

// Load returns a stream's state. Without a definition of the category, without the stream, and for a version or moment
// that it did not have yet, it is domain.CodeNotFound; an event that cannot be folded is domain.CodeFaulted. Where retention has
// removed events for which no snapshot stands, it is domain.CodeEventsRemoved.
func (s *States) Load(ctx context.Context, tenant domain.TenantID, stream string, at At) (State, error) {
	if err := domain.CheckStream("stream", stream); err != nil {
		return State{}, err
	}
	switch {
	case at.Version < 0:
		return State{}, domain.Errorf(domain.CodeInvalidRequest, "version", "%d is not a version; the first is 1", at.Version)
	case at.Version > 0 && !at.Time.IsZero():
		return State{}, domain.Errorf(domain.CodeInvalidRequest, "at", "give a version or a moment, not both")
	}
	f, _, err := s.fold(ctx, tenant, domain.Category(stream))
	if err != nil {
		return State{}, err
	}
	if !at.Time.IsZero() {
		if at.Version, err = s.store.VersionAt(ctx, tenant, stream, at.Time); err != nil {
			return State{}, err
		}
		if at.Version == 0 {
			return State{}, s.noVersionAt(ctx, tenant, stream, at.Time)
		}
	}
	return s.load(ctx, tenant, stream, f, at.Version, at.AcceptLoss)
}

// noVersionAt says why a stream has no version at a moment.
func (s *States) noVersionAt(ctx context.Context, tenant domain.TenantID, stream string, at time.Time) error {
	slice, err := s.store.StreamSlice(ctx, tenant, stream, domain.StreamQuery{Limit: 1, Direction: domain.Backward})
	if err != nil {
		return err
	}
	if len(slice.Events) == 0 && slice.Floor > 0 {
		return domain.Errorf(domain.CodeEventsRemoved, "at", "no event of %s is left in the log, so nobody knows what version it had at %s; ask for one by its number",
			stream, at.Format(time.RFC3339Nano))
	}
	return domain.Errorf(domain.CodeNotFound, "at", "stream %s had no event at %s", stream, at.Format(time.RFC3339Nano))
}

// fold returns a category's definition as it is kept now, and compiled, with the upcasters that are in force now.
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
	f, err := compile(definition, upcasters)
	if err != nil {
		return nil, domain.Aggregate{}, err
	}
	s.folds.Add(key, f)
	return f, definition, nil
}

// load folds a stream up to a version; 0: the newest. Where events are missing it is domain.CodeEventsRemoved, unless that is
// accepted.
func (s *States) load(ctx context.Context, tenant domain.TenantID, stream string, f *fold, version int64, acceptLoss bool) (State, error) {
	state, err := s.loadFrom(ctx, tenant, stream, f, version, false)
	if problem, ok := errors.AsType[*domain.Error](err); ok && problem.Code == domain.CodeEventsRemoved && acceptLoss {
		return s.loadFrom(ctx, tenant, stream, f, version, true)
	}
	return state, err
}

// loadFrom is load from the newest snapshot that fits: from one in which events may be missing, and over missing events, if lossy.
func (s *States) loadFrom(ctx context.Context, tenant domain.TenantID, stream string, f *fold, version int64, lossy bool) (State, error) {
	var state *expr.Object
	loaded := State{Stream: stream, tag: f.tag}
	snapshot, ok, err := s.store.Snapshot(ctx, tenant, stream, f.tag, version, lossy)
	if err != nil {
		return State{}, err
	}
	if ok {
		if state, err = decode(snapshot.State); err != nil {
			return State{}, fmt.Errorf("the snapshot of %s at version %d: %w", stream, snapshot.Version, err)
		}
		loaded.Snapshot, loaded.Version, loaded.RemovedTo = snapshot.Version, snapshot.Version, snapshot.RemovedTo
	} else {
		state = f.initial
	}
	// miss goes over what is missing behind the version that is loaded, up to another one.
	miss := func(upTo int64) error {
		if !lossy {
			return removed(stream, loaded.Version+1, upTo)
		}
		loaded.RemovedTo = upTo
		return nil
	}
	floor, err := s.read(ctx, tenant, stream, loaded.Version+1, version, func(events []domain.Event) error {
		for _, event := range events {
			if event.Version != loaded.Version+1 {
				if err := miss(event.Version - 1); err != nil {
					return err
				}
			}
			if state, err = f.next(state, event); err != nil {
				return err
			}
			loaded.Version = event.Version
		}
		loaded.EventsRead += len(events)
		return nil
	})
	if err != nil {
		return State{}, err
	}
	// The last events may be gone as well: the stream's floor tells it, or that there are others behind them.
	if version > loaded.Version {
		newest, err := s.store.StreamSlice(ctx, tenant, stream, domain.StreamQuery{Limit: 1, Direction: domain.Backward})
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
	case version > loaded.Version:
		return State{}, domain.Errorf(domain.CodeNotFound, "version", "stream %s is at version %d; it has no version %d", stream, max(loaded.Version, floor), version)
	}
	// Also what comes from a snapshot unchanged is written anew: equal states give equal bytes.
	if loaded.Data, err = encode(state); err != nil {
		return State{}, fmt.Errorf("write the state of %s: %w", stream, err)
	}
	return loaded, nil
}

// removed says that events of a stream are gone, of the versions from and to and between.
func removed(stream string, from, to int64) error {
	which := fmt.Sprintf("events %d to %d of %s are", from, to, stream)
	if from == to {
		which = fmt.Sprintf("event %d of %s is", from, stream)
	}
	return domain.Errorf(domain.CodeEventsRemoved, "", "%s no longer in the log, and no snapshot stands for what is gone; with acceptLoss the state is made of what is left", which)
}

// What is read at once: few enough events that two slices, one being folded and one being read, are little memory.
const (
	sliceEvents = 1000
	sliceBytes  = 4 << 20
)

// read hands a stream's events of the versions from to upTo (0: the newest) to each, slice by slice. The next slice is
// read while the last one is at work. floor is the stream's, as of behind the reading.
func (s *States) read(ctx context.Context, tenant domain.TenantID, stream string, from, upTo int64, each func([]domain.Event) error) (floor int64, err error) {
	if upTo > 0 && from > upTo {
		return 0, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type slice struct {
		domain.StreamSlice
		err error
	}
	read := func(from int64) slice {
		found, err := s.store.StreamSlice(ctx, tenant, stream, domain.StreamQuery{From: from, To: upTo, Limit: sliceEvents, MaxBytes: sliceBytes})
		return slice{found, err}
	}
	got := read(from)
	for {
		if got.err != nil {
			return 0, got.err
		}
		next, more := behind(got.Events, upTo)
		if !more {
			return got.Floor, each(got.Events)
		}
		ahead := make(chan slice, 1)
		go func() { ahead <- read(next) }()
		err := each(got.Events)
		if err != nil {
			cancel()
		}
		got = <-ahead // also after an error: nothing is left running
		if err != nil {
			return 0, err
		}
	}
}

// behind returns the version behind a slice, and whether there may be events at it. A slice ends before its limits only
// where the stream does; bytes are counted generously, since an empty read costs less than an event passed over.
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
