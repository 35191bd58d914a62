package projection

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// Limits bound what a Replay holds in memory. It reads the next reading while it folds one, so it holds twice as many
// events.
type Limits struct {
	Events        int // of a reading, at most
	Bytes         int // of their data and metadata, approximately
	DocumentBytes int // memory for documents, approximately; up to half of it is unsaved, and is then saved at once
}

// CatchUpLimits are for a log that is far ahead. They hold enough documents that one touched by many events is written
// once for many of them.
var CatchUpLimits = Limits{Events: 20_000, Bytes: 8 << 20, DocumentBytes: 32 << 20}

// followLimits are for a log that is followed closely.
var followLimits = Limits{Events: 1000, Bytes: 8 << 20, DocumentBytes: 32 << 20}

// after returns the limits after a number of failures in a row: half as much for each.
func (l Limits) after(failures int) Limits {
	part := func(whole, least int) int { return min(whole, max(least, whole>>min(failures, 16))) }
	return Limits{Events: part(l.Events, 10), Bytes: part(l.Bytes, 64<<10), DocumentBytes: part(l.DocumentBytes, 64<<10)}
}

// read reads the events of a projection from a position on.
type read func(ctx context.Context, q domain.LogQuery) (domain.Reading, error)

// prepared is a reading whose events have keys.
type prepared struct {
	reading domain.Reading
	events  []folding.Event
	keys    []string              // of each event; "" where it is not for this projection
	from    int64                 // the first requested position
	upTo    int64                 // the checkpoint when all events are applied
	more    bool                  // the reading was cut off: the log continues after it
	bytes   int                   // of the reading's data and metadata
	faults  []*folding.EventError // of events whose keys cannot be computed, in order
	fault   *folding.EventError   // the fault before which the reading was cut off
	began   time.Time             // when the reading began
}

// last returns the reading's last event.
func (p *prepared) last() *folding.Event { return &p.events[len(p.events)-1] }

// fetched is a reading that runs in the background.
type fetched struct {
	done     chan struct{}
	prepared *prepared
	err      error
}

// fetch reads the events from position from up to position to (0: up to the head), applies the upcasters in force, and
// computes the events' keys. Its goroutine ends when ctx does.
func (r *Replay) fetch(ctx context.Context, read read, from, to int64, limits Limits) *fetched {
	source := r.Fold.Definition().Source
	return r.fetchQuery(ctx, read, domain.LogQuery{
		From: from, To: to, Limit: r.eventsPerReading(limits), MaxBytes: limits.Bytes,
		Categories: source.Categories, Types: r.Fold.Types(), Query: source.Query.Items,
	})
}

func (r *Replay) fetchQuery(ctx context.Context, read read, q domain.LogQuery) *fetched {
	f := &fetched{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		if r.Turn != nil {
			if f.err = r.Turn(ctx); f.err != nil {
				return
			}
		}
		began := time.Now()
		reading, err := read(ctx, q)
		if err != nil {
			f.err = err
			return
		}
		set, err := r.Fold.Upcasters().At(ctx, r.Tenant, reading.Upcasters)
		if err != nil {
			f.err = err
			return
		}
		if f.prepared, f.err = prepare(ctx, r.Fold, reading, q, set); f.err == nil {
			f.prepared.began = began
		}
	}()
	return f
}

// firstEvents is how many events are read first, while their size is unknown.
const firstEvents = 1000

// eventsPerReading returns how many events of the recent size fit into a batch's bytes. The limit on bytes alone is not
// enough: a store may read more events than it returns.
func (r *Replay) eventsPerReading(limits Limits) int {
	if r.eventBytes == 0 {
		return min(limits.Events, firstEvents)
	}
	return min(limits.Events, max(100, limits.Bytes/r.eventBytes))
}

// wait returns the result of fetch.
func (f *fetched) wait() (*prepared, error) {
	<-f.done
	return f.prepared, f.err
}

