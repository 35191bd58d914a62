package projection

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/expr"
)

// slice is a part of a reading that is folded at once.
type slice struct {
	events []Event
	keys   []string
	upTo   int64 // the position that it leads to
}

// chain is the events of one document within a slice, in order.
type chain struct {
	id    string
	first int32 // index of its first event
	last  int32
}

// outcome is what became of one document.
type outcome struct {
	touched bool            // at least one event was applied
	version int64           // the position last applied
	value   Value           // the document in the handler's form, where that can be kept
	data    json.RawMessage // the document as it is stored; neither: removed
	fault   *EventError     // an event that cannot be folded
	bad     *EventError     // the document that came out cannot be written
}

// gather folds a reading. What comes out may be saved later, together with what follows: finish, or apply, saves all. It
// returns the reading's fault as its error, after everything before it was saved.
func (r *Replay) gather(ctx context.Context, p *prepared) error {
	if err := r.sift(ctx, p); err != nil {
		return err
	}
	for start := 0; start < len(p.events); {
		n := r.fit(p.keys[start:])
		s := slice{events: p.events[start : start+n], keys: p.keys[start : start+n]}
		start += n
		if s.upTo = p.upTo; start < len(p.events) {
			s.upTo = s.events[n-1].Position
		}
		if err := r.gatherSlice(ctx, s); err != nil {
			return err
		}
	}
	r.gathered.upTo = max(r.gathered.upTo, p.upTo)
	if p.fault != nil {
		if err := r.flush(ctx); err != nil {
			return err
		}
		return p.fault
	}
	return nil
}

// apply is gather for a reading that nothing follows: all is saved when it returns.
func (r *Replay) apply(ctx context.Context, p *prepared) error {
	if err := r.gather(ctx, p); err != nil {
		return err
	}
	return r.flush(ctx)
}

// fit returns how many of the events touch no more documents than should be in memory at once.
func (r *Replay) fit(keys []string) int {
	if r.at.atOnce > 0 {
		keys = keys[:min(len(keys), max(1, r.at.atOnce-r.gathered.events))]
	}
	most := 1000 // until it is known how large they are
	if r.documentBytes > 0 {
		most = max(16, r.Limits.DocumentBytes/2/(heldBytes+valueBytes*r.documentBytes))
	}
	if most >= len(keys) {
		return len(keys)
	}
	seen := make(map[string]struct{}, most)
	for i, key := range keys {
		if _, ok := seen[key]; !ok && key != "" {
			if len(seen) == most {
				return i
			}
			seen[key] = struct{}{}
		}
	}
	return len(keys)
}

// gatherSlice folds one slice onto what is known of its documents. Where a document comes out that cannot be written, it
// halves the slice until the event that made it so stands alone. An event that cannot be folded parks its document, or
// stops the folding before it.
func (r *Replay) gatherSlice(ctx context.Context, s slice) error {
	chains, next := r.Fold.chainsOf(s.keys)
	before, err := r.before(ctx, chains)
	if err != nil {
		return err
	}
	meter := expr.MeterOf(ctx)
	outcomes, err := r.Fold.foldChains(ctx, meter, s.events, chains, next, before)
	if err != nil {
		return err
	}
	var fault *EventError
	bad := false
	for i := range outcomes {
		o := &outcomes[i]
		if o.bad != nil && len(s.events) == 1 {
			*o = outcome{fault: o.bad} // the event that made it so
		}
		if o.fault != nil {
			o.cut(r.Fold, meter, s.events, chains[i], next, &before[i])
		}
		fault = earlier(fault, o.fault)
		bad = bad || o.bad != nil
	}
	if fault != nil && r.parks() && !bad {
		fault = r.parkFaults(s, chains, next, outcomes)
	}
	switch {
	case fault != nil && !(r.parks() && bad):
		// Everything before the event is good: folding is deterministic, so it comes out the same once more without it.
		n := 0
		for s.events[n].Position < fault.Event.Position {
			n++
		}
		err := r.gatherSlice(ctx, slice{events: s.events[:n], keys: s.keys[:n], upTo: fault.Event.Position - 1})
		if err == nil {
			err = r.flush(ctx)
		}
		if err != nil {
			return err
		}
		return fault
	case bad:
		half := len(s.events) / 2
		if err := r.gatherSlice(ctx, slice{events: s.events[:half], keys: s.keys[:half], upTo: s.events[half-1].Position}); err != nil {
			return err
		}
		return r.gatherSlice(ctx, slice{events: s.events[half:], keys: s.keys[half:], upTo: s.upTo})
	}
	r.take(s, chains, before, outcomes)
	if r.due() {
		if err := r.push(ctx); err != nil {
			return err
		}
	}
	if r.at.atOnce > 0 {
		return r.await()
	}
	return nil
}

