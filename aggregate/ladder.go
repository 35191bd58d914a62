package aggregate

import (
	"context"
	"errors"
	"fmt"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// nextRung returns the version at which a fold of many events leaves a snapshot on its way, if its last one is at the
// version last (0: none): the first multiple of every in a later rung of that many versions. Had the stream been folded
// while it grew, it would have this snapshot, too.
func nextRung(last, rung, every int64) int64 {
	beginsAfter := (max(last, 1)-1)/rung*rung + rung
	return (beginsAfter/every + 1) * every
}

// passesRungs reports whether a fold that begins at a version leaves out a snapshot between that and the newest one.
func (f *fold) passesRungs(newest, version int64, state *expr.Object) bool {
	every := int64(f.snapshotEvery)
	return version >= nextRung(newest, rung(f.tag, expr.Size(value(state))), every)+every
}

// collectRung adds the state to the snapshots that the fold leaves on its way if the next rung is reached. The rungs
// of large states are longer.
func (l *loading) collectRung(meter *expr.Meter) error {
	if l.loaded.Version < l.nextRung {
		return nil
	}
	size := expr.Size(value(l.state))
	rung, every := rung(l.fold.tag, size), int64(l.fold.snapshotEvery)
	l.nextRung = nextRung(l.lastRung, rung, every)
	if l.loaded.Version < l.nextRung || !meter.SpendBytes(size) {
		return nil
	}
	state, err := encode(l.state)
	if errors.Is(err, expr.ErrTooLarge) {
		l.lastRung = l.loaded.Version // not at the next event again: writing a large state takes long
		l.nextRung = nextRung(l.lastRung, rung, every)
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the state of %s: %w", l.loaded.Stream, err)
	}
	l.loaded.rungs = append(l.loaded.rungs, Snapshot{
		Stream: l.loaded.Stream, Version: l.loaded.Version, Tag: l.fold.tag, State: state, RemovedTo: l.loaded.RemovedTo,
	})
	l.lastRung = l.loaded.Version
	l.nextRung = nextRung(l.lastRung, rung, every)
	return nil
}

// storeRungs stores the collected snapshots, so that memory does not grow with the stream, and so that a process that
// continues after this one starts from them.
func (l *loading) storeRungs(ctx context.Context) error {
	rungs := l.loaded.rungs
	if len(rungs) == 0 {
		return nil
	}
	l.loaded.rungs = nil
	return l.storeSnapshots(ctx, l.tenant, l.loaded, rungs)
}

// storeState stores a state as a snapshot, with those that its fold has left on the way and not yet stored. It does not
// store the last of these if it is hardly older: the snapshot of the state takes its place then.
func (s *States) storeState(ctx context.Context, tenant domain.TenantID, state State) error {
	snapshots := state.rungs
	if n := len(snapshots); n > 0 && state.Version-snapshots[n-1].Version < state.snapshotEvery {
		snapshots = snapshots[:n-1]
	}
	return s.storeSnapshots(ctx, tenant, state, append(snapshots, state.snapshot()))
}

// storeSnapshots stores snapshots from the fold of a state. If the definition has changed meanwhile, storeSnapshots
// keeps the snapshots of the new one, which it would delete, and returns errDefinitionChanged.
func (s *States) storeSnapshots(ctx context.Context, tenant domain.TenantID, state State, snapshots []Snapshot) error {
	current, err := s.fold(ctx, tenant, domain.Category(state.Stream))
	if err != nil {
		return err
	}
	if current.tag != state.tag {
		return errDefinitionChanged
	}
	if err := s.store.PutSnapshots(ctx, tenant, snapshots...); err != nil {
		return fmt.Errorf("save snapshots: %w", err)
	}
	return nil
}

// errDefinitionChanged ends a fold whose snapshots are no longer needed.
var errDefinitionChanged = domain.Errorf(domain.CodeUnavailable, "", "the aggregate's definition, or an upcaster, has changed while the state was folded; try again")
