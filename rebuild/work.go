package rebuild

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// work is this process's work on a rebuild. How it ends decides what becomes of the rebuild, and of the new build:
//
//	end           | the rebuild                  | and then
//	workSwapped   | has ended as swapped         | the public name of its documents moves to the new build
//	workReported  | ends as reported             | the new build of a dry run is dropped
//	workFailed    | ends as failed               | the new build is dropped later
//	workCancelled | ends as cancelled            | the new build is dropped later
//	workPaused    | is given back                | a worker claims it after Resume
//	workOutage    | is given back                | a worker claims it when its database answers again
//	workShutDown  | is given back                | another process claims it
//	workTaken     | belongs to another, or ended |
type work struct {
	r        *Rebuilds
	stop     context.CancelCauseFunc // ends the work; its cause is a workEnd
	beatNow  chan struct{}           // look for requests at once
	approval chan struct{}           // the rebuild was approved
	first    bool                    // nobody has worked on it before
	hasSlot  bool                    // it has one of the slots; read and written by run alone

	mu  sync.Mutex // held while the row is saved, so that saves stay in order
	row domain.Rebuild

	progress progress
}

// workEnd is how the work on a rebuild ends. As an error, it is the cause for which the work's context ends.
type workEnd uint8

const (
	workShutDown workEnd = iota // this process ends
	workSwapped
	workReported
	workFailed
	workCancelled
	workPaused
	workOutage // the database of the new build does not answer
	workTaken  // another worker has the rebuild, or it has ended
)

func (workEnd) Error() string { return "the rebuild's worker is stopping" }

// endOf returns how the work ends whose context has ended.
func endOf(ctx context.Context) workEnd {
	end, _ := errors.AsType[workEnd](context.Cause(ctx))
	return end
}

// beatInterval is how often a worker saves its progress, which also shows that it is alive, and checks for requests.
const beatInterval = time.Second

// releaseTimeout limits the work done while the process shuts down.
const releaseTimeout = 5 * time.Second

func newWork(r *Rebuilds, claimed domain.Rebuild, first bool) *work {
	w := &work{r: r, beatNow: make(chan struct{}, 1), approval: make(chan struct{}, 1), first: first, hasSlot: true, row: claimed}
	// The previous worker's count stands until this one knows what of it was saved.
	w.progress.done.Store(claimed.EventsDone)
	w.progress.total.Store(claimed.EventsTotal)
	return w
}

// freeSlot gives the work's slot to another rebuild.
func (w *work) freeSlot() {
	if w.hasSlot {
		<-w.r.slots
		w.hasSlot = false
	}
}

// backOff waits between two attempts, and then for a slot. A rebuild that fails repeatedly, because its database is
// reachable but unusable, must not make others wait.
func (w *work) backOff(ctx context.Context, wait time.Duration) error {
	w.freeSlot()
	w.r.Wake()
	if err := sleep(ctx, wait); err != nil {
		return err
	}
	return w.takeSlot(ctx)
}

// takeSlot waits for a slot.
func (w *work) takeSlot(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case w.r.slots <- struct{}{}:
		w.hasSlot = true
		return nil
	}
}

// run works on the rebuild until the work ends.
func (w *work) run(ctx context.Context) {
	log := w.r.config.Log.With("projection", w.row.Name, "rebuild", w.row.ID.String(), "build", w.row.Build)
	log.Info("working on a rebuild", "state", w.row.State)
	working, stop := context.WithCancelCause(ctx)
	w.stop = stop
	var beats sync.WaitGroup
	beats.Go(func() { w.beat(working) })
	end, reason := w.repeatAttempts(working, log)
	stop(nil)
	beats.Wait()
	switch end {
	case workSwapped:
		w.finish(ctx, log, domain.RebuildSwapped)
		w.r.movePublicName(ctx, w.row.ProjectionID)
	case workReported:
		w.endWithoutSwap(ctx, log, domain.RebuildReported, "")
	case workFailed:
		w.endWithoutSwap(ctx, log, domain.RebuildFailed, reason)
	case workCancelled:
		w.endWithoutSwap(ctx, log, domain.RebuildCancelled, "")
	case workTaken:
		log.Info("another worker has the rebuild, or it has ended")
	case workPaused:
		w.release(ctx, log)
		log.Info("a rebuild is paused")
	case workOutage:
		w.release(ctx, log)
		log.Warn("a rebuild waits for its database", "database", w.row.Definition.Database)
	case workShutDown:
		w.release(ctx, log)
	}
}

// repeatAttempts makes attempts until the work ends. Progress is kept, so each attempt continues where the last one
// stopped. reason is why the rebuild has failed.
func (w *work) repeatAttempts(ctx context.Context, log *slog.Logger) (end workEnd, reason string) {
	if w.row.Cancel {
		return workCancelled, ""
	}
	for tries := 1; ; tries++ {
		a, err := w.newAttempt(ctx, tries)
		if err == nil {
			err = a.run(ctx)
		}
		bad, failed := errors.AsType[*failure](err)
		switch {
		case err == nil && w.row.DryRun:
			return workReported, ""
		case err == nil:
			return workSwapped, ""
		case ctx.Err() != nil:
			return endOf(ctx), ""
		case failed:
			return workFailed, bad.message
		}
		log.Warn("a rebuild was interrupted; trying again", "tries", tries, "error", err)
		w.mu.Lock()
		w.row.Error = "interrupted, trying again: " + domain.ClientMessage(err)
		w.mu.Unlock()
		w.save(ctx) // also shows whether it is still this worker's
		if _, out := w.r.outage(w.row.Definition.Database); out && ctx.Err() == nil {
			return workOutage, "" // its slot is free for others
		}
		if err := w.backOff(ctx, projection.Backoff(tries)); err != nil {
			return endOf(ctx), ""
		}
	}
}

