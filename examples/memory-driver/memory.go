package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// memory is a database and its driver in one. What is in it ends with the process.
type memory struct {
	mutex  sync.Mutex   // guards the maps, but not the contents
	tables map[key]bool // of the builds of shared projections
	places map[place]contents
}

// key tells builds apart, and a place what each tenant has there.
type (
	key struct {
		projection domain.ProjectionID
		number     int64
	}
	place struct {
		key
		tenant domain.TenantID
	}
)

// contents are what one tenant has in one build. They never change: a save puts new ones in their place. So a reader sees
// a batch whole or not at all, and nobody waits for a reader.
type contents struct {
	checkpoint int64
	documents  map[string]domain.Document
}

func newMemory() *memory {
	return &memory{tables: make(map[key]bool), places: make(map[place]contents)}
}

func keyOf(build domain.Build) key { return key{build.ProjectionID, build.Number} }

// with calls do while nobody else has the maps. The table of a shared build must have been made.
func (m *memory) with(ctx context.Context, build domain.Build, do func() error) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case build.Shared() && !m.tables[keyOf(build)]:
		return fmt.Errorf("build %d of %s: %w", build.Number, build.Name, drivers.ErrNoTable)
	}
	return do()
}

func (m *memory) contents(ctx context.Context, build domain.Build, tenant domain.TenantID) (found contents, err error) {
	if err = drivers.CheckTenant(build, tenant); err == nil {
		err = m.with(ctx, build, func() error { found = m.places[place{keyOf(build), tenant}]; return nil })
	}
	return found, err
}

func (m *memory) CreateTemporaryTable(ctx context.Context, build domain.Build) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.tables[keyOf(build)] = true
	return ctx.Err()
}

// IndexTable makes no index: queries look at every document.
func (m *memory) IndexTable(ctx context.Context, build domain.Build) error {
	return m.with(ctx, build, func() error { return nil })
}

// SwapTable moves no public name: nobody else can look into this process.
func (m *memory) SwapTable(ctx context.Context, build domain.Build) error {
	return m.IndexTable(ctx, build)
}

func (m *memory) DropTable(ctx context.Context, build domain.Build) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.tables, keyOf(build))
	maps.DeleteFunc(m.places, func(at place, _ contents) bool { return at.key == keyOf(build) })
	return ctx.Err()
}

func (m *memory) DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.places, place{keyOf(build), tenant})
	return errors.Join(ctx.Err(), drivers.CheckTenant(build, tenant))
}

func (m *memory) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) (found []domain.Document, err error) {
	all, err := m.contents(ctx, build, tenant)
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if document, ok := all.documents[id]; ok {
			found = append(found, document)
		}
	}
	return found, err
}

func (m *memory) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if err := errors.Join(drivers.CheckTenant(build, tenant), batch.Check()); err != nil {
		return err
	}
	return m.with(ctx, build, func() error {
		old := m.places[place{keyOf(build), tenant}]
		if old.checkpoint != batch.From {
			return drivers.ErrStale
		}
		documents := maps.Collect(maps.All(old.documents))
		for _, document := range batch.Upserts {
			if err := domain.CheckJSON(document.Data); err != nil {
				return domain.Errorf(domain.CodeInvalidJSON, "document "+document.ID, "its data cannot be kept: %s", err)
			}
			document.Data = slices.Clone(document.Data) // the caller may use its memory again
			if documents[document.ID].Version < document.Version {
				documents[document.ID] = document
			}
		}
		for _, deletion := range batch.Deletes {
			if documents[deletion.ID].Version < deletion.Version {
				delete(documents, deletion.ID)
			}
		}
		m.places[place{keyOf(build), tenant}] = contents{batch.To, documents} // all of the batch, now
		return nil
	})
}

func (m *memory) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error) {
	all, err := m.contents(ctx, build, tenant)
	return all.checkpoint, err
}

func (m *memory) Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[drivers.Checkpoint, error] {
	return func(yield func(drivers.Checkpoint, error) bool) {
		var found map[place]contents
		// Of a copy: the loop may call this driver, which must then be free.
		err := m.with(ctx, build, func() error { found = maps.Clone(m.places); return nil })
		if err != nil {
			yield(drivers.Checkpoint{}, err)
		}
		for at, all := range found {
			if at.key == keyOf(build) && !yield(drivers.Checkpoint{Tenant: at.tenant, Position: all.checkpoint}, nil) {
				return
			}
		}
	}
}

func (m *memory) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (domain.Document, bool, error) {
	all, err := m.contents(ctx, build, tenant)
	document, ok := all.documents[id]
	return document, ok, err
}

func (m *memory) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	all, err := m.contents(ctx, build, tenant)
	if err := errors.Join(err, query.Check()); err != nil {
		return nil, err
	}
	var found []domain.Document
	places := make(map[string]domain.SortKey)
	for id, document := range all.documents {
		match, unmatched := domain.Match(query.Where, document)
		place, unplaced := domain.SortKeyOf(document, query.Order)
		if err := errors.Join(unmatched, unplaced, ctx.Err()); err != nil {
			return nil, err
		}
		if match && (query.After == nil || place.Compare(*query.After, query.Order) > 0) {
			found, places[id] = append(found, document), place
		}
	}
	slices.SortFunc(found, func(a, b domain.Document) int { return places[a.ID].Compare(places[b.ID], query.Order) })
	return query.Cut(found), nil
}

func (m *memory) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	found, err := m.Query(ctx, build, tenant, domain.DocumentQuery{Where: where, Limit: math.MaxInt})
	return int64(len(found)), err
}

func (m *memory) Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error) {
	all, err := m.contents(ctx, build, tenant)
	statement := fmt.Sprintf("look at each of %d documents", len(all.documents))
	return domain.Explanation{Statement: statement}, errors.Join(query.Check(), err)
}

func (m *memory) Ping(ctx context.Context) error { return ctx.Err() }

func (m *memory) Close() {}
