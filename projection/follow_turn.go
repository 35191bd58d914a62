package projection

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
)

// turn is a running pair's turn: one batch, or several while no other pair waits for a turn. Its end decides the pair's
// next state:
//
//	end           | next state  | unless
//	turnCaughtUp  | pairIdle    | another build is live or the log has grown: pairReady
//	turnMore      | pairReady   | a pause is left: pairDelayed
//	turnReplaced  | pairReady   |
//	turnGone      | (forgotten) | the projection was created again meanwhile: pairReady
//	turnInline    | pairInline  | projections were read meanwhile: pairReady
//	turnHeld      | pairHeld    | projections were read meanwhile: pairReady
//	turnFaulted   | pairFaulted | another build is live, or a retry was requested: pairReady
//	turnOvertaken | pairDelayed |
//	turnFailed    | pairDelayed | the database is known not to answer: pairReady, in its suspended pool
//
// A relaxed pair whose log has grown may become pairDelayed instead of pairReady, see wakePair.
type turn struct {
	*Runner
	pair         *pair
	pool         *workerPool
	heard        time.Time // when it began, or has folded a batch
	build        liveBuild // live when the turn began
	readsAtStart int       // projectionReads then
	head         int64     // the log's head, as known then

	seen              int64 // with turnCaughtUp: the head that the last reading has shown
	events, documents int   // of the batch that is being folded

	pause time.Duration // of a paced pair: how long its next reading still has to wait

	retriesFault bool          // its first reading has only the event before which the pair has stopped
	retryAfter   time.Duration // with turnFaulted: how long to wait until the event is tried again
}

// turnEnd is how a turn ends.
type turnEnd uint8

const (
	turnUnderWay  turnEnd = iota // it has not ended
	turnCaughtUp                 // everything up to the head has taken effect
	turnMore                     // there is more to fold
	turnReplaced                 // another build is live
	turnGone                     // the projection does not exist
	turnInline                   // appends fold into the live build, or the projection is live: nothing is stored
	turnHeld                     // a rebuild holds the live build
	turnFaulted                  // an event cannot be folded
	turnOvertaken                // another process has saved first
	turnFailed                   // any other error
)

// Errors for which the live build must be made again.
var (
	errTableLost = errors.New("the live build's table is missing")
	errAhead     = errors.New("the documents contain events that the log has lost")
)

// stalledAfter is how long a turn folds nothing before it fails because a database does not answer. Its tenant is
// stalled until a turn succeeds: all stalled tenants share a quarter of the workers.
const stalledAfter = 5 * time.Second