// release gives the rebuild back, even if ctx has ended.
func (w *work) release(ctx context.Context, log *slog.Logger) {
	leaving, done := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer done()
	if err := w.r.config.Store.ReleaseRebuild(leaving, w.row); err != nil {
		log.Warn("a rebuild could not be released; another worker takes it over when it counts as abandoned", "error", err)
	}
}

// beat saves progress, and checks whether the rebuild is cancelled, paused or taken over, until ctx ends.
func (w *work) beat(ctx context.Context) {
	ticker := time.NewTicker(min(beatInterval, w.r.config.StaleAfter/4))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-w.beatNow:
		}
		w.save(ctx)
	}
}

// save stores state and progress. It stops the work if the rebuild is cancelled, paused or no longer this worker's. It
// leaves other errors to the next save.
func (w *work) save(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.row.EventsDone, w.row.EventsTotal = w.progress.events()
	w.row.EventsPerSecond = w.progress.rate(time.Now())
	saved, err := w.r.config.Store.BeatRebuild(ctx, w.row)
	switch {
	case domain.IsCode(err, domain.CodeConflict):
		w.stop(workTaken)
		return
	case err != nil:
		if ctx.Err() == nil {
			w.r.config.Log.Warn("a rebuild's progress could not be saved", "projection", w.row.Name, "rebuild", w.row.ID.String(), "error", err)
		}
		return
	case saved.Cancel:
		w.stop(workCancelled)
		return
	case saved.Paused:
		w.stop(workPaused)
		return
	}
	if w.row.Approved = saved.Approved; saved.Approved {
		notify(w.approval)
	}
	if w.r.config.Observer.Progress != nil {
		w.r.config.Observer.Progress(w.row)
	}
}

// enter moves the rebuild to a later state and saves that. A rebuild that was taken over does not go back to an earlier
// one.
func (w *work) enter(ctx context.Context, state domain.RebuildState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Index(states, state) > slices.Index(states, w.row.State) {
		w.row.State = state
	}
	return w.saveRow(ctx)
}

// states are the states of a running rebuild, in order.
var states = []domain.RebuildState{
	domain.RebuildQueued, domain.RebuildBuilding, domain.RebuildCatchingUp, domain.RebuildValidating, domain.RebuildAwaitingApproval,
}

// saveRow saves the rebuild's row between two phases. The caller holds the lock.
func (w *work) saveRow(ctx context.Context) error {
	w.row.Error = ""
	w.row.EventsDone, w.row.EventsTotal = w.progress.events()
	saved, err := w.r.config.Store.SaveRebuild(ctx, w.row)
	if err == nil {
		w.row.Approved = saved.Approved
	}
	return err
}

// approved reports whether the rebuild may swap.
func (w *work) approved() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.row.Manual || w.row.Approved
}

// endWithoutSwap ends the rebuild. If that fails, the next worker to claim the rebuild ends it.
func (w *work) endWithoutSwap(ctx context.Context, log *slog.Logger, state domain.RebuildState, reason string) {
	w.row.State, w.row.Error = state, reason
	w.row.EventsDone, w.row.EventsTotal = w.progress.events()
	for tries := 1; ; tries++ {
		err := w.releaseTenants(ctx)
		if err == nil {
			err = w.r.config.Store.EndRebuild(ctx, w.row, w.dropAt(state))
		}
		if err == nil {
			break
		}
		if domain.IsCode(err, domain.CodeConflict) {
			return
		}
		if sleep(ctx, projection.Backoff(tries)) != nil {
			return
		}
	}
	w.finish(ctx, log, state)
	if state == domain.RebuildReported {
		if err := w.r.DropRetired(ctx); err != nil && ctx.Err() == nil {
			log.Warn("the documents of a dry run could not be dropped yet; trying again", "error", err)
		}
	}
}

// finish follows the end of the rebuild.
func (w *work) finish(ctx context.Context, log *slog.Logger, state domain.RebuildState) {
	w.row.State = state
	log.Info("a rebuild has ended", "state", state, "events", w.row.EventsDone, "documents", w.row.Documents, "error", w.row.Error)
	if w.r.config.Observer.Ended != nil {
		w.r.config.Observer.Ended(w.row)
	}
	w.r.settleTenantBuilds(ctx, w.row)
}

// dropAt is when the new build of a rebuild that was not swapped may be dropped.
func (w *work) dropAt(state domain.RebuildState) time.Time {
	switch {
	case w.row.RollbackOf != (domain.RebuildID{}):
		return time.Now().Add(w.r.keep(w.row)) // it existed before, and is kept for another try
	case state == domain.RebuildReported && w.first:
		return time.Now()
	}
	// It stays for a while: a worker that lost the rebuild may not have noticed yet.
	return time.Now().Add(4 * w.r.config.StaleAfter)
}

// releaseTenants resumes the tenants that the rebuild may have paused.
func (w *work) releaseTenants(ctx context.Context) error {
	for _, tenant := range w.row.Tenants {
		if err := w.r.config.Store.ReleaseTenant(ctx, tenant, w.row); err != nil {
			return err
		}
	}
	return nil
}
