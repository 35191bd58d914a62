package projection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// work folds until the turn ends, or returns an error.
func (t *turn) work(ctx context.Context) (turnEnd, error) {
	fold, end, err := t.findFold(ctx)
	if err != nil || end != turnUnderWay {
		return end, err
	}
	replay, err := t.replay(fold)
	if err != nil {
		return turnUnderWay, err
	}
	defer t.remember(replay)
	if err := replay.readCheckpoint(ctx); err != nil {
		return turnUnderWay, err
	}
	end, err = t.foldBatches(ctx, replay)
	// Save what was folded before the turn ended. The end counts more than whether this succeeds.
	if saveErr := replay.flush(ctx); err == nil && end == turnCaughtUp {
		err = saveErr
	}
	if err != nil || end != turnCaughtUp {
		return end, err
	}
	if err := replay.saveCheckpoint(ctx); err != nil {
		return turnUnderWay, err
	}
	begun, err := t.beginInline(ctx, replay)
	if begun {
		return turnInline, err
	}
	return turnCaughtUp, err
}

// foldBatches folds batch by batch until the turn ends, or returns an error. It reads the next batch while it folds one
// and saves another.
func (t *turn) foldBatches(ctx context.Context, replay *Replay) (turnEnd, error) {
	p := t.pair
	reading, stop := context.WithCancel(ctx)
	defer stop()
	read := func(ctx context.Context, q domain.LogQuery) (domain.Reading, error) {
		return t.config.Store.ReadFor(ctx, p.tenant.id, p.followed.id, q)
	}
	limits, ahead := t.limits(replay)
	began := time.Now()
	for next := replay.fetch(reading, read, replay.at.seen+1, 0, limits); ; {
		batch, err := next.wait()
		if err != nil {
			return turnUnderWay, err
		}
		if end := endForReading(batch.reading, p.build); end != turnUnderWay {
			return end, nil
		}
		if head := batch.reading.Head; head > 0 && head < replay.at.seen {
			return t.endWentBack(ctx, replay, head)
		}
		if err := t.recordLosses(ctx, replay.Fold, batch.from, batch.reading.RemovedTo); err != nil {
			return turnUnderWay, err
		}
		arrived := time.Now()
		replay.recordEventSize(batch)
		paced, continues := batch.more && t.isPaced(batch), batch.more && !t.retriesFault && !t.pairsWait()
		if next = nil; continues && !paced {
			// Read the next batch and compute its keys while this one is folded and saved.
			next = replay.fetch(reading, read, batch.upTo+1, 0, ahead)
		}
		t.events, t.documents = 0, 0
		if continues {
			// Its results may be saved together with those of the next batch; endForReading explains why that is as
			// safe.
			err = replay.foldReading(ctx, batch)
		} else {
			err = replay.foldLastReading(ctx, batch)
		}
		if err == nil && paced {
			err = replay.awaitSave() // nothing runs during a pause
		}
		t.reportBatch(batch, time.Since(arrived))
		t.traceBatch(batch, arrived, err)
		if err == nil {
			t.heard = time.Now()
		}
		if err == nil && !p.faultChecked {
			p.faultChecked, err = t.clearOldFault(ctx, replay.at.seen)
		}
		switch {
		case err != nil:
			if next != nil {
				stop()
				<-next.done
			}
			return turnUnderWay, err
		case next != nil:
			began = time.Now()
			continue
		case paced:
			t.recordPause(batch, time.Since(began))
			if !t.sleep(ctx, replay) {
				return turnMore, nil
			}
			began = time.Now()
			next = replay.fetch(reading, read, batch.upTo+1, 0, ahead.paced())
			continue
		case batch.more:
			return turnMore, nil
		}
		t.seen = batch.reading.Head
		return turnCaughtUp, nil
	}
}

// endWentBack ends a turn that remembers more of the log than there is up to its head: events were lost. If the
// documents contain them, too, the build must be made again.
func (t *turn) endWentBack(ctx context.Context, replay *Replay, head int64) (turnEnd, error) {
	replay.at.known = false
	checkpoint, err := replay.Driver.Checkpoint(ctx, replay.Build, replay.Tenant)
	if err != nil {
		return turnUnderWay, err
	}
	if checkpoint <= head {
		return turnMore, nil // the documents have gone back together with the log
	}
	return turnUnderWay, fmt.Errorf("the checkpoint %d is after the log's head %d: %w; the database was restored, or has failed over to a replica without its newest events",
		checkpoint, head, errAhead)
}

// remember keeps for the pair's next turn what the replay knows.
func (t *turn) remember(replay *Replay) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pair
	p.at, p.documentBytes, p.eventBytes, p.exclusions = replay.at, int32(replay.documentBytes), int32(replay.eventBytes), replay.exclusions
}

