package main

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// memory is a database and its driver in one. What is in it ends with the process.
type memory struct {
	mutex  sync.Mutex     // guards the maps, but not the contents
	tables map[place]bool // of shared projections' builds
	places map[place]contents
}

// place tells apart what each tenant has in each build.
type place struct {
	projection domain.ProjectionID
	build      int64
	tenant     domain.TenantID // domain.Everyone: the build's table
}

func placeOf(build domain.Build, tenant domain.TenantID) place {
	return place{build.ProjectionID, build.Number, tenant}
}

// contents are what one tenant has in one build. They never change: a save puts new ones in their place, at once.
type contents struct {
	checkpoint int64
	documents  map[string]domain.Document
}

func newMemory() *memory { return &memory{tables: map[place]bool{}, places: map[place]contents{}} }

// with calls do while nobody else has the maps. The table of a shared build must have been made.
func (m *memory) with(ctx context.Context, do func() error, builds ...domain.Build) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, build := range builds {
		if build.Shared() && !m.tables[placeOf(build, domain.Everyone)] {
			return drivers.ErrNoTable
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return do()
}

func (m *memory) contents(ctx context.Context, build domain.Build, tenant domain.TenantID) (found contents, err error) {
	err = m.with(ctx, func() error { found = m.places[placeOf(build, tenant)]; return nil }, build)
	return found, errors.Join(drivers.CheckTenant(build, tenant), err)
}

func (m *memory) CreateTemporaryTable(ctx context.Context, build domain.Build) error {
	return m.with(ctx, func() error { m.tables[placeOf(build, domain.Everyone)] = true; return nil })
}

// IndexTable makes no index: queries look at every document.
func (m *memory) IndexTable(ctx context.Context, build domain.Build) error {
	return m.with(ctx, func() error { return nil }, build)
}

// SwapTable moves no public name: nobody else can look into this process.
func (m *memory) SwapTable(ctx context.Context, build domain.Build, overrides []drivers.Override) error {
	groups, err := drivers.GroupOverrides(build, overrides)
	for _, group := range append(groups, drivers.Overridden{Build: build}) {
		err = errors.Join(err, m.IndexTable(ctx, group.Build))
	}
	return err
}

func (m *memory) DropTable(ctx context.Context, build domain.Build) error {
	return m.with(ctx, func() error {
		delete(m.tables, placeOf(build, domain.Everyone))
		maps.DeleteFunc(m.places, func(at place, _ contents) bool { return at == placeOf(build, at.tenant) })
		return nil
	})
}

func (m *memory) DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	return errors.Join(drivers.CheckTenant(build, tenant), m.with(ctx, func() error { delete(m.places, placeOf(build, tenant)); return nil }))
}

func (m *memory) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) (found []domain.Document, err error) {
	all, err := m.contents(ctx, build, tenant)
	size := 0
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if document, ok := all.documents[id]; ok {
			found, size = append(found, document), size+len(document.Data)
		}
	}
	if size > drivers.MaxLoadBytes && len(found) > 1 {
		return nil, drivers.ErrLoadTooLarge
	}
	return found, err
}

func (m *memory) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if err := errors.Join(drivers.CheckTenant(build, tenant), batch.Check()); err != nil {
		return err
	}
	return m.with(ctx, func() error {
		at := placeOf(build, tenant)
		if m.places[at].checkpoint != batch.From {
			return drivers.ErrStale
		}
		documents := maps.Collect(maps.All(m.places[at].documents))
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
		m.places[at] = contents{batch.To, documents} // all of the batch, now
		return nil
	}, build)
}

func (m *memory) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error) {
	all, err := m.contents(ctx, build, tenant)
	return all.checkpoint, err
}

func (m *memory) Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[drivers.Checkpoint, error] {
	return each(ctx, m, func(at place, checkpoint int64) (drivers.Checkpoint, bool) {
		return drivers.Checkpoint{Tenant: at.tenant, Position: checkpoint}, at == placeOf(build, at.tenant)
	}, build)
}

func (m *memory) OwnCheckpoints(ctx context.Context) iter.Seq2[drivers.OwnCheckpoint, error] {
	return each(ctx, m, func(at place, checkpoint int64) (drivers.OwnCheckpoint, bool) {
		return drivers.OwnCheckpoint{Tenant: at.tenant, Build: at.build, Position: checkpoint}, !at.projection.Shared()
	})
}

// each yields what pick makes of places. It walks over a copy: the loop may call this driver, which must then be free.
func each[T any](ctx context.Context, m *memory, pick func(at place, checkpoint int64) (T, bool), builds ...domain.Build) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var found map[place]contents
		if err := m.with(ctx, func() error { found = maps.Clone(m.places); return nil }, builds...); err != nil {
			yield(*new(T), err)
		}
		for at, all := range found {
			if one, ok := pick(at, all.checkpoint); ok && all.checkpoint > 0 && !yield(one, nil) {
				break
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
	found, places := []domain.Document(nil), make(map[string]domain.SortKey)
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
	found, err := m.Query(ctx, build, tenant, domain.DocumentQuery{Where: where, Limit: 1 << 30})
	return int64(len(found)), err
}

func (m *memory) Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error) {
	_, err := m.contents(ctx, build, tenant)
	return domain.Explanation{Statement: "look at each of the tenant's documents"}, errors.Join(query.Check(), err)
}

func (m *memory) Ping(ctx context.Context) error { return ctx.Err() }
func (m *memory) Close()                         {}
