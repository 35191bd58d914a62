package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// ledger is a log of events that its seed determines, and their effects. Each event counts in one of a few documents,
// or removes it. So an event that took effect twice, or not at all, is noticed.
type ledger struct {
	seed  uint64
	bytes int // maximum size of documents
}

const ledgerDocuments = 12

// event returns what happens at a position.
func (l ledger) event(position int64) (id string, removes bool, weight int) {
	random := rand.New(rand.NewPCG(l.seed, uint64(position)))
	return fmt.Sprintf("document %d", random.IntN(ledgerDocuments)), random.IntN(5) == 0, random.IntN(l.bytes)
}

// counted is a document of the ledger.
type counted struct {
	Events int64  // since it was last removed
	Sum    int64  // of their positions
	Filler string // makes a save long enough to be cut
}

// apply returns the document after the event at the position. A removed document has no Data.
func (l ledger) apply(t fatalf, document domain.Document, position int64) domain.Document {
	t.Helper()
	id, removes, weight := l.event(position)
	next := domain.Document{ID: id, Version: position}
	if removes {
		return next
	}
	var state counted
	if document.Data != nil {
		if err := json.Unmarshal(document.Data, &state); err != nil {
			t.Fatalf("%v", err)
		}
	}
	state = counted{state.Events + 1, state.Sum + position, strings.Repeat("x", weight)}
	data, err := json.Marshal(state)
	if err != nil {
		t.Fatalf("%v", err)
	}
	next.Data = data
	return next
}

// history returns each document at each of its versions up to the position, including those without Data.
func (l ledger) history(t fatalf, to int64) map[string]map[int64]domain.Document {
	t.Helper()
	all := make(map[string]map[int64]domain.Document)
	now := make(map[string]domain.Document)
	for position := int64(1); position <= to; position++ {
		id, _, _ := l.event(position)
		now[id] = l.apply(t, now[id], position)
		if all[id] == nil {
			all[id] = make(map[int64]domain.Document)
		}
		all[id][position] = now[id]
	}
	return all
}

// documents returns the documents that exist at the position.
func (l ledger) documents(t fatalf, position int64) []domain.Document {
	t.Helper()
	var documents []domain.Document
	for _, versions := range l.history(t, position) {
		last := versions[slices.Max(slices.Collect(maps.Keys(versions)))]
		if last.Data != nil {
			documents = append(documents, last)
		}
	}
	return documents
}

// worker follows the ledger as Manifold's runner follows a log.
type worker struct {
	ledger
	driver drivers.Driver
	build  domain.Build
	tenant domain.TenantID
}

// batch folds the events after the checkpoint, up to a position. The batch's To is its From if there is nothing to do.
func (w worker) batch(ctx context.Context, t fatalf, to int64) (drivers.Batch, error) {
	t.Helper()
	from, err := w.driver.Checkpoint(ctx, w.build, w.tenant)
	if err != nil {
		return drivers.Batch{}, err
	}
	batch := drivers.Batch{From: from, To: max(from, to)}
	ids := make(map[string]bool)
	for position := from + 1; position <= to; position++ {
		id, _, _ := w.event(position)
		ids[id] = true
	}
	loaded, err := w.driver.Load(ctx, w.build, w.tenant, slices.Collect(maps.Keys(ids)))
	if err != nil {
		return drivers.Batch{}, err
	}
	now := make(map[string]domain.Document)
	for _, document := range loaded {
		now[document.ID] = document
	}
	changed := make(map[string]bool)
	for position := from + 1; position <= to; position++ {
		id, _, _ := w.event(position)
		if position > now[id].Version {
			now[id] = w.apply(t, now[id], position)
			changed[id] = true
		}
	}
	for id := range changed {
		if document := now[id]; document.Data != nil {
			batch.Upserts = append(batch.Upserts, document)
		} else {
			batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: id, Version: document.Version})
		}
	}
	return batch, nil
}

// advance saves the events after the checkpoint, up to a position, in one batch.
func (w worker) advance(ctx context.Context, t fatalf, to int64) error {
	t.Helper()
	batch, err := w.batch(ctx, t, to)
	if err != nil || batch.From == batch.To {
		return err
	}
	return w.driver.Save(ctx, w.build, w.tenant, batch)
}

// reach advances repeatedly until the checkpoint has reached the position or ctx ends.
func (w worker) reach(ctx context.Context, t *testing.T, to int64) {
	t.Helper()
	for {
		err := w.advance(ctx, t, to)
		if err == nil {
			return
		}
		if !errors.Is(err, drivers.ErrStale) && !domain.IsCode(err, domain.CodeUnavailable) || ctx.Err() != nil {
			t.Fatalf("continuing to %d: %v", to, err)
		}
	}
}