func earlier(a, b *EventError) *EventError {
	if a == nil || b != nil && b.Event.Position < a.Event.Position {
		return b
	}
	return a
}

// chainsOf groups events by key. next[i] is the index of the event that follows event i in its document, or -1.
func (f *Fold) chainsOf(keys []string) (chains []chain, next []int32) {
	next = make([]int32, len(keys))
	if f.mapper != nil && f.mapper.distinct() {
		chains = make([]chain, 0, len(keys))
		for i, key := range keys {
			next[i] = -1
			if key != "" {
				chains = append(chains, chain{id: key, first: int32(i), last: int32(i)})
			}
		}
		return chains, next
	}
	index := make(map[string]int32, min(len(keys), 4096))
	for i, key := range keys {
		next[i] = -1
		if key == "" {
			continue
		}
		c, ok := index[key]
		if !ok {
			index[key] = int32(len(chains))
			chains = append(chains, chain{id: key, first: int32(i), last: int32(i)})
			continue
		}
		next[chains[c].last] = int32(i)
		chains[c].last = int32(i)
	}
	return chains, next
}

// before returns what is there of the chains' documents before their first events, in their order. What is not known is
// loaded, also while a save is under way: what that writes is known.
func (r *Replay) before(ctx context.Context, chains []chain) ([]held, error) {
	all := make([]held, len(chains))
	if r.Fold.Maps() {
		// A record does not depend on what is there. That of a later event, if there is one, the database keeps.
		for i := range all {
			all[i].there = !r.Fold.mapper.distinct()
		}
		return all, nil
	}
	var ids []string
	var where []int
	for i := range chains {
		var ok bool
		if all[i], ok = r.known.get(chains[i].id); !ok {
			ids, where = append(ids, chains[i].id), append(where, i)
		}
	}
	if len(ids) == 0 {
		return all, nil
	}
	documents, err := r.Driver.Load(ctx, r.Build, r.Tenant, ids)
	if err != nil {
		return nil, fmt.Errorf("load the documents of build %d of projection %q: %w", r.Build.Number, r.Build.Name, err)
	}
	loaded := make(map[string]held, len(documents))
	for _, d := range documents {
		loaded[d.ID] = held{version: d.Version, data: d.Data, there: true}
	}
	for j, i := range where {
		all[i] = loaded[ids[j]]
	}
	return all, nil
}

// take keeps what became of a slice's documents until it is saved.
func (r *Replay) take(s slice, chains []chain, before []held, outcomes []outcome) {
	g := &r.gathered
	bytes, touched := 0, 0
	for i := range outcomes {
		o := &outcomes[i]
		if !o.touched {
			continue
		}
		id := chains[i].id
		h := held{version: o.version, value: o.value, data: o.data, there: before[i].there, changed: g.number()}
		g.weight += h.weight(id)
		if was, ok := r.known.unsaved(id, g.number()); ok {
			g.weight -= was.weight(id)
		} else {
			if len(g.changed) == 0 {
				g.since = time.Now()
			}
			g.changed = append(g.changed, id)
			g.before = before[i]
		}
		r.known.put(id, h)
		bytes, touched = bytes+h.size(), touched+1
	}
	if r.documentBytes == 0 && touched > 0 {
		r.documentBytes = max(1, bytes/touched) // until they are written and it is known exactly
	}
	if n := len(s.events); n > 0 {
		if g.events += n; g.events == 1 {
			g.only = s.events[0].Event
		} else {
			g.only = nil
		}
		if touched == 0 {
			r.at.passed = s.events[n-1].Position
		}
		r.count(n)
	}
	g.upTo = max(g.upTo, s.upTo)
}

