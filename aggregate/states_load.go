package aggregate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// load folds a stream up to a version (0: the newest), or up to a moment. It starts from the snapshot, one of version 0
// means that there is none; nil: load reads the newest. If events are missing, the error is domain.CodeEventsRemoved,
// unless the loss is accepted.
func (s *States) load(ctx context.Context, tenant domain.TenantID, stream string, f *fold, snapshot *Snapshot, at At) (State, error) {
	l := loading{States: s, tenant: tenant, fold: f, at: at, snapshot: snapshot, loaded: newState(stream, f)}
	lossy := l
	lossy.lossy, lossy.snapshot = true, nil
	state, err := l.run(ctx)
	if domain.IsCode(err, domain.CodeEventsRemoved) && at.AcceptLoss {
		return lossy.run(ctx)
	}
	return state, err
}

// newState returns the state of a stream of which nothing is folded yet.
func newState(stream string, f *fold) State {
	return State{Stream: stream, tag: f.tag, snapshotEvery: int64(f.snapshotEvery)}
}

// loading is a load in progress.
type loading struct {
	*States
	tenant   domain.TenantID
	fold     *fold
	at       At
	snapshot *Snapshot // the one to start from; Version 0: none; nil: not read yet
	lossy    bool      // also start from a snapshot with missing events, and skip missing events

	state    *expr.Object
	decoded  bool // state is set
	loaded   State
	happened int64 // with At.OccurredAt: the version of the last event that had happened

	lastRung int64 // with At.rungs: the version of the newest snapshot
	nextRung int64 // with At.rungs: the version at which to look whether another one is due
}

func (l *loading) run(ctx context.Context) (State, error) {
	if err := l.begin(ctx); err != nil {
		return State{}, err
	}
	floor, err := l.read(ctx, l.tenant, l.loaded.Stream, l.loaded.Version+1, l.at.Version, func(events []domain.Event, last bool) error {
		err := budget.Work(ctx, func() error { return l.foldSlice(expr.MeterOf(ctx), events, last) })
		if err != nil || last {
			return err
		}
		return l.storeRungs(ctx)
	})
	if errors.Is(err, errTimeLimit) {
		l.loaded.partial, floor = true, 0
		err = budget.Work(ctx, l.encode)
	}
	if err == nil {
		err = l.checkEnd(ctx, floor)
	}
	if err != nil {
		if ctx.Err() == nil { // the next fold gets further
			err = errors.Join(err, l.storeRungs(ctx))
		}
		return State{}, err
	}
	return l.loaded, nil
}

// begin finds the newest suitable snapshot. The events of a snapshot may have happened at any time, so no snapshot
// suits a moment of occurrence.
func (l *loading) begin(ctx context.Context) error {
	if l.decoded {
		return nil
	}
	if !l.at.OccurredAt.IsZero() {
		l.snapshot = &Snapshot{}
	}
	if l.snapshot == nil {
		found, _, err := l.store.Snapshot(ctx, l.tenant, l.loaded.Stream, l.fold.tag, l.at.Version, l.lossy)
		if err != nil {
			return err
		}
		l.snapshot = &found
	}
	l.loaded.Snapshot, l.loaded.Version, l.loaded.RemovedTo = l.snapshot.Version, l.snapshot.Version, l.snapshot.RemovedTo
	l.lastRung = l.snapshot.Version
	return nil
}

// decode makes the snapshot's state, or else the initial one, the first state.
func (l *loading) decode() (err error) {
	if l.snapshot.Version == 0 {
		l.state = l.fold.initial
		return nil
	}
	if l.state, err = decode(l.snapshot.State); err != nil {
		return fmt.Errorf("the snapshot of %s at version %d: %w", l.loaded.Stream, l.snapshot.Version, err)
	}
	return nil
}

// encode writes the state, even one that comes from a snapshot unchanged: equal states give equal bytes.
func (l *loading) encode() (err error) {
	l.loaded.object = l.state
	l.loaded.Data, err = encode(l.state)
	if errors.Is(err, expr.ErrTooLarge) {
		return domain.Errorf(domain.CodeFaulted, "state", "the state of %s at version %d cannot be kept: %s", l.loaded.Stream, l.loaded.Version, err)
	}
	if err != nil {
		return fmt.Errorf("write the state of %s: %w", l.loaded.Stream, err)
	}
	return nil
}

// foldSlice folds the next events into the state. The first slice begins with decoding and the last one ends with
// encoding, so that a request that reads few events waits for one turn only.
func (l *loading) foldSlice(meter *expr.Meter, events []domain.Event, last bool) error {
	if !l.decoded {
		if err := l.decode(); err != nil {
			return err
		}
		l.decoded = true
	}
	for _, event := range events {
		if !meter.SpendBytes(len(event.Data) + len(event.Metadata)) {
			return nil // Work returns the reason
		}
		if !l.at.until.IsZero() && l.loaded.Version > l.loaded.Snapshot && time.Now().After(l.at.until) {
			return errTimeLimit
		}
		if event.Version != l.loaded.Version+1 {
			if err := l.skipMissing(event.Version - 1); err != nil {
				return err
			}
		}
		l.loaded.Version, l.loaded.last = event.Version, event.ID
		if !l.at.OccurredAt.IsZero() && happenedAt(&event).After(l.at.OccurredAt) {
			continue
		}
		l.happened = event.Version
		if err := l.foldEvent(meter, event); err != nil {
			return err
		}
		if l.at.rungs {
			if err := l.collectRung(meter); err != nil {
				return err
			}
		}
	}
	l.loaded.EventsRead += len(events)
	if last {
		return l.encode()
	}
	return nil
}