// findFold returns the fold of the live build, unless the turn ends before it folds anything.
func (t *turn) findFold(ctx context.Context) (*folding.Fold, turnEnd, error) {
	fold, replaced, err := t.folds.get(ctx, t.pair.tenant.id, t.pair.followed.id, t.build)
	switch {
	case domain.IsCode(err, domain.CodeNotFound):
		return nil, turnGone, nil
	case domain.IsCode(err, domain.CodeInvalidDefinition):
		// It compiled once: this program interprets it differently, or lacks a handler. Only a change can fix that.
		return nil, turnUnderWay, &folding.EventError{Event: domain.Event{Position: t.pair.at.seen + 1}, Where: "definition", Err: err}
	case err != nil:
		return nil, turnUnderWay, err
	case replaced != nil:
		return nil, turnReplaced, nil
	case fold.Definition().Mode == domain.ModeLive:
		return nil, turnInline, nil // it is folded on request: nothing is stored that could lag
	}
	return fold, turnUnderWay, nil
}

// replay returns a Replay that continues where the pair's last turn has ended.
func (t *turn) replay(fold *folding.Fold) (*Replay, error) {
	p := t.pair
	driver := t.config.Drivers[t.build.database]
	if driver == nil {
		return nil, fmt.Errorf("there is no database %q in this process's configuration", t.build.database)
	}
	build := domain.Projection{ProjectionID: p.followed.id, Definition: fold.Definition(), Build: t.build.number}
	return &Replay{
		Driver: driver, Build: build.LiveBuild(), Tenant: p.tenant.id, Fold: fold, Limits: t.config.CatchUp,
		Folded: func(events, documents int) {
			t.events, t.documents = t.events+events, t.documents+documents
			if documents > 0 {
				p.overtaken, p.unchecked = 0, true
			}
		},
		Registry: t.config.Store.Registry, Version: t.build.version,
		at: p.at, documentBytes: int(p.documentBytes), eventBytes: int(p.eventBytes), exclusions: p.exclusions,
	}, nil
}

// limits returns the limits of the first reading and of later ones, and sets those of the replay.
func (t *turn) limits(replay *Replay) (first, later Limits) {
	first, later = followLimits, t.config.CatchUp
	if t.retriesFault {
		first.Events = 1
		return first, later
	}
	if t.head-replay.at.seen > 2*int64(first.Events) {
		first = t.config.CatchUp
	}
	if t.pair.failures > 0 {
		// The batch may have been more than the database can handle within its time limit.
		first = first.after(int(t.pair.failures))
		later, replay.Limits = first, first
	}
	return first, later
}

// endForReading returns how a reading ends the turn; turnUnderWay: its results may be saved into the build.
//
// This is the worker's part of the swap (docs/decisions/0002-swap-by-hold.md). A reading takes the log's head first,
// then the events, then the projection's row. So if the row was not held, the hold was placed after the events were
// read. A reader of the heads that comes after the hold sees heads at or above those events. So whatever a worker can
// still save, however late, is within the heads that the new build catches up to before it is swapped in.
func endForReading(reading domain.Reading, build int64) turnEnd {
	switch {
	case !reading.Found:
		return turnGone
	case reading.Build != build:
		return turnReplaced
	case reading.Inline:
		return turnInline
	case reading.Held:
		return turnHeld
	}
	return turnUnderWay
}

// pairsWait reports whether another pair would get a turn if this one's ended now.
func (t *turn) pairsWait() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pair.gone || t.pair.pool.ready.wouldRun(t.pair.tenant)
}

// checkTableLost distinguishes a live build whose table has vanished, which is the error errTableLost, from a build
// that was replaced and dropped during the turn.
func (t *turn) checkTableLost(ctx context.Context, noTable error) (turnEnd, error) {
	p := t.pair
	now, err := t.config.Store.LiveProjection(ctx, p.tenant.id, p.followed.id)
	switch {
	case domain.IsCode(err, domain.CodeNotFound):
		return turnGone, nil
	case err != nil:
		return turnUnderWay, err
	case now.Build != p.build:
		t.applyLive(p, &now)
		return turnReplaced, nil
	}
	return turnUnderWay, fmt.Errorf("%w: %w", errTableLost, noTable)
}

// lossesOf returns what a fold misses that continues at a position.
func lossesOf(floors []domain.RetentionFloor, from int64) []domain.Loss {
	var losses []domain.Loss
	for _, floor := range floors {
		if floor.RemovedTo >= from {
			losses = append(losses, domain.Loss{Category: floor.Category, RemovedTo: floor.RemovedTo})
		}
	}
	return domain.MergeLosses(nil, losses)
}

// recordLosses records the losses of a pair's build that has read its log from position from on, for each category that
// has new ones. removedTo is the highest position removed at or after from; 0: none. In some categories less may be
// removed.
func (t *turn) recordLosses(ctx context.Context, fold *folding.Fold, from, removedTo int64) error {
	p := t.pair
	if removedTo == 0 {
		p.recordedLosses = nil
		return nil
	}
	floors, err := t.config.Store.Floors(ctx, p.tenant.id, fold.Definition().Source.Categories, from)
	if err != nil {
		return err
	}
	losses := slices.DeleteFunc(lossesOf(floors, from), func(l domain.Loss) bool { return l.RemovedTo <= p.recordedLosses[l.Category] })
	if len(losses) == 0 {
		return nil
	}
	if err := t.config.Store.PutLosses(ctx, p.tenant.id, p.followed.id, p.build, losses); err != nil {
		return err
	}
	if p.recordedLosses == nil {
		p.recordedLosses = make(map[string]int64, len(losses))
	}
	for _, loss := range losses {
		p.recordedLosses[loss.Category] = loss.RemovedTo
	}
	t.config.Log.Warn("retention has removed events that a projection had not folded: its documents lack them", "projection", p.followed.id.Name,
		"tenant", p.tenant.id.String(), "build", p.build, "from", from, "removedTo", removedTo)
	return nil
}

