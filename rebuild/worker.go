package rebuild

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// Why a worker stops working on a rebuild.
var (
	errCancelled = errors.New("the rebuild is to be cancelled")
	errTaken     = errors.New("the rebuild has ended, or another worker has it")
	errOutage    = errors.New("the database that the rebuild writes to does not answer")
)

// beatInterval is how often a worker saves its progress, which is its sign of life too, and looks for a cancellation.
const beatInterval = time.Second

// goodbye bounds what is still done when the process ends.
const goodbye = 5 * time.Second

// Run works on rebuilds and drops retired builds until ctx ends. It returns nil then, after what it was working on was
// given back, so that another process can go on with it at once.
func (r *Rebuilds) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { r.swapTables(ctx, "") })
	all.Go(func() { r.dropBuilds(ctx) })
	poll := time.NewTimer(0)
	defer poll.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-poll.C:
		}
		r.catchUpNames(ctx, &all)
		r.heal(ctx)
		if err := r.claim(ctx, &all); err != nil && ctx.Err() == nil {
			r.config.Log.Warn("rebuilds to work on cannot be listed; trying again", "error", err)
		}
		poll.Reset(r.config.Poll)
	}
	all.Wait()
	return nil
}

// claim starts to work on every rebuild that nobody works on, as many as there is room for, and has those under way look
// for a cancellation.
func (r *Rebuilds) claim(ctx context.Context, all *sync.WaitGroup) error {
	running, err := r.config.Store.RunningRebuilds(ctx)
	if err != nil {
		return err
	}
	for _, rebuild := range running {
		r.mu.Lock()
		mine := r.active[rebuild.ID]
		r.mu.Unlock()
		if mine != nil {
			mine.look()
			continue
		}
		_, out := r.outage(rebuild.Definition.Database)
		if out && !rebuild.Cancel {
			continue
		}
		select {
		case r.places <- struct{}{}:
		default:
			continue
		}
		claimed, ok, err := r.config.Store.ClaimRebuild(ctx, rebuild.ProjectionID, rebuild.ID, r.worker, r.config.StaleAfter)
		if err != nil || !ok {
			<-r.places
		}
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		w := newWork(r, claimed)
		r.mu.Lock()
		r.active[claimed.ID] = w
		r.mu.Unlock()
		all.Go(func() {
			w.run(ctx)
			w.leave()
			r.mu.Lock()
			delete(r.active, claimed.ID)
			r.mu.Unlock()
			if ctx.Err() == nil {
				r.Wake() // there is room for another one
			}
		})
	}
	return nil
}

// work is a rebuild that this process works on.
type work struct {
	r      *Rebuilds
	kick   chan struct{} // look for a cancellation
	placed bool          // it has one of the places; read and written by run alone

	mu  sync.Mutex // held while the row is saved, so that saves come in order
	row domain.Rebuild

	progress progress
}

func newWork(r *Rebuilds, claimed domain.Rebuild) *work {
	return &work{r: r, kick: make(chan struct{}, 1), placed: true, row: claimed}
}

// leave gives the work's place to another rebuild.
func (w *work) leave() {
	if w.placed {
		<-w.r.places
		w.placed = false
	}
}

// rest waits between two attempts, and then for a place: one that fails again and again, since its database can be reached
// and not be used, is no reason for others to wait.
func (w *work) rest(ctx context.Context, wait time.Duration) error {
	w.leave()
	w.r.Wake()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait):
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case w.r.places <- struct{}{}:
		w.placed = true
		return nil
	}
}

func (w *work) look() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// run works on the rebuild until it has ended, somebody else has it, or ctx ends.
func (w *work) run(ctx context.Context) {
	log := w.r.config.Log.With("projection", w.row.Name, "rebuild", w.row.ID.String(), "build", w.row.Build)
	log.Info("working on a rebuild", "state", w.row.State)
	working, stop := context.WithCancelCause(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { w.beat(working, stop) })
	err := w.insist(working, stop)
	cause := context.Cause(working)
	stop(nil)
	beats.Wait()

	final, bad := domain.RebuildState(""), (*failure)(nil)
	switch {
	case err == nil:
		final = domain.RebuildSwapped
	case errors.As(err, &bad):
		final, w.row.Error = domain.RebuildFailed, bad.message
	case errors.Is(cause, errCancelled):
		final, w.row.Error = domain.RebuildCancelled, ""
	case errors.Is(cause, errTaken):
		log.Info("another worker has the rebuild, or it has ended")
		return
	case errors.Is(err, errOutage):
		// Its place is for others meanwhile. Whoever claims it when the database is back goes on from its checkpoints.
		w.release(ctx, log)
		log.Warn("a rebuild waits for its database", "database", w.row.Definition.Database)
		return
	default:
		// The process ends. Whoever comes next goes on from the new build's checkpoints.
		w.release(ctx, log)
		return
	}
	if final != domain.RebuildSwapped && !w.end(ctx, final) {
		return
	}
	w.row.State = final
	log.Info("a rebuild has ended", "state", final, "events", w.row.EventsDone, "documents", w.row.Documents, "error", w.row.Error)
	if w.r.config.Observer.Ended != nil {
		w.r.config.Observer.Ended(w.row)
	}
	if final == domain.RebuildSwapped {
		w.r.swapTable(ctx, w.row.ProjectionID)
	}
}

