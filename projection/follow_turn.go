package projection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
)

// The ways in which a turn ends, other than an error.
var (
	errGone    = errors.New("the projection is gone")
	errChanged = errors.New("another build is live")
	errHeld    = errors.New("a rebuild holds the live build still")
	errInline  = errors.New("appends fold into the live build")
	errMore    = errors.New("there is more to fold")
	errLost    = errors.New("the live build's table is not there")
)

// turn gives a pair its turn: one batch, or several while no other pair waits for a turn.
func (r *Runner) turn(ctx context.Context, p *pair) {
	r.mu.Lock()
	f, l := p.followed, p.lane
	build, looks, head := r.live(p), r.looks, p.of.head
	if p.gone || build.database != l.database {
		p.state = pairIdle
		r.enqueue(p) // in the lane of its documents' database now, or none
		r.done(l, p)
		r.mu.Unlock()
		return
	}
	p.turned = time.Now().UnixNano()
	r.mu.Unlock()
	if p.build != build.number {
		p.restart(build.number)
		r.config.Progress.well(f.id, p.tenant) // an obstacle of another build does not concern this one
	}
	seen, err := r.take(budget.OfTenant(ctx, p.tenant), p, build, head)
	switch {
	case errors.Is(err, drivers.ErrNoTable):
		err = r.whyNoTable(ctx, p, err)
	case errors.Is(err, errChanged):
		err = r.lookAgain(ctx, p)
	}
	if ctx.Err() != nil {
		return
	}
	if fault, ok := errors.AsType[*folding.EventError](err); ok {
		if putErr := r.putFault(ctx, p, fault); putErr != nil {
			err = putErr
		}
	}
	if r.config.Observer.Turn != nil {
		r.config.Observer.Turn(f.id)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.done(l, p)
	p.state = pairIdle
	if p.gone {
		return
	}
	other := p.build != r.live(p).number // another build has gone live meanwhile
	again := p.again
	if again {
		p.again, p.aside = false, nil
	}
	_, faulted := errors.AsType[*folding.EventError](err)
	if err == nil || faulted || errors.Is(err, errMore) || errors.Is(err, errHeld) {
		if p.failures > 0 {
			r.config.Progress.well(f.id, p.tenant)
		}
		p.failures = 0
	}
	switch {
	case err == nil && other:
		r.enqueue(p) // after its last reading
	case err == nil:
		// A head that a later reading does not show belongs to a log that was removed.
		if newer := p.of.head; newer > p.at.seen && (newer > head || seen >= head) {
			r.rouse(f, p.of)
		} else if p.saved {
			p.saved = false
			r.unproven[p] = struct{}{}
		}
	case errors.Is(err, errMore), errors.Is(err, errChanged):
		r.enqueue(p)
	case errors.Is(err, errGone):
		if other {
			r.enqueue(p) // created again under the same name after this turn had found it gone
			break
		}
		r.drop(f)
	case errors.Is(err, errInline):
		if r.looks != looks {
			r.enqueue(p) // appends may no longer fold it, and the row that says so may have been read during this turn
			break
		}
		p.state = pairInline
	case errors.Is(err, errHeld):
		if r.looks != looks {
			r.enqueue(p) // what it waits for may have happened already
			break
		}
		p.state = pairHeld
		r.waiting[p] = struct{}{}
	case faulted:
		if other {
			r.enqueue(p)
			break
		}
		if again {
			p.at.known = false
			r.enqueue(p)
			break
		}
		p.state = pairFaulted
	case errors.Is(err, drivers.ErrStale):
		// Another process works on this pair as well. The slower one backs off, longer each time, and takes over when
		// the other one stops.
		wait := min(25*time.Millisecond<<min(p.stale, 6), 1500*time.Millisecond)
		p.stale++
		r.delay(p, wait+rand.N(wait))
	case r.closeLane(l):
		// The database's monitor has already logged the reason. The pair waits in its lane, or continues elsewhere if
		// it has moved meanwhile.
		p.failures++
		r.enqueue(p)
	default:
		p.failures++
		if r.config.Observer.Retry != nil {
			r.config.Observer.Retry(f.id, p.tenant, err)
		}
		lost := errors.Is(err, errLost)
		if lost && r.config.Observer.Lost != nil {
			r.config.Observer.Lost(f.id, p.build)
		}
		if !lost && (p.failures == 1 || p.failures%20 == 0) { // a lost table concerns every tenant, and is reported once
			r.config.Log.Warn("a projection cannot be followed at the moment; trying again", "projection", f.id.Name,
				"tenant", p.tenant.String(), "build", p.build, "failures", p.failures, "error", err)
		}
		wait := backoff(int(p.failures))
		r.config.Progress.troubled(f.id, p.tenant, err, time.Now().Add(wait))
		r.delay(p, wait)
	}
}

// take does the work of a turn. A nil error means that the pair has caught up with the head that it returns.
func (r *Runner) take(ctx context.Context, p *pair, build lived, head int64) (seen int64, err error) {
	f := p.followed
	fold, now, err := r.folds.get(ctx, p.tenant, f.id, build)
	switch {
	case domain.IsCode(err, domain.CodeNotFound):
		return 0, errGone
	case domain.IsCode(err, domain.CodeInvalidDefinition):
		// It compiled once: this program interprets it differently, or lacks a handler. Only a change can fix that.
		return 0, &folding.EventError{Event: domain.Event{Position: p.at.seen + 1}, Where: "definition", Err: err}
	case err != nil:
		return 0, err
	case now != nil:
		return 0, errChanged
	}
	if fold.Definition().Mode == domain.ModeLive {
		return 0, errInline // it is folded on request: nothing is stored that could lag
	}
	driver := r.config.Drivers[build.database]
	if driver == nil {
		return 0, fmt.Errorf("there is no database %q in this process's configuration", build.database)
	}
	events, documents := 0, 0
	replay := &Replay{
		Driver: driver, Build: buildOf(f.id, build.number, fold), Tenant: p.tenant, Fold: fold, Limits: r.config.CatchUp,
		Folded: func(e, d int) {
			events, documents = events+e, documents+d
			if d > 0 {
				p.stale, p.saved = 0, true
			}
		},
		Aside: r.config.Store, Version: build.version,
		at: p.at, documentBytes: int(p.documentBytes), eventBytes: int(p.eventBytes), aside: p.aside,
	}
	defer func() {
		p.at, p.documentBytes, p.eventBytes, p.aside = replay.at, int32(replay.documentBytes), int32(replay.eventBytes), replay.aside
	}()
	if err := replay.locate(ctx); err != nil {
		return 0, err
	}
	limits, ahead := followLimits, r.config.CatchUp
	if head-replay.at.seen > 2*int64(limits.Events) {
		limits = r.config.CatchUp
	}
	if p.failures > 0 {
		// The batch may have been more than the database can handle within its time limit.
		limits = limits.after(int(p.failures))
		ahead, replay.Limits = limits, limits
	}
	read := func(ctx context.Context, q domain.LogQuery) (domain.Reading, error) {
		return r.config.Store.ReadFor(ctx, p.tenant, f.id, q)
	}
	defer func() {
		if err = replay.finish(ctx, err); errors.Is(err, errAgain) {
			err = errMore // from the checkpoint on
		}
	}()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	for next := replay.fetch(reading, read, replay.at.seen+1, 0, limits); ; {
		batch, err := next.wait()
		if err == nil {
			err = usable(batch.reading, p.build)
		}
		if err == nil {
			err = r.lacks(ctx, p, fold, batch.from, batch.reading.RemovedTo)
		}
		if err != nil {
			return 0, err
		}
		began := time.Now()
		replay.measure(batch)
		if next = nil; batch.more && !r.othersWait(p) {
			// Read the next batch and compute its keys while this one is folded and saved.
			next = replay.fetch(reading, read, batch.upTo+1, 0, ahead)
		}
		events, documents = 0, 0
		if next != nil {
			// Its results may be saved together with those of the next batch; usable explains why that is as safe.
			err = replay.gather(ctx, batch)
		} else {
			err = replay.apply(ctx, batch)
		}
		r.tell(p, batch, events, documents, time.Since(began))
		if err == nil && !p.mended {
			p.mended, err = r.mend(ctx, p, replay.at.seen)
		}
		if err != nil {
			if next != nil {
				stop()
				<-next.done
			}
			if errors.Is(err, errAgain) {
				err = errMore // from the checkpoint on, in smaller parts
			}
			return 0, err
		}
		switch {
		case next != nil:
		case batch.more:
			return 0, errMore
		default:
			if err := replay.settle(ctx); err != nil {
				return 0, err
			}
			return batch.reading.Head, r.beginInline(ctx, replay)
		}
	}
}

// buildOf returns the build with that number, whose definition is the fold's.
func buildOf(id domain.ProjectionID, number int64, fold *folding.Fold) domain.Build {
	p := domain.Projection{ProjectionID: id, Definition: fold.Definition(), Build: number}
	return p.LiveBuild()
}

// usable reports whether the results of a reading may be saved into the build.
//
// This is the worker's part of the swap (docs/decisions/0002-swap-by-hold.md). A reading takes the log's head first,
// then the events, then the projection's row. So if the row was not held, the hold was placed after the events were
// read. A reader of the heads that comes after the hold sees heads at or above those events. So whatever a worker can
// still save, however late, is within the heads that the new build catches up to before it is swapped in.
func usable(reading domain.Reading, build int64) error {
	switch {
	case !reading.Found:
		return errGone
	case reading.Build != build:
		return errChanged
	case reading.Inline:
		return errInline
	case reading.Held:
		return errHeld
	}
	return nil
}

// othersWait reports whether another pair would get a turn if this one's ended now.
func (r *Runner) othersWait(p *pair) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.gone || p.lane.ready.waitsFor(p.of)
}