// beginInline makes appends take over the build of a turn that has caught up, if its projection is inline. begun
// reports whether they have.
func (t *turn) beginInline(ctx context.Context, replay *Replay) (begun bool, err error) {
	if t.config.Inline == nil || replay.Fold.Definition().Mode != domain.ModeInline {
		return false, nil
	}
	return t.config.Inline.Begin(ctx, replay.Tenant, replay.Build, replay.Fold)
}

// reportBatch reports a batch to waiting readers and to the observer, and records the head that it was read at.
func (t *turn) reportBatch(batch *prepared, took time.Duration) {
	p := t.pair
	t.config.Progress.wake(p.followed.id, p.tenant.id)
	t.Wake(domain.Head{Tenant: p.tenant.id, Position: batch.reading.Head})
	if t.config.Observer.Batch == nil || len(batch.events) == 0 || t.events == 0 {
		return
	}
	t.config.Observer.Batch(BatchInfo{
		Projection: p.followed.id, Tenant: p.tenant.id, Events: t.events, Documents: t.documents, Took: took,
		Lag: max(0, time.Since(batch.events[len(batch.events)-1].RecordedAt)),
	})
}

// traceBatch records the folding of a batch that arrived at the given time, with the outcome err. The span belongs to
// the first traced event, and links to the traces of the others.
func (t *turn) traceBatch(batch *prepared, arrived time.Time, err error) {
	if t.config.Tracer == nil {
		return
	}
	of := tracing.Sampled(len(batch.events), func(i int) json.RawMessage {
		if batch.keys[i] == "" {
			return nil
		}
		return batch.events[i].Metadata
	})
	p := t.pair
	span := t.config.Tracer.Record(of, arrived, "fold", tracing.Tenant(p.tenant.id), attribute.String("manifold.projection", p.followed.id.Name),
		attribute.Int64("manifold.build", p.build), attribute.Int("manifold.events", len(batch.events)))
	if _, faulted := errors.AsType[*folding.EventError](err); faulted {
		span.Fail("fault")
		err = nil
	}
	span.End(err)
}

// putFault stores the event at which the projection has stopped. It reports and logs a fault, but not each retry of it.
func (t *turn) putFault(ctx context.Context, met error) error {
	p := t.pair
	e, _ := errors.AsType[*folding.EventError](met)
	fault := domain.Fault{
		ProjectionID: p.followed.id, Tenant: p.tenant.id, Build: p.build,
		Position: e.Event.Position, EventID: e.Event.ID, Failure: e.Failure(),
	}
	retries, wait, err := t.config.Store.PutFault(ctx, fault, t.config.Retries)
	if err != nil {
		return fmt.Errorf("keep the fault of projection %q: %w", p.followed.id.Name, err)
	}
	t.retryAfter, p.faultChecked = wait, false
	t.config.Progress.wake(p.followed.id, p.tenant.id)
	if t.retriesFault && retries > 0 {
		t.config.Log.Debug("a projection still cannot fold an event", "projection", fault.Name, "tenant", fault.Tenant.String(),
			"build", fault.Build, "position", fault.Position, "retries", retries, "error", fault.Message)
		return nil
	}
	if t.config.Observer.Fault != nil {
		t.config.Observer.Fault(fault)
	}
	t.config.Log.Warn("a projection has stopped before an event that it cannot fold", "projection", fault.Name,
		"tenant", fault.Tenant.String(), "build", fault.Build, "position", fault.Position,
		"stream", fault.Stream, "type", fault.EventType, "part", fault.Where, "error", fault.Message)
	return nil
}

// clearOldFault deletes a fault that an earlier process or release has met at an event up to seen. It reports whether
// no fault is left.
func (t *turn) clearOldFault(ctx context.Context, seen int64) (bool, error) {
	p := t.pair
	fault, ok, err := t.config.Store.Fault(ctx, p.tenant.id, p.followed.id, p.build)
	if err != nil || !ok {
		return err == nil, err
	}
	if seen < fault.Position {
		return false, nil
	}
	if err := t.config.Store.DeleteFault(ctx, p.tenant.id, p.followed.id, p.build); err != nil {
		return false, err
	}
	t.config.Log.Info("a projection has folded or skipped the event before which it had stopped, and continues", "projection", fault.Name,
		"tenant", fault.Tenant.String(), "build", fault.Build, "position", fault.Position, "retries", fault.Retries)
	return true, nil
}