// release gives the rebuild back, also where ctx has ended.
func (w *work) release(ctx context.Context, log *slog.Logger) {
	leaving, done := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer done()
	if err := w.r.config.Store.ReleaseRebuild(leaving, w.row); err != nil {
		log.Warn("a rebuild could not be given back; it will be taken over when it counts as abandoned", "error", err)
	}
}

// insist repeats attempts until one succeeds or fails for good: whatever was done stays done, so that each goes on where
// the last one stopped.
func (w *work) insist(ctx context.Context, stop context.CancelCauseFunc) error {
	if w.row.Cancel {
		stop(errCancelled)
		return errCancelled
	}
	for tries := 1; ; tries++ {
		err := w.attempt(ctx, tries)
		if _, bad := errors.AsType[*failure](err); bad && ctx.Err() == nil || err == nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.r.config.Log.Warn("a rebuild was interrupted; trying again", "projection", w.row.Name, "rebuild", w.row.ID.String(), "tries", tries, "error", err)
		w.mu.Lock()
		w.row.Error = "interrupted, trying again: " + domain.ClientMessage(err)
		w.mu.Unlock()
		w.save(ctx, stop) // tells too whether it is still this worker's
		if _, out := w.r.outage(w.row.Definition.Database); out && ctx.Err() == nil {
			return errOutage
		}
		if err := w.rest(ctx, backoff(tries)); err != nil {
			return err
		}
	}
}

func (r *Rebuilds) outage(database string) (projection.Outage, bool) {
	if r.config.Outages == nil {
		return projection.Outage{}, false
	}
	return r.config.Outages(database)
}

// beat saves progress, and looks whether the rebuild is to be cancelled or is somebody else's, until ctx ends.
func (w *work) beat(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(min(beatInterval, w.r.config.StaleAfter/4))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-w.kick:
		}
		w.save(ctx, stop)
	}
}

// save stores state and progress, and stops the work where the rebuild is to be cancelled or is no longer this worker's.
// Another error is left to the next save.
func (w *work) save(ctx context.Context, stop context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.row.EventsDone, w.row.EventsTotal = w.progress.events()
	cancel, err := w.r.config.Store.SaveRebuild(ctx, w.row)
	switch {
	case isCode(err, domain.CodeConflict):
		stop(errTaken)
	case err != nil:
		if ctx.Err() == nil {
			w.r.config.Log.Warn("a rebuild's progress could not be saved", "projection", w.row.Name, "rebuild", w.row.ID.String(), "error", err)
		}
	case cancel:
		stop(errCancelled)
	case w.r.config.Observer.Progress != nil:
		w.r.config.Observer.Progress(w.row)
	}
}

// enter moves the rebuild to a later state and saves that. A rebuild that was taken over does not go back.
func (w *work) enter(ctx context.Context, state domain.RebuildState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if phase(state) > phase(w.row.State) {
		w.row.State = state
	}
	w.row.Error = ""
	w.row.EventsDone, w.row.EventsTotal = w.progress.events()
	_, err := w.r.config.Store.SaveRebuild(ctx, w.row)
	return err
}

func phase(state domain.RebuildState) int {
	switch state {
	case domain.RebuildQueued:
		return 0
	case domain.RebuildBuilding:
		return 1
	case domain.RebuildCatchingUp:
		return 2
	default:
		return 3
	}
}

// end ends the rebuild as cancelled or failed; false: it could not be, and whoever claims it next will.
func (w *work) end(ctx context.Context, state domain.RebuildState) bool {
	w.row.State = state
	w.row.EventsDone, w.row.EventsTotal = w.progress.events()
	for tries := 1; ; tries++ {
		// The new build stays a little: a worker that lost the rebuild may not have noticed yet.
		err := w.r.config.Store.EndRebuild(ctx, w.row, time.Now().Add(4*w.r.config.StaleAfter))
		if err == nil {
			return true
		}
		if isCode(err, domain.CodeConflict) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backoff(tries)):
		}
	}
}

// backoff is how long to wait after so many tries in a row: 100 ms, doubled each time up to 30 s, less up to a half by
// chance.
func backoff(tries int) time.Duration {
	wait := min(100*time.Millisecond<<min(tries-1, 9), 30*time.Second)
	return wait - rand.N(wait/2)
}
