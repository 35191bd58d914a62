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
	errPaused    = errors.New("the rebuild is to rest")
	errTaken     = errors.New("the rebuild has ended, or another worker has it")
	errOutage    = errors.New("the database that the rebuild writes to does not answer")
)

// beatInterval is how often a worker saves its progress, which also shows that it is alive, and checks for new orders.
const beatInterval = time.Second

// goodbye limits the work done while the process shuts down.
const goodbye = 5 * time.Second

// Run works on rebuilds and drops retired builds until ctx ends. It then gives back the rebuilds it was working on, so
// that another process can continue them at once, and returns nil.
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
		r.settleInline(ctx)
		if err := r.claim(ctx, &all); err != nil && ctx.Err() == nil {
			r.config.Log.Warn("rebuilds to work on cannot be listed; trying again", "error", err)
		}
		poll.Reset(r.config.Poll)
	}
	all.Wait()
	return nil
}

// claim starts to work on every unclaimed rebuild that is not paused, as far as there is room. It also makes the
// rebuilds under way check for new orders.
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
		if (out || rebuild.Paused) && !rebuild.Cancel {
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
		w := newWork(r, claimed, rebuild.State == domain.RebuildQueued)
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
	kick   chan struct{} // check for new orders
	orders chan struct{} // the rebuild was approved
	first  bool          // nobody has worked on it before
	placed bool          // it has one of the slots; read and written by run alone

	mu  sync.Mutex // held while the row is saved, so that saves stay in order
	row domain.Rebuild

	progress progress
}

func newWork(r *Rebuilds, claimed domain.Rebuild, first bool) *work {
	w := &work{r: r, kick: make(chan struct{}, 1), orders: make(chan struct{}, 1), first: first, placed: true, row: claimed}
	// The previous worker's count stands until this one knows what of it was saved.
	w.progress.done.Store(claimed.EventsDone)
	w.progress.total.Store(claimed.EventsTotal)
	return w
}

// leave gives the work's slot to another rebuild.
func (w *work) leave() {
	if w.placed {
		<-w.r.places
		w.placed = false
	}
}

// rest waits between two attempts, and then for a slot. A rebuild that fails repeatedly, because its database is
// reachable but unusable, must not make others wait.
func (w *work) rest(ctx context.Context, wait time.Duration) error {
	w.leave()
	w.r.Wake()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait):
	}
	return w.enterPlace(ctx)
}

// enterPlace waits for a slot.
func (w *work) enterPlace(ctx context.Context) error {
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

// run works on the rebuild until it has ended, another worker has it, or ctx ends.
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
	case err == nil && w.row.DryRun:
		final = domain.RebuildReported
	case err == nil:
		final = domain.RebuildSwapped
	case errors.As(err, &bad):
		final, w.row.Error = domain.RebuildFailed, bad.message
	case errors.Is(cause, errCancelled):
		final, w.row.Error = domain.RebuildCancelled, ""
	case errors.Is(cause, errTaken):
		log.Info("another worker has the rebuild, or it has ended")
		return
	case errors.Is(cause, errPaused):
		w.release(ctx, log)
		log.Info("a rebuild rests")
		return
	case errors.Is(err, errOutage):
		// Free its slot for others. The worker that claims it when the database is back continues from its checkpoints.
		w.release(ctx, log)
		log.Warn("a rebuild waits for its database", "database", w.row.Definition.Database)
		return
	default:
		// The process is shutting down. The next worker continues from the new build's checkpoints.
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
	w.r.settle(ctx, w.row)
	switch final {
	case domain.RebuildSwapped:
		w.r.swapTable(ctx, w.row.ProjectionID)
	case domain.RebuildReported:
		if err := w.r.DropRetired(ctx); err != nil && ctx.Err() == nil {
			log.Warn("what a dry run has made could not be dropped at once; trying again", "error", err)
		}
	}
}