// chainsAtOnce is how many documents a goroutine takes at a time: few enough to keep all processors busy to the end.
const chainsAtOnce = 32

// foldChains folds each document's events into it, documents beside one another. The error is ctx's cause.
func (f *Fold) foldChains(ctx context.Context, meter *expr.Meter, events []Event, chains []chain, next []int32, before []held) ([]outcome, error) {
	outcomes := make([]outcome, len(chains))
	var taken atomic.Int64
	parallel(workersFor(ctx, len(events)), func(int) {
		for {
			from := int(taken.Add(chainsAtOnce)) - chainsAtOnce
			if from >= len(chains) {
				return
			}
			for i := from; i < min(len(chains), from+chainsAtOnce) && ctx.Err() == nil; i++ {
				outcomes[i] = f.foldUpTo(meter, events, chains[i], next, &before[i], math.MaxInt64)
			}
		}
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return outcomes, nil
}

// foldUpTo folds a document's events into it, of those that are before a position. Those at or below the document's version
// took effect before: in a database without transactions a batch may have been saved in part. What it returns means nothing
// where meter has ended it.
func (f *Fold) foldUpTo(meter *expr.Meter, events []Event, c chain, next []int32, before *held, below int64) (o outcome) {
	if f.mapper != nil {
		return f.mapChain(meter, events, c, next, before, below)
	}
	var doc Value
	last := int32(-1)
	for i := c.first; i >= 0; i = next[i] {
		event := &events[i]
		if event.Position <= before.version {
			continue
		}
		if event.Position >= below || !meter.Spend(1) {
			break
		}
		if doc == nil {
			if !o.touched {
				doc = before.value
			}
			if doc == nil {
				// The stored document before the first event; after a removal, and where there is none, the initial one.
				var data []byte
				if !o.touched {
					data = before.data
				}
				var err error
				if doc, err = f.handler.Decode(data); err != nil {
					o.fault = f.blame(event, f.where(event.Type), err)
					return o
				}
			}
		}
		if doc, o.fault = f.next(doc, event.within(meter)); o.fault != nil {
			return o
		}
		event.bound = nil // what was parsed for it can go
		o.touched, last = true, i
	}
	if !o.touched {
		return o
	}
	o.version = events[last].Position
	switch {
	case doc == nil:
	case f.definition.Handler == "":
		o.value = doc
	default:
		// Go code may change the document that it is given: so what is kept is the text, from which each batch begins anew.
		o.data, o.bad = f.encode(doc, &events[last])
	}
	return o
}

// mapChain is foldUpTo of a map: the last record that its events make.
func (f *Fold) mapChain(meter *expr.Meter, events []Event, c chain, next []int32, before *held, below int64) (o outcome) {
	var last *Event
	for i := c.first; i >= 0; i = next[i] {
		event := &events[i]
		if event.Position <= before.version {
			continue
		}
		if event.Position >= below || !meter.Spend(1) {
			break
		}
		var record Value
		if record, o.fault = f.next(nil, event.within(meter)); o.fault != nil {
			return o
		}
		event.bound = nil
		if record != nil {
			o.touched, o.value, last = true, record, event
		}
	}
	if o.touched {
		o.version = last.Position
		if f.definition.Handler != "" {
			o.data, o.bad = f.encode(o.value, last)
			o.value = nil
		}
	}
	return o
}

// cut makes of an outcome that ended with a fault that of the events before it, and tells the fault whose document it is of
// and how that was.
func (o *outcome) cut(f *Fold, meter *expr.Meter, events []Event, c chain, next []int32, before *held) {
	fault := o.fault
	*o = f.foldUpTo(meter, events, c, next, before, fault.Event.Position)
	o.fault = fault
	fault.DocumentID = c.id
	was := *before
	if o.touched {
		was = held{value: o.value, data: o.data}
	}
	fault.tellBefore(f, &was)
}
