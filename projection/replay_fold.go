package projection

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/folding"
)

// slice is a part of a reading that is folded in one step. It has whole events: all entries of each of them, see
// prepared.
type slice struct {
	events []folding.Event
	keys   []string
	upTo   int64 // the checkpoint after the slice
}

// chain is the events of one document within a slice, in order.
type chain struct {
	id    string
	first int32 // index of its first event
	last  int32
}

// outcome is the result of folding one document.
type outcome struct {
	touched    bool                // at least one event was applied
	version    int64               // the position of the last applied event
	value      folding.Value       // the document in the handler's form, if that can be kept
	data       json.RawMessage     // the document as stored; with neither value nor data it is removed
	fault      *folding.EventError // an event that cannot be folded
	unwritable *folding.EventError // the resulting document cannot be written
}

// foldReading folds a reading. The results may be saved later, together with later readings; finish and apply save
// everything. If the reading has a fault, foldReading saves everything before it and returns the fault as its error.
func (r *Replay) foldReading(ctx context.Context, p *prepared) error {
	if err := r.excludeEvents(ctx, p); err != nil {
		return err
	}
	for start := 0; start < len(p.events); {
		n := r.countFitting(p.events[start:], p.keys[start:])
		s := slice{events: p.events[start : start+n], keys: p.keys[start : start+n]}
		start += n
		if s.upTo = p.upTo; start < len(p.events) {
			s.upTo = s.events[n-1].Position
		}
		if err := r.foldSlice(ctx, s); err != nil {
			return err
		}
	}
	r.pending.upTo = max(r.pending.upTo, p.upTo)
	if p.fault != nil {
		if err := r.flush(ctx); err != nil {
			return err
		}
		return p.fault
	}
	return nil
}

// foldLastReading is foldReading for a final reading: everything is saved when it returns.
func (r *Replay) foldLastReading(ctx context.Context, p *prepared) error {
	if err := r.foldReading(ctx, p); err != nil {
		return err
	}
	return r.flush(ctx)
}

// countFitting returns how many of the entries can be folded without holding too many documents in memory. It never
// divides an event: a save then has all of an event's documents or none.
func (r *Replay) countFitting(events []folding.Event, keys []string) int {
	if r.at.maxPerSave > 0 {
		keys = keys[:endOfEvents(events, max(1, r.at.maxPerSave-r.pending.events))]
	}
	most := 1000 // until the documents' size is known
	if r.documentBytes > 0 {
		most = max(16, r.Limits.DocumentBytes/2/(cachedBytes+valueFactor*r.documentBytes))
	}
	if most >= len(keys) {
		return len(keys)
	}
	seen := make(map[string]struct{}, most)
	eventStart := 0 // where the event of the entry begins
	for i, key := range keys {
		if beginsEvent(events, i) {
			eventStart = i
		}
		if _, ok := seen[key]; !ok && key != "" {
			if len(seen) >= most && eventStart > 0 {
				return eventStart
			}
			seen[key] = struct{}{}
		}
	}
	return len(keys)
}

// endOfEvents returns where the first n events end: the index after their last entry.
func endOfEvents(events []folding.Event, n int) int {
	for i := range events {
		if beginsEvent(events, i) {
			if n--; n < 0 {
				return i
			}
		}
	}
	return len(events)
}

// foldSlice folds one slice onto the known documents. If a resulting document cannot be written, it halves
// the slice until it finds the event responsible. An event that cannot be folded parks its document, or stops the
// folding before it.
func (r *Replay) foldSlice(ctx context.Context, s slice) error {
	chains, next := chainsOf(r.Fold, s.keys)
	events := countEvents(s.events)
	meter := expr.MeterOf(ctx)
	var outcomes []outcome
	before, err := r.loadBefore(ctx, chains)
	if err == nil {
		if err := r.checkNotAhead(s, chains, before); err != nil {
			return err
		}
		outcomes, err = foldChains(ctx, r.Fold, meter, s.events, chains, next, before)
	}
	switch {
	case errors.Is(err, drivers.ErrLoadTooLarge) && events > 1:
		return r.foldHalves(ctx, s)
	case errors.Is(err, drivers.ErrLoadTooLarge):
		before, outcomes = make([]cachedDocument, len(chains)), refuseAll(r.Fold, &s.events[0], chains)
	case err != nil:
		return err
	}
	var fault *folding.EventError
	bad := false
	for i := range outcomes {
		o := &outcomes[i]
		if o.unwritable != nil && events == 1 {
			*o = outcome{fault: o.unwritable} // the event responsible
		}
		if o.fault != nil {
			o.cut(r.Fold, meter, s.events, chains[i], next, &before[i])
		}
		fault = earlier(fault, o.fault)
		bad = bad || o.unwritable != nil
	}
	if fault != nil {
		fault = s.firstFault(fault.Event.Position, outcomes)
	}
	if fault != nil && r.parksFaults() && !bad {
		fault = r.parkFaults(s, chains, next, outcomes)
	}
	switch {
	case fault != nil && !(r.parksFaults() && bad):
		// Everything before the event is good: folding is deterministic, so a second fold without the event gives the
		// same result.
		n := 0
		for s.events[n].Position < fault.Event.Position {
			n++
		}
		err := r.foldSlice(ctx, slice{events: s.events[:n], keys: s.keys[:n], upTo: fault.Event.Position - 1})
		if err == nil {
			err = r.flush(ctx)
		}
		if err != nil {
			return err
		}
		return fault
	case bad:
		return r.foldHalves(ctx, s)
	}
	r.addPending(s, chains, before, outcomes)
	if r.saveIsDue() {
		if begins, err := r.beginsFill(ctx); begins || err != nil {
			return cmp.Or(err, errRefold)
		}
		if err := r.startSave(ctx); err != nil {
			return err
		}
	}
	if r.at.maxPerSave > 0 {
		return r.awaitSave()
	}
	return nil
}

