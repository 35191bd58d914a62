package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
)

func rebuildCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "rebuild", "Rebuild a projection",
		`Rebuild a projection over HTTP, from the request until the new build is swapped in. The limit is a plain SELECT of the same
rows over one connection.

With --rate, one tenant's log grows meanwhile, and its documents are read: by id at twice the rate, and as soon as they contain
an append. The figures are the latencies of reads before the rebuild, while it builds, and from its validation until a second
after its swap; and the live lag, from the answer to an append until a read with minPosition returns the document.

With --rare N, one event in N is of another type than the rest, and the projection folds only that type, of all
categories. The rate still counts all events of the log; with --rare 1 they are all of that type.`,
		rebuild, "events", "documents")
	command.Flags().IntVar(&f.rare, "rare", 0, "project only a type without naming categories; one event in this many is of it")
	command.Flags().Float64Var(&f.rate, "rate", 0, "events appended per second during the rebuild")
	command.Flags().DurationVar(&f.warmUp, "warm-up", time.Second, "with --rate: how long to run before measuring")
	command.Flags().DurationVar(&f.duration, "duration", 4*time.Second, "with --rate: how long to measure before the rebuild")
	f.projectionFlags(command)
	return command
}

func rebuild(ctx context.Context, r *run) error {
	definition := orders
	if r.rare > 0 {
		if r.rate > 0 {
			return errors.New("--rare and --rate cannot be combined: the events appended meanwhile are of other types")
		}
		definition = disputes
	}
	w, err := r.startLoaded(ctx)
	if err != nil {
		return err
	}
	r.log("projecting")
	if err := r.catchUp(ctx, w, w, definition, ordersPath); err != nil {
		return err
	}
	if err := execute(ctx, r.db.super, "checkpoint"); err != nil {
		return err
	}
	live, err := r.startRebuildLoad(ctx)
	if err != nil {
		return err
	}
	r.log("rebuilding")
	resetPeakMemory(r.service.process.Process.Pid)
	usage := r.watchUsage(ctx)
	times, err := runRebuild(ctx, w, nil)
	if err := errors.Join(err, live.stop(ctx, err == nil)); err != nil {
		return err
	}
	r.Name, r.Clients = r.projectionName("rebuild"), 1
	if r.rate > 0 {
		r.Name += fmt.Sprintf(" --rate %.0f", r.rate)
	}
	if r.rare > 0 {
		r.Name += fmt.Sprintf(" --rare %d", r.rare)
	}
	r.addUsagePerEvent(usage, int64(r.events))
	live.addFigures(&r.Result, times)
	return r.finish(ctx, load{events: int64(r.events), took: times.ended.Sub(times.asked)}, selectLimit)
}

// rebuildTimes are the times of a rebuild as its caller sees them.
type rebuildTimes struct{ asked, built, ended time.Time }

// runRebuild rebuilds the projection, with the options of a request, and returns when the new build is live.
func runRebuild(ctx context.Context, w *wire, options any) (times rebuildTimes, err error) {
	times.asked = time.Now()
	state, err := startRebuild(w, options)
	if err != nil {
		return times, err
	}
	err = poll(ctx, 20*time.Millisecond, func() (ended bool, err error) {
		ended, err = state.ended(w)
		if state.State == domain.RebuildValidating && times.built.IsZero() {
			times.built = time.Now()
		}
		return ended, err
	})
	if err != nil {
		return times, err
	}
	times.ended = time.Now()
	if times.built.IsZero() {
		times.built = times.ended // it ended between two polls
	}
	return times, nil
}

// rebuildState is a rebuild as the API shows it.
type rebuildState struct {
	ID, Error  string
	State      domain.RebuildState
	EventsDone int64
}

// startRebuild starts a rebuild of the projection orders, with the options of a request or without.
func startRebuild(w *wire, options any) (state *rebuildState, err error) {
	state = new(rebuildState)
	return state, w.json("POST", ordersPath+"/rebuilds", options, http.StatusAccepted, state)
}