// release gives the rebuild back, even if ctx has ended.
func (w *work) release(ctx context.Context, log *slog.Logger) {
	leaving, done := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer done()
	if err := w.r.config.Store.ReleaseRebuild(leaving, w.row); err != nil {
		log.Warn("a rebuild could not be given back; it will be taken over when it counts as abandoned", "error", err)
	}
}

// insist repeats attempts until one succeeds or fails for good. Progress is kept, so each attempt continues where the
// last one stopped.
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
		w.save(ctx, stop) // also shows whether it is still this worker's
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

// beat saves progress, and checks whether the rebuild is cancelled, paused or taken over, until ctx ends.
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

// save stores state and progress. It stops the work if the rebuild is cancelled, paused or no longer this worker's. It
// leaves other errors to the next save.
func (w *work) save(ctx context.Context, stop context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.row.EventsDone, w.row.EventsTotal = w.progress.events()
	w.row.EventsPerSecond = w.progress.rate(time.Now())
	saved, err := w.r.config.Store.BeatRebuild(ctx, w.row)
	switch {
	case domain.IsCode(err, domain.CodeConflict):
		stop(errTaken)
		return
	case err != nil:
		if ctx.Err() == nil {
			w.r.config.Log.Warn("a rebuild's progress could not be saved", "projection", w.row.Name, "rebuild", w.row.ID.String(), "error", err)
		}
		return
	case saved.Cancel:
		stop(errCancelled)
		return
	case saved.Paused:
		stop(errPaused)
		return
	}
	if w.row.Approved = saved.Approved; saved.Approved {
		select {
		case w.orders <- struct{}{}:
		default:
		}
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
	if phase(state) > phase(w.row.State) {
		w.row.State = state
	}
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

func phase(state domain.RebuildState) int {
	switch state {
	case domain.RebuildQueued:
		return 0
	case domain.RebuildBuilding:
		return 1
	case domain.RebuildCatchingUp:
		return 2
	case domain.RebuildValidating:
		return 3
	default:
		return 4
	}
}

// end ends the rebuild without a swap. It returns false if that failed; the next worker to claim the rebuild will end
// it.
func (w *work) end(ctx context.Context, state domain.RebuildState) bool {
	w.row.State = state
	w.row.EventsDone, w.row.EventsTotal = w.progress.events()
	for tries := 1; ; tries++ {
		err := w.letTenantsGo(ctx)
		if err == nil {
			err = w.r.config.Store.EndRebuild(ctx, w.row, w.dropAt(state))
		}
		if err == nil {
			return true
		}
		if domain.IsCode(err, domain.CodeConflict) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backoff(tries)):
		}
	}
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

// letTenantsGo resumes the tenants that the rebuild may have paused.
func (w *work) letTenantsGo(ctx context.Context) error {
	for _, tenant := range w.row.Tenants {
		if err := w.r.config.Store.ReleaseTenant(ctx, tenant, w.row); err != nil {
			return err
		}
	}
	return nil
}

// keep returns how long the replaced build stays.
func (r *Rebuilds) keep(row domain.Rebuild) time.Duration {
	if row.Keep > 0 {
		return row.Keep
	}
	return r.config.Keep
}

// settle cleans up after what a rebuild has ended or replaced.
func (r *Rebuilds) settle(ctx context.Context, row domain.Rebuild) {
	if err := r.config.Store.SettleTenantBuilds(ctx, time.Now().Add(r.keep(row))); err != nil && ctx.Err() == nil {
		r.config.Log.Warn("the tenants' builds that have ended could not all be cleared up; trying again", "error", err)
	}
}

// backoff returns how long to wait after tries in a row: 100 ms, doubled each time up to 30 s, minus up to a half at
// random.
func backoff(tries int) time.Duration {
	wait := min(100*time.Millisecond<<min(tries-1, 9), 30*time.Second)
	return wait - rand.N(wait/2)
}