// foldHalves folds a slice of several events in two halves.
func (r *Replay) foldHalves(ctx context.Context, s slice) error {
	half := endOfEvents(s.events, countEvents(s.events)/2)
	if err := r.foldSlice(ctx, slice{events: s.events[:half], keys: s.keys[:half], upTo: s.events[half-1].Position}); err != nil {
		return err
	}
	return r.foldSlice(ctx, slice{events: s.events[half:], keys: s.keys[half:], upTo: s.upTo})
}

// refuseAll returns the outcomes of an event whose documents are too large to be in memory together: a fault for each.
func refuseAll(f *folding.Fold, event *folding.Event, chains []chain) []outcome {
	outcomes := make([]outcome, len(chains))
	for i := range chains {
		outcomes[i].fault = f.Blame(event, "key", errTooLargeTogether)
	}
	return outcomes
}

var errTooLargeTogether = fmt.Errorf("the event's documents have more than %d MiB together; make them smaller, or give the event fewer", drivers.MaxLoadBytes>>20)

// firstFault returns the fault of the event at a position; if several documents have one, that of the first by the
// event's keys.
func (s *slice) firstFault(position int64, outcomes []outcome) *folding.EventError {
	for i := range s.events {
		if s.events[i].Position != position {
			continue
		}
		for j := range outcomes {
			if fault := outcomes[j].fault; fault != nil && fault.Event.Position == position && fault.DocumentID == s.keys[i] {
				return fault
			}
		}
	}
	return nil
}

func earlier(a, b *folding.EventError) *folding.EventError {
	if a == nil || b != nil && b.Event.Position < a.Event.Position {
		return b
	}
	return a
}

