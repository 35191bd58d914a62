package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
)

func rebuildCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "rebuild", "Rebuild a projection", rebuild)
	command.Long = `Rebuild a projection over HTTP, from the request until the new build is swapped in. The limit is a plain SELECT of the same
rows over one connection.

With --rate, one tenant's log grows meanwhile, and its documents are read: by id at twice the rate, and as soon as each append is in
them. What readers wait is then shown before the rebuild, while it builds, and from its validation until a second behind its
swap; and the live lag, from an append's answer until a read with minPosition gives the document with it.`
	command.Flags().Float64Var(&f.rate, "rate", 0, "events appended a second beside the rebuild")
	command.Flags().DurationVar(&f.warmUp, "warm-up", time.Second, "with --rate: how long the load runs before it is measured")
	command.Flags().DurationVar(&f.duration, "duration", 4*time.Second, "with --rate: how long it is measured before the rebuild")
	return projectionFlags(f, command)
}

func rebuild(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	s, w, err := loaded(ctx, f, progress)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		err = errors.Join(err, s.drop(ctx, f, w, ordersPath))
		w.close()
		err = errors.Join(err, s.close())
	}()
	fmt.Fprintln(progress, "projecting ...")
	if err := s.catchUp(ctx, f, w); err != nil {
		return Result{}, err
	}
	if err := execute(ctx, s.db.super, "checkpoint"); err != nil {
		return Result{}, err
	}
	live, err := s.beside(ctx, f)
	if err != nil {
		return Result{}, err
	}
	fmt.Fprintln(progress, "rebuilding ...")
	if s.process != nil {
		resetPeakMemory(s.process.Process.Pid)
	}
	cpu := s.watch(ctx)
	times, err := runRebuild(ctx, w)
	if err := errors.Join(err, live.end(ctx, err == nil)); err != nil {
		return Result{}, err
	}
	result := Result{Name: f.named("rebuild"), Clients: 1}
	if f.rate > 0 {
		result.Name += fmt.Sprintf(" --rate %.0f", f.rate)
	}
	result.take(load{events: int64(f.events), took: times.ended.Sub(times.asked)})
	result.tellUsageOf(cpu, int64(f.events))
	live.tell(&result, times)
	err = s.finish(ctx, &result, "SELECT of the same rows", selectLimit, progress)
	return result, err
}

// rebuildTimes are the times of a rebuild as its caller sees them.
type rebuildTimes struct{ asked, built, ended time.Time }

// runRebuild rebuilds the projection and returns when the new build is live.
func runRebuild(ctx context.Context, w *wire) (times rebuildTimes, err error) {
	times.asked = time.Now()
	status, answer, err := w.do("POST", ordersPath+"/rebuilds", "", nil)
	var r struct {
		ID, State, Error string
		Documents        int
	}
	if err := errors.Join(want(status, http.StatusAccepted, answer, err), json.Unmarshal(answer, &r)); err != nil {
		return times, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !domain.RebuildState(r.State).Ended() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return times, context.Cause(ctx)
		}
		status, answer, err := w.do("GET", ordersPath+"/rebuilds/"+r.ID, "", nil)
		if err := errors.Join(want(status, http.StatusOK, answer, err), json.Unmarshal(answer, &r)); err != nil {
			return times, err
		}
		if domain.RebuildState(r.State) == domain.RebuildValidating && times.built.IsZero() {
			times.built = time.Now()
		}
	}
	times.ended = time.Now()
	if times.built.IsZero() {
		times.built = times.ended // it ended between two polls
	}
	if domain.RebuildState(r.State) != domain.RebuildSwapped {
		return times, fmt.Errorf("the rebuild %s: %s", r.State, r.Error)
	}
	return times, nil
}

// besideRebuild is the load of a live tenant during a rebuild. Without --rate there is none.
type besideRebuild struct {
	began       time.Time // after the warm-up
	lags, reads samples
	stop        context.CancelCauseFunc
	running     context.Context
	done        sync.WaitGroup
	wires       []*wire
}

// behindSwap is how long the load continues after the swap.
const behindSwap = time.Second

// beside starts the load, and returns when there are enough measurements for comparison.
func (s *service) beside(ctx context.Context, f *flags) (*besideRebuild, error) {
	b := &besideRebuild{}
	b.running, b.stop = context.WithCancelCause(ctx)
	if f.rate <= 0 {
		return b, nil
	}
	const appenders, waiting, reading = 2, 16, 4
	var err error
	if b.wires, err = s.connect(appenders + waiting + reading); err != nil {
		b.stop(err)
		return nil, err
	}
	live := lagLoad{
		appenders: b.wires[:appenders], readers: b.wires[appenders : appenders+waiting], path: ordersPath,
		rate: f.rate, every: true, record: b.lags.add,
	}
	b.began = time.Now().Add(f.warmUp)
	b.done.Go(func() {
		if _, err := live.drive(b.running, 0, time.Hour); err != nil {
			b.stop(err)
		}
	})
	documents := max(1, f.documents/max(1, f.tenants)) // of this tenant, as they were preloaded
	for i, w := range b.wires[appenders+waiting:] {
		b.done.Go(func() {
			if err := b.read(w, i, documents, time.Duration(reading/(2*f.rate)*float64(time.Second))); err != nil {
				b.stop(err)
			}
		})
	}
	pause(b.running, f.warmUp+f.duration)
	if b.running.Err() != nil {
		return nil, errors.Join(context.Cause(b.running), b.end(ctx, false))
	}
	return b, nil
}

// read reads a document in each interval. Its latency counts from the time when the read should have begun.
func (b *besideRebuild) read(w *wire, seed, documents int, interval time.Duration) error {
	random := rand.New(rand.NewPCG(uint64(seed), 21))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-b.running.Done():
			return nil
		case due := <-tick.C:
			status, answer, err := w.do("GET", fmt.Sprintf("%s/documents/order-%d", ordersPath, random.IntN(documents)), "", nil)
			if status == http.StatusNotFound {
				status = http.StatusOK // streams are chosen at random, so some have no event
			}
			if err := want(status, http.StatusOK, answer, err); err != nil {
				return err
			}
			b.reads.add(due, time.Since(due))
		}
	}
}

// end ends the load, after observing the time after the swap if there was one. It returns the error that stopped the
// load, if any.
func (b *besideRebuild) end(ctx context.Context, swapped bool) error {
	if swapped && len(b.wires) > 0 {
		pause(b.running, behindSwap)
	}
	err := context.Cause(b.running)
	b.stop(errEnough)
	b.done.Wait()
	disconnect(b.wires)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (b *besideRebuild) tell(r *Result, t rebuildTimes) {
	end := t.ended.Add(behindSwap)
	r.tell(t.built.Sub(t.asked).Seconds(), "s", "from the request until the new build is validated")
	r.tell(t.ended.Sub(t.built).Seconds(), "s", "from then until it is live")
	r.tellLatencies(b.lags.between(b.began, t.asked), "live lag before")
	r.tellLatencies(b.lags.between(t.asked, end), "live lag meanwhile")
	r.tellLatencies(b.reads.between(b.began, t.asked), "readers before")
	r.tellLatencies(b.reads.between(t.asked, t.built), "readers while it builds")
	r.tellLatencies(b.reads.between(t.built, end), "readers during the swap")
}