func (l *loading) foldEvent(meter *expr.Meter, event domain.Event) (err error) {
	switch {
	case event.Gap == nil:
		l.state, err = l.fold.next(meter, l.state, &event)
	case !l.lossy:
		err = withoutData(event)
	default:
		l.loaded.RemovedTo = event.Version
	}
	return err
}

// skipMissing handles missing events after the loaded version, up to another version.
func (l *loading) skipMissing(upTo int64) error {
	if !l.lossy {
		return removed(l.loaded.Stream, l.loaded.Version+1, upTo)
	}
	l.loaded.RemovedTo = upTo
	return nil
}

// checkEnd completes the version after all events were folded, or returns why there is no such state. The last events
// may be missing as well: the stream's floor, or later events, show that.
func (l *loading) checkEnd(ctx context.Context, floor int64) error {
	version, stream := l.at.Version, l.loaded.Stream
	if version > l.loaded.Version {
		newest, err := l.events.StreamSlice(ctx, l.tenant, stream, domain.StreamQuery{Limit: 1, Direction: domain.Backward})
		if err != nil {
			return err
		}
		floor = min(newest.Version(), version)
	}
	if floor > l.loaded.Version && (version == 0 || floor == version) {
		if err := l.skipMissing(floor); err != nil {
			return err
		}
		l.loaded.Version = floor
	}
	byOccurrence := !l.at.OccurredAt.IsZero()
	switch {
	case l.loaded.Version == 0 && !l.at.orNew:
		return domain.Errorf(domain.CodeNotFound, "stream", "there is no stream %s", stream)
	case byOccurrence && l.happened == 0 && l.loaded.RemovedTo == 0:
		return domain.Errorf(domain.CodeNotFound, "occurredAt", "no event of stream %s had happened at %s", stream, l.at.OccurredAt.Format(time.RFC3339Nano))
	case version > l.loaded.Version:
		return domain.Errorf(domain.CodeNotFound, "version", "stream %s is at version %d; it has no version %d", stream, max(l.loaded.Version, floor), version)
	case byOccurrence:
		l.loaded.Version = max(l.happened, l.loaded.RemovedTo)
	}
	return nil
}

// happenedAt returns when an event happened: by default, when it was recorded.
func happenedAt(event *domain.Event) time.Time {
	if event.OccurredAt.IsZero() {
		return event.RecordedAt
	}
	return event.OccurredAt
}

// errTimeLimit ends a load that has reached its time limit.
var errTimeLimit = errors.New("fold: time limit reached")

// removed returns the error for removed events of a stream, of the versions from through to.
func removed(stream string, from, to int64) error {
	which := fmt.Sprintf("events %d to %d of %s are", from, to, stream)
	if from == to {
		which = fmt.Sprintf("event %d of %s is", from, stream)
	}
	return domain.Errorf(domain.CodeEventsRemoved, "", "%s no longer in the log, and there is no snapshot after that; with acceptLoss the state is folded from the remaining events", which)
}

// withoutData returns the error for an event that exists in the stream but whose data is withheld.
func withoutData(event domain.Event) error {
	return domain.Errorf(domain.CodeEventsRemoved, "", "event %d of %s is %s: %s; with acceptLoss the state is folded from the remaining events",
		event.Version, event.Stream, event.Gap.Reason, event.Gap.Message)
}

// Limits of one read: two slices, one being folded and one being read, take little memory.
const (
	sliceEvents = 1000
	sliceBytes  = 4 << 20
)

// read passes a stream's events from version from up to upTo (0: the newest) to each, slice by slice; the last slice
// may be empty. It reads the next slice while each works on the last one. floor is the stream's floor after the last
// read.
func (s *States) read(ctx context.Context, tenant domain.TenantID, stream string, from, upTo int64, each func(events []domain.Event, last bool) error) (floor int64, err error) {
	if upTo > 0 && from > upTo {
		return 0, each(nil, true)
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
			return 0, budget.Cause(ctx, got.err)
		}
		next, more := nextVersion(got.Events, upTo, sliceEvents, sliceBytes)
		if !more {
			return got.Floor, each(got.Events, true)
		}
		ahead := make(chan slice, 1)
		go func() { ahead <- read(next) }()
		err := each(got.Events, false)
		if err != nil {
			cancel()
		}
		got = <-ahead // wait even after an error, so that nothing keeps running
		if err != nil {
			return 0, err
		}
	}
}

// nextVersion returns the version after a slice, and whether there may be events at it. A slice ends before its limits,
// maxEvents and maxBytes, only at the end of the stream. Bytes are counted generously, since an empty read costs less
// than a missed event.
func nextVersion(events []domain.Event, upTo int64, maxEvents, maxBytes int) (next int64, more bool) {
	if len(events) == 0 {
		return 0, false
	}
	next = events[len(events)-1].Version + 1
	if upTo > 0 && next > upTo {
		return next, false
	}
	bytes := 0
	for i := range events {
		bytes += events[i].Bytes()
	}
	return next, len(events) >= maxEvents || bytes >= maxBytes/2
}
