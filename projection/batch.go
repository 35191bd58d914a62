package projection

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// slice is a part of a reading that is folded and saved at once.
type slice struct {
	events []Event
	keys   []string
	upTo   int64 // the checkpoint that it leads to
}

// chain is the events of one document within a slice, in order.
type chain struct {
	id    string
	first int32 // index of its first event
	last  int32
}

// outcome is what became of one document.
type outcome struct {
	document domain.Document // Data nil: removed
	touched  bool            // at least one event was applied
	last     int32           // index of the last event applied
	fault    *EventError     // an event that cannot be folded
	bad      *EventError     // the document that came out cannot be written
}

// apply folds a reading into the build and saves it, in as many slices as the documents' size asks for. It returns the
// reading's fault as its error, after everything before it was saved.
func (r *Replay) apply(ctx context.Context, p *prepared) error {
	for start := 0; start < len(p.events); {
		n := r.fit(p.keys[start:])
		s := slice{events: p.events[start : start+n], keys: p.keys[start : start+n]}
		start += n
		if s.upTo = p.upTo; start < len(p.events) {
			s.upTo = s.events[n-1].Position
		}
		if err := r.applySlice(ctx, s); err != nil {
			return err
		}
	}
	r.at.seen = max(r.at.seen, p.upTo)
	if p.fault != nil {
		return p.fault
	}
	return nil
}