// runTurn gives a pair its turn.
func (r *Runner) runTurn(ctx context.Context, p *pair) {
	t := r.beginTurn(p)
	if t == nil {
		return
	}
	end, err := t.work(budget.OfTenant(ctx, p.tenant.id))
	if end == turnReplaced {
		end, err = t.findLiveBuild(ctx)
	}
	if err != nil {
		end, err = t.classify(ctx, err)
	}
	if ctx.Err() != nil {
		return
	}
	if end == turnFaulted {
		if putErr := t.putFault(ctx, err); putErr != nil {
			end, err = turnFailed, putErr
		}
	}
	if r.config.Observer.Turn != nil {
		r.config.Observer.Turn(p.followed.id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.end(end, err)
	stalled := end == turnFailed && time.Since(t.heard) >= stalledAfter
	changed := stalled != p.tenant.stalled
	p.tenant.stalled = stalled
	r.finishTurn(t.pool, p)
	if changed {
		r.reconsider(p.tenant)
	}
}

// beginTurn returns nil if the pair should not have its turn here: it is gone, or its documents have moved to another
// database.
func (r *Runner) beginTurn(p *pair) *turn {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &turn{Runner: r, pair: p, pool: p.pool, heard: time.Now(), build: r.live(p), readsAtStart: r.projectionReads, head: p.tenant.head}
	if p.gone || t.build.database != t.pool.database {
		p.state = pairIdle
		r.enqueue(p) // in the pool of its documents' database now, or none
		r.finishTurn(t.pool, p)
		return nil
	}
	p.lastTurn = t.heard.UnixNano()
	t.retriesFault = p.retriesFault
	if p.build != t.build.number {
		p.restart(t.build.number)
		r.config.Progress.clearTrouble(p.followed.id, p.tenant.id) // that was another build's
	}
	return t
}

// classify returns how an error ends the turn.
func (t *turn) classify(ctx context.Context, err error) (turnEnd, error) {
	if errors.Is(err, drivers.ErrNoTable) {
		var end turnEnd
		if end, err = t.checkTableLost(ctx, err); err == nil {
			return end, nil
		}
	}
	_, faulted := errors.AsType[*folding.EventError](err)
	switch {
	case errors.Is(err, errRefold):
		return turnMore, nil // from the checkpoint on, in smaller parts
	case faulted:
		return turnFaulted, err
	case errors.Is(err, drivers.ErrStale):
		return turnOvertaken, err
	}
	return turnFailed, err
}

// end puts the pair into its next state. The caller holds the lock.
func (t *turn) end(end turnEnd, err error) {
	p := t.pair
	p.state, p.retriesFault = pairIdle, false
	if p.gone {
		return
	}
	retry := p.retryRequested
	if retry {
		p.retryRequested, p.exclusions = false, nil
	}
	switch end {
	case turnCaughtUp, turnMore, turnHeld, turnFaulted:
		if p.failures > 0 {
			t.config.Progress.clearTrouble(p.followed.id, p.tenant.id)
		}
		p.failures = 0
	}
	switch end {
	case turnCaughtUp:
		t.endCaughtUp()
	case turnMore, turnReplaced:
		if t.pause > 0 {
			t.enqueueAfter(p, t.pause)
		} else {
			t.enqueue(p)
		}
	case turnGone:
		t.endGone()
	case turnInline:
		t.endInline()
	case turnHeld:
		t.endHeld()
	case turnFaulted:
		t.endFaulted(retry)
	case turnOvertaken:
		t.endOvertaken()
	default:
		t.endFailed(err)
	}
}

// replaced reports whether another build has gone live during the turn.
func (t *turn) replaced() bool { return t.pair.build != t.live(t.pair).number }

// endCaughtUp ends a turn that has caught up.
func (t *turn) endCaughtUp() {
	p := t.pair
	if t.replaced() {
		t.enqueue(p) // after its last reading
		return
	}
	// A head that a later reading does not show belongs to a log that was removed.
	if newer := p.tenant.head; newer > p.at.seen && (newer > t.head || t.seen >= t.head) {
		t.wakePair(p.followed, p.tenant)
	} else if p.unchecked {
		p.unchecked = false
		t.unchecked[p] = struct{}{}
	}
}

// endGone ends a turn that has found the projection gone.
func (t *turn) endGone() {
	if t.replaced() {
		t.enqueue(t.pair) // created again under the same name, after this turn had found it gone
		return
	}
	t.dropProjection(t.pair.followed)
}

// endInline ends a turn that has found that appends fold into the build.
func (t *turn) endInline() {
	if t.projectionReads != t.readsAtStart {
		t.enqueue(t.pair) // this may have ended, and the row that says so may have been read during the turn
		return
	}
	t.pair.state = pairInline
}

// endHeld ends a turn that has found the build held by a rebuild.
func (t *turn) endHeld() {
	if t.projectionReads != t.readsAtStart {
		t.enqueue(t.pair) // what it waits for may have happened already
		return
	}
	t.pair.state = pairHeld
	t.heldPairs[t.pair] = struct{}{}
}

// endFaulted ends a turn that has met an event that cannot be folded.
func (t *turn) endFaulted(retry bool) {
	switch {
	case t.replaced():
		t.enqueue(t.pair)
	case retry:
		t.retryFault(t.pair)
	default:
		t.waitFaulted()
	}
}

// waitFaulted stops the pair before its event until that is tried again.
func (t *turn) waitFaulted() {
	p := t.pair
	p.state = pairFaulted
	p.retry = time.AfterFunc(t.retryAfter, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if p.state == pairFaulted && !t.ended {
			t.retryFault(p)
		}
	})
}

// endOvertaken ends a turn in which another process was faster. This one waits longer each time, and takes over when
// the other one stops.
func (t *turn) endOvertaken() {
	wait := min(25*time.Millisecond<<min(t.pair.overtaken, 6), 1500*time.Millisecond)
	t.pair.overtaken++
	t.enqueueAfter(t.pair, wait+rand.N(wait))
}

// endFailed ends a turn that has failed.
func (t *turn) endFailed(err error) {
	p, id := t.pair, t.pair.followed.id
	p.failures++
	if t.suspendIfOut(t.pool) {
		// The database's monitor has already logged the reason. The pair waits in its pool, or continues elsewhere if
		// it has moved meanwhile.
		t.enqueue(p)
		return
	}
	if t.config.Observer.Retry != nil {
		t.config.Observer.Retry(id, p.tenant.id, err)
	}
	tableLost := errors.Is(err, errTableLost) // concerns every tenant, and is logged once
	if (tableLost || errors.Is(err, errAhead)) && t.config.Observer.Lost != nil {
		t.config.Observer.Lost(id, p.build)
	}
	if !tableLost && (p.failures == 1 || p.failures%20 == 0) {
		t.config.Log.Warn("a projection cannot be followed at the moment; trying again", "projection", id.Name,
			"tenant", p.tenant.id.String(), "build", p.build, "failures", p.failures, "error", err)
	}
	wait := Backoff(int(p.failures))
	t.config.Progress.setTrouble(id, p.tenant.id, err, time.Now().Add(wait))
	t.enqueueAfter(p, wait)
}

// findLiveBuild switches the pair to the build that is live now.
func (t *turn) findLiveBuild(ctx context.Context) (turnEnd, error) {
	now, err := t.config.Store.LiveProjection(ctx, t.pair.tenant.id, t.pair.followed.id)
	switch {
	case domain.IsCode(err, domain.CodeNotFound):
		return turnGone, nil
	case err != nil:
		return turnFailed, err
	}
	t.applyLive(t.pair, &now)
	return turnReplaced, nil
}