// chainsOf groups entries by key. next[i] is the index of the event that follows event i in its document, or -1.
func chainsOf(f *folding.Fold, keys []string) (chains []chain, next []int32) {
	next = make([]int32, len(keys))
	if f.Distinct() {
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

// loadBefore returns the chains' documents as they were before their first events, in the order of the chains. It loads
// documents that are not known, even while a save is under way: the documents which that save writes are known.
func (r *Replay) loadBefore(ctx context.Context, chains []chain) ([]cachedDocument, error) {
	all := make([]cachedDocument, len(chains))
	if r.Fold.Maps() {
		// A record does not depend on a stored one. If a later event's record exists, the database keeps it.
		for i := range all {
			all[i].exists = !r.Fold.Distinct()
		}
		return all, nil
	}
	var ids []string
	var where []int
	for i := range chains {
		var ok bool
		if all[i], ok = r.memory.get(chains[i].id); !ok {
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
	loaded := make(map[string]cachedDocument, len(documents))
	for _, d := range documents {
		loaded[d.ID] = cachedDocument{version: d.Version, data: d.Data, exists: true}
	}
	for j, i := range where {
		all[i] = loaded[ids[j]]
	}
	return all, nil
}

// checkNotAhead returns drivers.ErrStale, and has the checkpoint read again, if a document contains events after it: a
// save whose outcome was unknown, or another worker's, has moved the checkpoint. A database that crashes may lose that
// save, and then accept another one from the same checkpoint, although that lacks the events. If the checkpoint is the
// same when it is read again, the database has no transactions or has lost the save, or a fill was abandoned.
func (r *Replay) checkNotAhead(s slice, chains []chain, before []cachedDocument) error {
	if r.at.ahead {
		return nil
	}
	for i := range chains {
		if before[i].version >= s.events[chains[i].first].Position {
			r.at.known, r.at.ahead = false, true
			return drivers.ErrStale
		}
	}
	return nil
}

// addPending keeps the results of a slice until they are saved.
func (r *Replay) addPending(s slice, chains []chain, before []cachedDocument, outcomes []outcome) {
	g := &r.pending
	events := countEvents(s.events)
	only := g.events == 0 && events == 1
	if !only && events > 0 {
		g.only = onlyEvent{}
	}
	bytes, touched := 0, 0
	for i := range outcomes {
		o := &outcomes[i]
		if !o.touched {
			continue
		}
		id := chains[i].id
		h := cachedDocument{version: o.version, value: o.value, data: o.data, exists: before[i].exists, save: g.number()}
		g.weight += h.weight(id)
		if was, ok := r.memory.unsaved(id, g.number()); ok {
			g.weight -= was.weight(id)
		} else {
			if len(g.changed) == 0 {
				g.since = time.Now()
			}
			g.changed = append(g.changed, id)
			if only {
				g.only.before = append(g.only.before, before[i])
			}
		}
		r.memory.put(id, h)
		bytes, touched = bytes+h.size(), touched+1
	}
	if r.documentBytes == 0 && touched > 0 {
		r.documentBytes = max(1, bytes/touched) // an estimate until they are written and the size is known exactly
	}
	if events > 0 {
		if g.events += events; only {
			g.only.event = s.events[0].Event
		}
		if touched == 0 {
			r.at.lastUnchanging = s.events[len(s.events)-1].Position
		}
		r.reportCounted(events)
	}
	g.upTo = max(g.upTo, s.upTo)
}

// chainsAtOnce is how many documents a goroutine takes at a time: few enough to keep all processors busy until the end.
const chainsAtOnce = 32

// foldChains folds each document's events into it, documents in parallel. Its error is ctx's cause, or, if several
// documents are too large together, drivers.ErrLoadTooLarge.
func foldChains(ctx context.Context, f *folding.Fold, meter *expr.Meter, events []folding.Event, chains []chain, next []int32, before []cachedDocument) ([]outcome, error) {
	outcomes := make([]outcome, len(chains))
	var taken, bytes, documents atomic.Int64
	tooLarge := func() bool { return bytes.Load() > drivers.MaxLoadBytes && documents.Load() > 1 }
	parallel(workersFor(ctx, len(events)), func(int) {
		for {
			from := int(taken.Add(chainsAtOnce)) - chainsAtOnce
			if from >= len(chains) {
				return
			}
			for i := from; i < min(len(chains), from+chainsAtOnce) && ctx.Err() == nil && !tooLarge(); i++ {
				outcomes[i] = foldUpTo(f, meter, events, chains[i], next, &before[i], math.MaxInt64)
				if outcomes[i].touched {
					after := cachedDocument{value: outcomes[i].value, data: outcomes[i].data}
					bytes.Add(int64(after.size()))
					documents.Add(1)
				}
			}
		}
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if tooLarge() {
		return nil, drivers.ErrLoadTooLarge
	}
	return outcomes, nil
}

// foldUpTo folds a document's events into it, up to but not including position below. It skips events at or below the
// document's version: they have taken effect already (see checkNotAhead). The result is meaningless if the meter ended
// the fold.
func foldUpTo(f *folding.Fold, meter *expr.Meter, events []folding.Event, c chain, next []int32, before *cachedDocument, below int64) (o outcome) {
	if f.Maps() {
		return mapChain(f, meter, events, c, next, before, below)
	}
	var doc folding.Value
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
				// The first event starts from the stored document. After a removal, or without a stored document, it
				// starts from the initial one.
				var data []byte
				if !o.touched {
					data = before.data
				}
				if doc, o.fault = f.Decode(data, event); o.fault != nil {
					return o
				}
			}
		}
		if doc, o.fault = f.Next(doc, event.Within(meter)); o.fault != nil {
			return o
		}
		event.Release()
		o.touched, last = true, i
	}
	if !o.touched {
		return o
	}
	o.version = events[last].Position
	switch {
	case doc == nil:
	case f.Immutable():
		o.value = doc
	default:
		// A Go handler may change the document that it receives. So the text is kept, and each batch decodes it again.
		o.data, o.unwritable = f.Encode(doc, &events[last])
	}
	return o
}

// mapChain is foldUpTo for a map: its result is the last record that the events produce.
func mapChain(f *folding.Fold, meter *expr.Meter, events []folding.Event, c chain, next []int32, before *cachedDocument, below int64) (o outcome) {
	var last *folding.Event
	for i := c.first; i >= 0; i = next[i] {
		event := &events[i]
		if event.Position <= before.version {
			continue
		}
		if event.Position >= below || !meter.Spend(1) {
			break
		}
		var record folding.Value
		if record, o.fault = f.Next(nil, event.Within(meter)); o.fault != nil {
			return o
		}
		event.Release()
		if record != nil {
			o.touched, o.value, last = true, record, event
		}
	}
	if o.touched {
		o.version = last.Position
		if !f.Immutable() {
			o.data, o.unwritable = f.Encode(o.value, last)
			o.value = nil
		}
	}
	return o
}

// cut reduces an outcome that ended with a fault to the events before the fault. It sets the fault's document id and
// the document as it was before.
func (o *outcome) cut(f *folding.Fold, meter *expr.Meter, events []folding.Event, c chain, next []int32, before *cachedDocument) {
	fault := o.fault
	*o = foldUpTo(f, meter, events, c, next, before, fault.Event.Position)
	o.fault = fault
	fault.DocumentID = c.id
	was := *before
	if o.touched {
		was = cachedDocument{value: o.value, data: o.data}
	}
	addDocumentBefore(fault, f, &was)
}