// fit returns how many of the events touch no more documents than should be loaded at once.
func (r *Replay) fit(keys []string) int {
	most := 1000 // until it is known how large they are
	if r.documentBytes > 0 {
		most = max(16, r.Limits.DocumentBytes/r.documentBytes)
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

// applySlice folds and saves one slice. Where a document comes out that cannot be written, or that the database cannot
// keep, it halves the slice until the event that made it so stands alone.
func (r *Replay) applySlice(ctx context.Context, s slice) error {
	chains, next := chainsOf(s.keys)
	if len(chains) == 0 {
		r.at.seen = s.upTo
		if n := len(s.events); n > 0 {
			r.at.passed = s.events[n-1].Position
		}
		r.folded(len(s.events), 0)
		return nil
	}
	stored, err := r.load(ctx, chains)
	if err != nil {
		return err
	}
	outcomes := r.Fold.foldChains(s.events, chains, next, stored)
	var fault, bad *EventError
	for i := range outcomes {
		fault = earlier(fault, outcomes[i].fault)
		bad = earlier(bad, outcomes[i].bad)
	}
	if fault != nil {
		// Everything before the event is good: folding is deterministic, so it comes out the same once more without it.
		n := 0
		for s.events[n].Position < fault.Event.Position {
			n++
		}
		if err := r.applySlice(ctx, slice{events: s.events[:n], keys: s.keys[:n], upTo: fault.Event.Position - 1}); err != nil {
			return err
		}
		return fault
	}
	if bad != nil && len(s.events) == 1 {
		return bad
	}
	if bad == nil {
		err = r.save(ctx, s, outcomes, stored)
		if !isCode(err, domain.CodeTooLarge) {
			return err
		}
		if len(s.events) == 1 {
			return &EventError{Event: *s.events[0].Event, Where: r.Fold.where(s.events[0].Type), Err: err}
		}
	}
	half := len(s.events) / 2
	if err := r.applySlice(ctx, slice{events: s.events[:half], keys: s.keys[:half], upTo: s.events[half-1].Position}); err != nil {
		return err
	}
	return r.applySlice(ctx, slice{events: s.events[half:], keys: s.keys[half:], upTo: s.upTo})
}

func earlier(a, b *EventError) *EventError {
	if a == nil || b != nil && b.Event.Position < a.Event.Position {
		return b
	}
	return a
}

// chainsOf groups events by key. next[i] is the index of the event that follows event i in its document, or -1.
func chainsOf(keys []string) (chains []chain, next []int32) {
	next = make([]int32, len(keys))
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

// load returns the stored documents that the chains touch, by id.
func (r *Replay) load(ctx context.Context, chains []chain) (map[string]domain.Document, error) {
	ids := make([]string, len(chains))
	for i := range chains {
		ids[i] = chains[i].id
	}
	documents, err := r.Driver.Load(ctx, r.Build, r.Tenant, ids)
	if err != nil {
		return nil, fmt.Errorf("load the documents of build %d of projection %q: %w", r.Build.Number, r.Build.Name, err)
	}
	stored := make(map[string]domain.Document, len(documents))
	for _, document := range documents {
		stored[document.ID] = document
	}
	return stored, nil
}

// chainsAtOnce is how many documents a goroutine takes at a time: few enough to keep all processors busy to the end.
const chainsAtOnce = 32

// foldChains folds each document's events into it, documents beside one another.
func (f *Fold) foldChains(events []Event, chains []chain, next []int32, stored map[string]domain.Document) []outcome {
	outcomes := make([]outcome, len(chains))
	var taken atomic.Int64
	parallel(workersFor(len(events)), func(int) {
		for {
			from := int(taken.Add(chainsAtOnce)) - chainsAtOnce
			if from >= len(chains) {
				return
			}
			for i := from; i < min(len(chains), from+chainsAtOnce); i++ {
				outcomes[i] = f.foldChain(events, chains[i], next, stored[chains[i].id])
			}
		}
	})
	return outcomes
}

// foldChain folds a document's events into it. Those at or below the document's version took effect before: in a
// database without transactions a batch may have been saved in part.
func (f *Fold) foldChain(events []Event, c chain, next []int32, stored domain.Document) (o outcome) {
	o.document.ID, o.last = c.id, -1
	var doc Value
	for i := c.first; i >= 0; i = next[i] {
		event := &events[i]
		if event.Position <= stored.Version {
			continue
		}
		if doc == nil {
			// The stored document before the first event; after a removal, and where there is none, the initial one.
			var data []byte
			if !o.touched {
				data = stored.Data
			}
			var err error
			if doc, err = f.handler.Decode(data); err != nil {
				o.fault = &EventError{Event: *event.Event, Where: f.where(event.Type), Err: err}
				return o
			}
		}
		if doc, o.fault = f.next(doc, event); o.fault != nil {
			return o
		}
		event.bound = nil // what was parsed for it can go
		o.touched, o.last = true, i
	}
	if !o.touched {
		return o
	}
	last := &events[o.last]
	o.document.Version = last.Position
	if doc != nil {
		o.document.Data, o.bad = f.encode(doc, last)
	}
	return o
}

// save stores what became of a slice's documents, and the checkpoint behind it. stored are those that were there before.
func (r *Replay) save(ctx context.Context, s slice, outcomes []outcome, stored map[string]domain.Document) error {
	batch := drivers.Batch{From: r.at.stored, To: s.upTo, Upserts: make([]domain.Document, 0, len(outcomes))}
	bytes := 0
	var known []domain.Document
	for i := range outcomes {
		switch o := &outcomes[i]; {
		case !o.touched:
		case o.document.Data == nil:
			// Also one that was not there: somebody slower may be about to write it.
			batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: o.document.ID, Version: o.document.Version})
		default:
			bytes += len(o.document.Data)
			if _, there := stored[o.document.ID]; there {
				known = append(known, o.document)
				continue
			}
			batch.Upserts = append(batch.Upserts, o.document)
		}
	}
	batch.New = len(batch.Upserts)
	batch.Upserts = append(batch.Upserts, known...)
	if err := r.saveBatch(ctx, batch); err != nil {
		return err
	}
	if n := len(batch.Upserts); n > 0 {
		// It grows at once and shrinks slowly.
		r.documentBytes = max(1, bytes/n, (r.documentBytes+bytes/n)/2)
	}
	if r.Saved != nil {
		r.Saved(batch.Upserts)
	}
	r.folded(len(s.events), len(batch.Upserts)+len(batch.Deletes))
	return nil
}

func (r *Replay) saveBatch(ctx context.Context, batch drivers.Batch) error {
	if err := r.Driver.Save(ctx, r.Build, r.Tenant, batch); err != nil {
		if errors.Is(err, drivers.ErrStale) {
			r.at.known = false
		}
		return fmt.Errorf("save build %d of projection %q at position %d: %w", r.Build.Number, r.Build.Name, batch.To, err)
	}
	r.at.saved(batch.To)
	return nil
}
