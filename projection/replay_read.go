package projection

import (
	"context"
	"runtime"
	"slices"
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
// once for many of them. Readings of 20,000 events take more memory and are no faster.
var CatchUpLimits = Limits{Events: 10_000, Bytes: 8 << 20, DocumentBytes: 32 << 20}

// followLimits are for a log that is followed closely.
var followLimits = Limits{Events: 1000, Bytes: 8 << 20, DocumentBytes: 32 << 20}

// after returns the limits after a number of failures in a row: half as much for each.
func (l Limits) after(failures int) Limits {
	part := func(whole, least int) int { return min(whole, max(least, whole>>min(failures, 16))) }
	return Limits{Events: part(l.Events, 10), Bytes: part(l.Bytes, 64<<10), DocumentBytes: part(l.DocumentBytes, 64<<10)}
}

// read reads the events of a projection from a position on.
type read func(ctx context.Context, q domain.LogQuery) (domain.Reading, error)

// prepared is a reading whose events have keys. An event that belongs to several documents is in events once for each
// of them, so that each of these can be folded by itself.
type prepared struct {
	reading domain.Reading
	events  []folding.Event
	keys    []string              // of each of events; "" where it is not for this projection
	from    int64                 // the first requested position
	upTo    int64                 // the checkpoint when all events are applied
	more    bool                  // the reading was cut off: the log continues after it
	bytes   int                   // of the reading's data and metadata
	grown   int                   // bytes that the events have grown by
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

// prepare applies the same upcasters to all events of a reading, and computes their keys. If the events become too
// large to hold by that, it leaves the rest to the next reading. Its error is ctx's cause.
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
	growth := growth{meter: meter, set: set, most: readingGrowth * q.MaxBytes}
	faults := make([][]*folding.EventError, workersFor(ctx, len(p.events)))
	chunk := (len(p.events) + len(faults) - 1) / len(faults)
	stopped := make([]int, len(faults)) // how many of the reading's events each worker processed, if it stopped early
	further := make([][]furtherTargets, len(faults))
	parallel(len(faults), func(worker int) {
		var targets []folding.Target
		end := min(len(p.events), (worker+1)*chunk)
		for i := worker * chunk; i < end; i++ {
			if !meter.SpendBytes(len(p.events[i].Data) + len(p.events[i].Metadata)) {
				return
			}
			var fault *folding.EventError
			sees := reading.Events[i].Gap == nil && f.Sees(&reading.Events[i]) // an event without data is for no document
			if sees {
				fault = growth.upcast(&reading.Events[i])
			}
			if sees && fault == nil {
				targets, fault = f.Targets(targets[:0], &p.events[i])
			}
			if fault != nil {
				faults[worker] = append(faults[worker], fault)
			} else if sees && len(targets) > 0 {
				p.keys[i] = targets[0].ID
				p.events[i].Into(targets[0])
				if len(targets) > 1 {
					further[worker] = append(further[worker], furtherTargets{i, slices.Clone(targets[1:])})
				}
				growth.add(targets)
			}
			if i+1 < end && growth.full() {
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
	p.grown = int(growth.bytes.Load())
	p.spread(slices.Concat(further...))
	return p, nil
}

// furtherTargets are the targets of an event after its first.
type furtherTargets struct {
	event   int
	targets []folding.Target
}

// spread puts events with several targets into p.events once for each.
func (p *prepared) spread(further []furtherTargets) {
	more := 0
	for _, f := range further {
		if f.event < len(p.events) {
			more += len(f.targets)
		}
	}
	if more == 0 {
		return
	}
	events, keys := make([]folding.Event, 0, len(p.events)+more), make([]string, 0, len(p.events)+more)
	for i := range p.events {
		events, keys = append(events, p.events[i]), append(keys, p.keys[i])
		if len(further) == 0 || further[0].event != i {
			continue
		}
		for _, target := range further[0].targets {
			events, keys = append(events, p.events[i].CopyInto(target)), append(keys, target.ID)
		}
		further = further[1:]
	}
	p.events, p.keys = events, keys
}

// countEvents returns how many events there are among events that are listed once for each of their documents.
func countEvents(events []folding.Event) (n int) {
	for i := range events {
		if beginsEvent(events, i) {
			n++
		}
	}
	return n
}

// beginsEvent reports whether the event at an index is another than the one before it.
func beginsEvent(events []folding.Event, i int) bool {
	return i == 0 || events[i].Event != events[i-1].Event
}

// growth counts the memory that a reading takes beyond its events as recorded, from several goroutines. However small
// the reading was, its events may grow by their upcasters, and may belong to many documents.
type growth struct {
	meter *expr.Meter
	set   *upcasting.Set
	most  int // bytes that the reading may grow by
	bytes atomic.Int64
}

// full reports whether the reading has grown to its limit: the remaining events are left to the next one.
func (g *growth) full() bool { return g.bytes.Load() > int64(g.most) }

// upcast upcasts an event.
func (g *growth) upcast(event *domain.Event) *folding.EventError {
	if !g.set.Concerns(event.Type) {
		return nil
	}
	before := len(event.Data) + len(event.Metadata)
	if fault := folding.Upcast(g.meter, g.set, event); fault != nil {
		return fault
	}
	if bytes := len(event.Data) + len(event.Metadata) - before; bytes > 0 {
		g.bytes.Add(int64(bytes))
	}
	return nil
}

// add counts the targets of an event, except for a single id.
func (g *growth) add(targets []folding.Target) {
	if len(targets) == 1 && targets[0].Item == nil {
		return
	}
	bytes := 0
	for i := range targets {
		if bytes += targetBytes + len(targets[i].ID); targets[i].Item != nil {
			bytes += expr.Size(targets[i].Item)
		}
	}
	g.bytes.Add(int64(bytes))
}

// targetBytes is about what a target costs in memory besides its texts.
const targetBytes = 600

// readingGrowth is how many times its limit a reading may grow by.
const readingGrowth = 2

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
