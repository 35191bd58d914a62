package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Memory stands for a database server: its databases are told apart by their URLs, and outlive the drivers on them.
type Memory struct {
	mutex     sync.Mutex
	databases map[string]*database
}

// NewMemory returns one without databases.
func NewMemory() *Memory { return &Memory{databases: make(map[string]*database)} }

// Open is the manifold.OpenDriver.
func (m *Memory) Open(_ context.Context, config manifold.DriverConfig) (drivers.Driver, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.databases[config.URL] == nil {
		m.databases[config.URL] = &database{tables: make(map[key]table)}
	}
	return driver{m.databases[config.URL]}, nil
}

type database struct {
	mutex  sync.RWMutex // held for a whole method: so a batch is seen whole or not at all
	tables map[key]table
}

// key is what of a build tells it from others.
type key struct {
	projection domain.ProjectionID
	number     int64
}

type table map[domain.TenantID]*contents

// contents are what one tenant has in one build.
type contents struct {
	checkpoint int64
	documents  map[string]domain.Document
}

// driver is a drivers.Driver.
type driver struct{ *database }

func keyOf(build domain.Build) key { return key{build.ProjectionID, build.Number} }

// table finds a build's table. That of a tenant's own build needs not be made: where there is none, it is empty.
func (d driver) table(ctx context.Context, build domain.Build) (table, error) {
	found, ok := d.tables[keyOf(build)]
	if !ok && build.Shared() {
		return nil, fmt.Errorf("build %d of %s: %w", build.Number, build.Name, drivers.ErrNoTable)
	}
	return found, ctx.Err()
}

// read gives do what the tenant has in the build, which it must not change.
func (d driver) read(ctx context.Context, build domain.Build, tenant domain.TenantID, do func(contents) error) error {
	d.mutex.RLock()
	defer d.mutex.RUnlock()
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return err
	}
	table, err := d.table(ctx, build)
	if err != nil {
		return err
	}
	if found := table[tenant]; found != nil {
		return do(*found)
	}
	return do(contents{})
}

func (d driver) CreateTemporaryTable(ctx context.Context, build domain.Build) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.tables[keyOf(build)] == nil {
		d.tables[keyOf(build)] = make(table)
	}
	return ctx.Err()
}

// IndexTable has nothing to do but to know its table.
func (d driver) IndexTable(ctx context.Context, build domain.Build) error {
	d.mutex.RLock()
	defer d.mutex.RUnlock()
	_, err := d.table(ctx, build)
	return err
}

// SwapTable has no public name to point anywhere: nobody else can look into this process.
func (d driver) SwapTable(ctx context.Context, build domain.Build) error {
	return d.IndexTable(ctx, build)
}

func (d driver) DropTable(ctx context.Context, build domain.Build) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	delete(d.tables, keyOf(build))
	return ctx.Err()
}

func (d driver) DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return err
	}
	delete(d.tables[keyOf(build)], tenant)
	return ctx.Err()
}

func (d driver) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) (found []domain.Document, err error) {
	err = d.read(ctx, build, tenant, func(c contents) error {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
			if document, ok := c.documents[id]; ok {
				found = append(found, document)
			}
		}
		return nil
	})
	return found, err
}

func (d driver) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return err
	}
	if err := batch.Check(); err != nil {
		return err
	}
	upserts := make([]domain.Document, len(batch.Upserts))
	for i, document := range batch.Upserts {
		data, err := normal(document)
		if err != nil {
			return err
		}
		upserts[i] = domain.Document{ID: document.ID, Version: document.Version, Data: data}
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	found, err := d.table(ctx, build)
	if err != nil {
		return err
	}
	if found == nil {
		found = make(table)
		d.tables[keyOf(build)] = found
	}
	c := found[tenant]
	if c == nil {
		c = &contents{documents: make(map[string]domain.Document)}
	}
	if c.checkpoint != batch.From {
		return drivers.ErrStale
	}
	// From here on nothing can fail. That the checkpoint was where the batch starts says that all versions here are older.
	found[tenant] = c
	c.checkpoint = batch.To
	for _, document := range upserts {
		c.documents[document.ID] = document
	}
	for _, deletion := range batch.Deletes {
		delete(c.documents, deletion.ID)
	}
	return nil
}

// normal gives a document's data without what the contract does not keep, such as the first of two members of one name.
func normal(document domain.Document) (json.RawMessage, error) {
	if err := domain.CheckJSON(document.Data); err != nil {
		return nil, domain.Errorf(domain.CodeInvalidJSON, "document "+document.ID, "its data cannot be kept: %s", err)
	}
	var members map[string]any
	decoder := json.NewDecoder(bytes.NewReader(document.Data))
	decoder.UseNumber() // an int64 does not fit into a float64
	if err := decoder.Decode(&members); err != nil {
		return nil, fmt.Errorf("document %q: %w", document.ID, err)
	}
	return json.Marshal(members)
}

func (d driver) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (position int64, err error) {
	err = d.read(ctx, build, tenant, func(c contents) error {
		position = c.checkpoint
		return nil
	})
	return position, err
}

// Checkpoints are of one moment: the loop that reads them may call the driver.
func (d driver) Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[drivers.Checkpoint, error] {
	return func(yield func(drivers.Checkpoint, error) bool) {
		d.mutex.RLock()
		table, err := d.table(ctx, build)
		var all []drivers.Checkpoint
		for tenant, c := range table {
			all = append(all, drivers.Checkpoint{Tenant: tenant, Position: c.checkpoint})
		}
		d.mutex.RUnlock()
		if err != nil {
			yield(drivers.Checkpoint{}, err)
			return
		}
		for _, checkpoint := range all {
			if !yield(checkpoint, nil) {
				return
			}
		}
	}
}

func (d driver) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error) {
	err = d.read(ctx, build, tenant, func(c contents) error {
		document, ok = c.documents[id]
		return nil
	})
	return document, ok, err
}

func (d driver) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (page []domain.Document, err error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	type placed struct {
		domain.SortKey
		domain.Document
	}
	var found []placed
	err = d.matching(ctx, build, tenant, query.Where, func(document domain.Document) error {
		place, err := domain.SortKeyOf(document, query.Order)
		if err == nil && (query.After == nil || place.Compare(*query.After, query.Order) > 0) {
			found = append(found, placed{place, document})
		}
		return err
	})
	slices.SortFunc(found, func(a, b placed) int { return a.SortKey.Compare(b.SortKey, query.Order) })
	for _, one := range found[:min(query.Limit, len(found))] {
		page = append(page, one.Document)
	}
	return page, err
}

func (d driver) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (count int64, err error) {
	err = d.matching(ctx, build, tenant, where, func(domain.Document) error {
		count++
		return nil
	})
	return count, err
}

// matching calls do with each of the tenant's documents that matches.
func (d driver) matching(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate, do func(domain.Document) error) error {
	return d.read(ctx, build, tenant, func(c contents) error {
		for _, document := range c.documents {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			match, err := domain.Match(where, document)
			if err == nil && match {
				err = do(document)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (d driver) Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (explanation domain.Explanation, err error) {
	if err := query.Check(); err != nil {
		return explanation, err
	}
	err = d.read(ctx, build, tenant, func(c contents) error {
		explanation.Statement = fmt.Sprintf("look at each of %d documents", len(c.documents))
		return nil
	})
	return explanation, err
}

func (d driver) Ping(ctx context.Context) error { return ctx.Err() }

func (d driver) Close() {}