// prepare applies the same upcasters to all events of a reading, and computes their keys. If upcasting makes the events
// too large to hold, it leaves the rest to the next reading. Its error is ctx's cause.
func prepare(ctx context.Context, f *folding.Fold, reading domain.Reading, q domain.LogQuery, set *upcasting.Set) (*prepared, error) {
	meter := expr.MeterOf(ctx)
	p := &prepared{reading: reading, from: q.From, upTo: reading.Head}
	if q.To > 0 {
		p.upTo = q.To
	}
	for i := range reading.Events {
		p.bytes += reading.Events[i].Bytes()
	}
	if n := len(reading.Events); n > 0 {
		last := reading.Events[n-1].Position
		// The store does not say whether it stopped because of the bytes, and may count them slightly differently. So
		// anything near the limit counts as cut off. At worst the next reading is empty.
		p.more = n >= q.Limit || p.bytes >= q.MaxBytes/2
		if p.more || p.upTo < last {
			p.upTo = last
		}
	}
	p.events = make([]folding.Event, len(reading.Events))
	for i := range reading.Events {
		p.events[i] = folding.NewEvent(&reading.Events[i], meter)
	}
	p.keys = make([]string, len(p.events))
	upcasts := upcasts{meter: meter, set: set, most: upcastGrowth * q.MaxBytes}
	faults := make([][]*folding.EventError, workersFor(ctx, len(p.events)))
	chunk := (len(p.events) + len(faults) - 1) / len(faults)
	stopped := make([]int, len(faults)) // how many of the reading's events each worker processed, if it stopped early
	parallel(len(faults), func(worker int) {
		end := min(len(p.events), (worker+1)*chunk)
		for i := worker * chunk; i < end; i++ {
			if !meter.SpendBytes(len(p.events[i].Data) + len(p.events[i].Metadata)) {
				return
			}
			var fault *folding.EventError
			sees := reading.Events[i].Gap == nil && f.Sees(&reading.Events[i]) // an event without data is for no document
			if sees {
				fault = upcasts.apply(&reading.Events[i])
			}
			if sees && fault == nil {
				p.keys[i], _, fault = f.Key(&p.events[i])
			}
			if fault != nil {
				faults[worker] = append(faults[worker], fault)
			}
			if i+1 < end && upcasts.full() {
				stopped[worker] = i + 1
				return
			}
		}
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for worker, n := range stopped {
		p.faults = append(p.faults, faults[worker]...)
		if n > 0 {
			p.events, p.keys = p.events[:n], p.keys[:n]
			p.upTo, p.more = p.events[n-1].Position, true
			break
		}
	}
	return p, nil
}

// upcasts applies the upcasters to the events of one reading, from several goroutines. Events may grow by that, however
// small the reading was, so the growth is counted.
type upcasts struct {
	meter *expr.Meter
	set   *upcasting.Set
	most  int // bytes that they may grow by
	grown atomic.Int64
}

// full reports whether the reading has grown to its limit: the remaining events are left to the next one.
func (u *upcasts) full() bool { return u.grown.Load() > int64(u.most) }

// apply upcasts an event.
func (u *upcasts) apply(event *domain.Event) *folding.EventError {
	if !u.set.Concerns(event.Type) {
		return nil
	}
	before := len(event.Data) + len(event.Metadata)
	if fault := folding.Upcast(u.meter, u.set, event); fault != nil {
		return fault
	}
	if growth := len(event.Data) + len(event.Metadata) - before; growth > 0 {
		u.grown.Add(int64(growth))
	}
	return nil
}

// upcastGrowth is how many times larger than its limit a reading may become by upcasting.
const upcastGrowth = 2

// stopBefore drops the faulty event and those after it.
func (p *prepared) stopBefore(fault *folding.EventError) {
	n := 0
	for n < len(p.events) && p.events[n].Position < fault.Event.Position {
		n++
	}
	p.events, p.keys = p.events[:n], p.keys[:n]
	p.fault, p.upTo, p.more = fault, fault.Event.Position-1, false
}

// parallelFrom is the number of events from which on folding is spread over the processors.
const parallelFrom = 512

func workersFor(ctx context.Context, events int) int {
	if events < parallelFrom || budget.Bounded(ctx) {
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// parallel calls do with 0 to n-1, each in its own goroutine, and returns when all have returned.
func parallel(n int, do func(worker int)) {
	if n == 1 {
		do(0)
		return
	}
	var all sync.WaitGroup
	for worker := range n {
		all.Go(func() { do(worker) })
	}
	all.Wait()
}