// lookAgain checks which build is live for a pair, and switches the pair to it.
func (r *Runner) lookAgain(ctx context.Context, p *pair) error {
	now, err := r.config.Store.LiveProjection(ctx, p.tenant, p.followed.id)
	switch {
	case domain.IsCode(err, domain.CodeNotFound):
		return errGone
	case err != nil:
		return err
	}
	r.learn(p, &now)
	return errChanged
}

// whyNoTable distinguishes a live build whose table has vanished from a build that was replaced and dropped during the
// turn.
func (r *Runner) whyNoTable(ctx context.Context, p *pair, err error) error {
	now, lookErr := r.config.Store.LiveProjection(ctx, p.tenant, p.followed.id)
	switch {
	case domain.IsCode(lookErr, domain.CodeNotFound):
		return errGone
	case lookErr != nil:
		return lookErr
	case now.Build != p.build:
		r.learn(p, &now)
		return errChanged
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// tell reports a batch to waiting readers and to the observer, and records the head that it was read at.
func (r *Runner) tell(p *pair, batch *prepared, events, documents int, took time.Duration) {
	r.config.Progress.moved(p.followed.id, p.tenant)
	r.Wake(domain.Head{Tenant: p.tenant, Position: batch.reading.Head})
	if r.config.Observer.Batch == nil || len(batch.events) == 0 || events == 0 {
		return
	}
	r.config.Observer.Batch(BatchInfo{
		Projection: p.followed.id, Tenant: p.tenant, Events: events, Documents: documents, Took: took,
		Lag: max(0, time.Since(batch.events[len(batch.events)-1].RecordedAt)),
	})
}

func (r *Runner) putFault(ctx context.Context, p *pair, e *folding.EventError) error {
	fault := domain.Fault{
		ProjectionID: p.followed.id, Tenant: p.tenant, Build: p.build,
		Position: e.Event.Position, EventID: e.Event.ID, Failure: e.Failure(),
	}
	if err := r.config.Store.PutFault(ctx, fault); err != nil {
		return fmt.Errorf("keep the fault of projection %q: %w", p.followed.id.Name, err)
	}
	p.mended = false
	r.config.Progress.moved(p.followed.id, p.tenant)
	if r.config.Observer.Fault != nil {
		r.config.Observer.Fault(fault)
	}
	r.config.Log.Warn("a projection stands still before an event that it cannot fold", "projection", fault.Name,
		"tenant", fault.Tenant.String(), "build", fault.Build, "position", fault.Position,
		"stream", fault.Stream, "type", fault.EventType, "part", fault.Where, "error", fault.Message)
	return nil
}

// mend clears a fault of an earlier process or release that this one has overcome. It reports whether no fault is left.
func (r *Runner) mend(ctx context.Context, p *pair, seen int64) (bool, error) {
	fault, ok, err := r.config.Store.Fault(ctx, p.tenant, p.followed.id, p.build)
	if err != nil || !ok {
		return err == nil, err
	}
	if seen < fault.Position {
		return false, nil
	}
	return true, r.config.Store.DeleteFault(ctx, p.tenant, p.followed.id, p.build)
}