// ended reads the state again, and reports whether the new build is live. A rebuild that has ended otherwise is an
// error.
func (s *rebuildState) ended(w *wire) (bool, error) {
	if err := w.json("GET", ordersPath+"/rebuilds/"+s.ID, nil, http.StatusOK, s); err != nil {
		return false, err
	}
	if s.State.Ended() && s.State != domain.RebuildSwapped {
		return false, fmt.Errorf("the rebuild is %s: %s", s.State, s.Error)
	}
	return s.State.Ended(), nil
}

// rebuildLoad is the load of a live tenant during a rebuild. Without --rate there is none.
type rebuildLoad struct {
	began       time.Time // after the warm-up
	lags, reads samples
	running     context.Context
	cancel      context.CancelCauseFunc
	clients     sync.WaitGroup
}

// afterSwap is how long the load continues after the swap.
const afterSwap = time.Second

// startRebuildLoad returns when there are enough measurements from before the rebuild.
func (r *run) startRebuildLoad(ctx context.Context) (*rebuildLoad, error) {
	l := &rebuildLoad{began: time.Now().Add(r.warmUp)}
	l.running, l.cancel = context.WithCancelCause(ctx)
	if r.rate <= 0 {
		return l, nil
	}
	const appenders, waiting, reading = 2, 16, 4
	wires, err := r.connect(appenders + waiting + reading)
	if err != nil {
		return nil, err
	}
	live := lagLoad{appenders: wires[:appenders], readers: wires[appenders : appenders+waiting], rate: r.rate, readAll: true, record: l.lags.add}
	l.clients.Go(func() {
		if _, err := live.drive(l.running, 0, time.Hour); err != nil {
			l.cancel(err)
		}
	})
	documents := max(1, r.documents/max(1, r.tenants)) // of this tenant, as they were preloaded
	for i, w := range wires[appenders+waiting:] {
		l.clients.Go(func() {
			if err := l.read(w, i, documents, time.Duration(reading/(2*r.rate)*float64(time.Second))); err != nil {
				l.cancel(err)
			}
		})
	}
	pause(l.running, r.warmUp+r.duration)
	if l.running.Err() != nil {
		return nil, errors.Join(context.Cause(l.running), l.stop(ctx, false))
	}
	return l, nil
}

// read reads a document in each interval. Its latency counts from the time when the read should have begun.
func (l *rebuildLoad) read(w *wire, seed, documents int, interval time.Duration) error {
	random := rand.New(rand.NewPCG(uint64(seed), 21))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-l.running.Done():
			return nil
		case due := <-tick.C:
			_, err := w.do("GET", fmt.Sprintf("%s/documents/order-%d", ordersPath, random.IntN(documents)), "", nil, http.StatusOK)
			if err != nil && !hasStatus(err, http.StatusNotFound) { // the events are of random streams, so some have none
				return err
			}
			l.reads.add(due, time.Since(due))
		}
	}
}

// stop ends the load, some time after the swap if there was one. It returns the error that stopped the load earlier, if
// any.
func (l *rebuildLoad) stop(ctx context.Context, swapped bool) error {
	if swapped {
		pause(l.running, afterSwap)
	}
	err := context.Cause(l.running)
	l.cancel(errEnough)
	l.clients.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (l *rebuildLoad) addFigures(r *Result, t rebuildTimes) {
	end := t.ended.Add(afterSwap)
	r.addFigure(t.built.Sub(t.asked).Seconds(), "s", "from the request until the new build is validated")
	r.addFigure(t.ended.Sub(t.built).Seconds(), "s", "from then until it is live")
	r.addLatencies(l.lags.between(l.began, t.asked), "live lag before")
	r.addLatencies(l.lags.between(t.asked, end), "live lag meanwhile")
	r.addLatencies(l.reads.between(l.began, t.asked), "readers before")
	r.addLatencies(l.reads.between(t.asked, t.built), "readers while it builds")
	r.addLatencies(l.reads.between(t.built, end), "readers during the swap")
}
