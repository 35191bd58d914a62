package drivertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// contents is the contract in memory: what one tenant has in one build.
type contents struct {
	checkpoint int64
	byID       map[string]domain.Document
	removed    map[string]int64 // the newest version at which each was removed
}

func newContents(documents []domain.Document) *contents {
	c := &contents{byID: make(map[string]domain.Document), removed: make(map[string]int64)}
	for _, document := range documents {
		c.byID[document.ID] = document
	}
	return c
}

func (c *contents) save(batch drivers.Batch) error {
	if batch.From != c.checkpoint {
		return drivers.ErrStale
	}
	c.apply(batch)
	return nil
}

func (c *contents) apply(batch drivers.Batch) {
	c.checkpoint = batch.To
	for _, document := range batch.Upserts {
		if c.byID[document.ID].Version < document.Version {
			c.byID[document.ID] = document
		}
	}
	for _, deletion := range batch.Deletes {
		if c.byID[deletion.ID].Version < deletion.Version {
			delete(c.byID, deletion.ID)
			c.removed[deletion.ID] = max(c.removed[deletion.ID], deletion.Version)
		}
	}
}

func (c *contents) documents() []domain.Document {
	return slices.SortedFunc(maps.Values(c.byID), func(a, b domain.Document) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
}

// drawBatch draws a batch from a checkpoint on, over few ids, so that batches overlap.
func drawBatch(t *rapid.T, label string, from int64) drivers.Batch {
	batch := drivers.Batch{From: from, To: from + rapid.Int64Range(1, 5).Draw(t, label+" length")}
	drawChanges(t, label, &batch, from)
	return batch
}

// drawRepair draws a repair batch for the contents, but with no version before a document's removal, because some
// databases know when that was. For the same reason it removes nothing while there is no checkpoint.
func drawRepair(t *rapid.T, label string, c *contents) drivers.Batch {
	batch := drivers.Batch{From: c.checkpoint, To: c.checkpoint}
	if c.checkpoint == 0 {
		batch.To = 8 // bounds the versions that are drawn
		drawChanges(t, label, &batch, 0)
		batch.To, batch.Deletes = 0, nil
		return batch
	}
	drawChanges(t, label, &batch, max(0, c.checkpoint-12))
	batch.Upserts = slices.DeleteFunc(batch.Upserts, func(document domain.Document) bool { return document.Version <= c.removed[document.ID] })
	return batch
}

// drawChanges draws the documents of a batch, with versions above the given one.
func drawChanges(t *rapid.T, label string, batch *drivers.Batch, above int64) {
	ids := rapid.SliceOfNDistinct(rapid.SampledFrom(oddIDs), 0, 12, rapid.ID[string]).Draw(t, label+" ids")
	for i, id := range ids {
		version := rapid.Int64Range(above+1, batch.To).Draw(t, fmt.Sprint(label, " version ", i))
		if rapid.IntRange(0, 3).Draw(t, fmt.Sprint(label, " delete ", i)) == 0 {
			batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: id, Version: version})
			continue
		}
		batch.Upserts = append(batch.Upserts, document(id, version, drawJSON(t, fmt.Sprint(label, " data ", i))))
	}
}

// model runs random operations of three tenants on shared and own builds, and compares them with the contract in
// memory.
func (s *suite) model(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		type place struct {
			build  domain.Build
			tenant domain.TenantID
			want   *contents
		}
		var places []*place
		var builds []domain.Build
		shared := s.withoutTable()
		if err := s.driver.CreateTemporaryTable(ctx, shared); err != nil {
			t.Fatalf("CreateTemporaryTable: %v", err)
		}
		builds = append(builds, shared)
		number := s.numbers.Add(1)
		for range 3 {
			tenant := domain.NewTenantID()
			own := s.own(tenant)
			own.Number = number
			builds = append(builds, own)
			places = append(places, &place{shared, tenant, newContents(nil)}, &place{own, tenant, newContents(nil)})
		}
		defer func() {
			for _, build := range builds {
				if err := s.driver.DropTable(ctx, build); err != nil {
					t.Errorf("DropTable: %v", err)
				}
			}
		}()
		for step := range rapid.IntRange(1, 15).Draw(t, "steps") {
			at := rapid.SampledFrom(places).Draw(t, fmt.Sprint("place ", step))
			switch rapid.IntRange(0, 9).Draw(t, fmt.Sprint("operation ", step)) {
			case 0:
				if err := s.driver.DropTenant(ctx, at.build, at.tenant); err != nil {
					t.Fatalf("DropTenant: %v", err)
				}
				at.want = newContents(nil)
			case 1:
				from := max(0, at.want.checkpoint+rapid.Int64Range(-3, 3).Draw(t, fmt.Sprint("away ", step)))
				batch := drawBatch(t, fmt.Sprint("step ", step), from)
				want, got := at.want.save(batch), s.driver.Save(ctx, at.build, at.tenant, batch)
				if !errors.Is(got, want) {
					t.Fatalf("Save from %d gives %v, want %v", from, got, want)
				}
			case 2, 3:
				batch := drawRepair(t, fmt.Sprint("step ", step), at.want)
				s.save(t, at.build, at.tenant, batch)
				at.want.apply(batch)
			default:
				batch := drawBatch(t, fmt.Sprint("step ", step), at.want.checkpoint)
				s.save(t, at.build, at.tenant, batch)
				at.want.apply(batch)
			}
			s.wantCheckpoint(t, at.build, at.tenant, at.want.checkpoint)
		}
		for _, at := range places {
			s.wantDocuments(t, at.build, at.tenant, at.want.documents()...)
			s.wantCheckpoint(t, at.build, at.tenant, at.want.checkpoint)
		}
	})
}

// between returns the part of a batch that leads from one position to another.
func between(batch drivers.Batch, from, to int64) drivers.Batch {
	part := drivers.Batch{From: from, To: to}
	for _, document := range batch.Upserts {
		if from < document.Version && document.Version <= to {
			part.Upserts = append(part.Upserts, document)
		}
	}
	for _, deletion := range batch.Deletes {
		if from < deletion.Version && deletion.Version <= to {
			part.Deletes = append(part.Deletes, deletion)
		}
	}
	return part
}
