// Package drivertest is the conformance suite of the drivers: every requirement of the contract in package drivers has
// a test here that fails without it. Start with Run and Harness. A driver's own test calls Run with a Harness; the
// driver is complete when it passes. Features of only one kind of database are tested beside its driver.
package drivertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Harness is what the suite needs from a driver.
type Harness struct {
	// Place creates an empty place for documents, and removes it when the test ends.
	Place func(t *testing.T) Place

	// Partial says that a reader may see part of a batch, because the database has no transactions.
	Partial bool

	// NoPatterns says that the database cannot implement domain.Matches: a query with one is refused.
	NoPatterns bool

	// MaxDepth is the maximum nesting of lists and objects in the database, if it is less than domain.MaxJSONDepth. A
	// document that nests deeper is refused. 0: domain.MaxJSONDepth.
	MaxDepth int

	// MaxDocumentBytes is the maximum size of a document's data, if it is less than domain.MaxDocumentBytes. A larger
	// document is refused with domain.CodeTooLarge. 0: domain.MaxDocumentBytes.
	MaxDocumentBytes int

	// Slow says that the server takes a millisecond or more per document, as an emulated server does. Then tests with
	// very many documents use a fiftieth of them or less, and repetitions are fewer. Tests of shared builds run only on
	// those with indexes.
	Slow bool

	// Subjects are the subjects that Run tests, such as "Save"; nil: all. A second harness of a driver may differ in
	// only a few.
	Subjects []string

	// SharedOnly skips tenants' own builds where a test is the same for shared ones. It is for a second harness of a
	// driver that stores only shared builds in another way.
	SharedOnly bool
}

// Place is where drivers store documents.
type Place struct {
	// Open opens a driver on the place; each call acts like another process. The suite closes the driver.
	Open func(t *testing.T) drivers.Driver

	// Public reads what people see under a shared projection's public name; ok is false if there is no such name. It is
	// nil for a driver without public names.
	Public func(t *testing.T, projection string) (documents []PublicDocument, ok bool)

	// Address is where the server listens, as "host:port". OpenAt opens a driver on another address, from which a proxy
	// leads to the server. Only RunFaults needs them.
	Address string
	OpenAt  func(t *testing.T, address string) drivers.Driver

	// Forget removes everything that drivers have created in the place, including tables, as when the server comes back
	// with an empty disk. If it is nil, RunFaults skips that test.
	Forget func(t *testing.T)
}

// PublicDocument is a row of a public name's view.
type PublicDocument struct {
	Tenant  domain.TenantID
	ID      string
	Version int64
}

// Run runs the suite. Its tests are parallel. Each uses separate projections and tenants, in one place.
func Run(t *testing.T, harness Harness) {
	harness.MaxDepth = cmp.Or(harness.MaxDepth, domain.MaxJSONDepth)
	harness.MaxDocumentBytes = cmp.Or(harness.MaxDocumentBytes, domain.MaxDocumentBytes)
	place := harness.Place(t)
	s := &suite{Harness: harness, place: place}
	s.driver = s.open(t)
	unknown := slices.Clone(harness.Subjects)
	for _, subject := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"Tables", s.tables},
		{"Public", s.public},
		{"Save", s.saves},
		{"Repair", s.repair},
		{"Checkpoint", s.checkpoints},
		{"Load", s.loads},
		{"Query", s.queries},
		{"Predicate", s.predicates},
		{"Order", s.orders},
		{"Indexes", s.indexes},
		{"Partition", s.partitions},
		{"Isolation", s.isolation},
		{"Concurrency", s.concurrency},
		{"Values", s.values},
		{"Model", s.model},
	} {
		if harness.Subjects == nil || slices.Contains(harness.Subjects, subject.name) {
			t.Run(subject.name, subject.run)
		}
		unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == subject.name })
	}
	if len(unknown) > 0 {
		t.Errorf("there are no subjects %q", unknown)
	}
}

type suite struct {
	Harness
	place   Place
	driver  drivers.Driver
	numbers atomic.Int64 // the last build number that was assigned
}

// many returns how many documents a test with very many has.
func (s *suite) many(documents int64) int64 {
	switch {
	case s.Slow && s.Partial:
		return documents / 150
	case s.Slow:
		return documents / 700 // an emulated transaction takes longer
	}
	return documents
}

// limit draws a query's limit. A slow server gets few pages of a drawn query, because it reads all documents for each.
func (s *suite) limit(t *rapid.T) int {
	limits := []int{3, 7, 1, 1000}
	if s.Slow {
		limits = []int{7, 1000}
	}
	return rapid.SampledFrom(limits).Draw(t, "limit")
}

// times returns the number of repetitions or items: fewer if the server is slow.
func (s *suite) times(usual, slow int) int {
	if s.Slow {
		return slow
	}
	return usual
}

func (s *suite) open(t *testing.T) drivers.Driver {
	t.Helper()
	driver := s.place.Open(t)
	t.Cleanup(driver.Close)
	if err := driver.Ping(t.Context()); err != nil {
		t.Fatalf("Ping: %v", err)
	}
	return driver
}

// shared returns a new build of a new shared projection. Its table exists.
func (s *suite) shared(t *testing.T) domain.Build {
	t.Helper()
	build := s.withoutTable()
	if err := s.driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatalf("CreateTemporaryTable: %v", err)
	}
	return build
}

// withoutTable is shared without the table.
func (s *suite) withoutTable() domain.Build {
	return domain.Build{ProjectionID: domain.ProjectionID{Name: "p-" + rand.Text()[:8]}, Number: s.numbers.Add(1)}
}

// own returns a new build of a tenant's own projection.
func (s *suite) own(tenant domain.TenantID) domain.Build {
	return domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "own-" + rand.Text()[:8]}, Number: s.numbers.Add(1)}
}

// each runs a test on a shared build and, except with SharedOnly, on a tenant's own.
func (s *suite) each(t *testing.T, name string, test func(t *testing.T, build domain.Build, tenant domain.TenantID)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		t.Run("shared", func(t *testing.T) {
			t.Parallel()
			test(t, s.shared(t), domain.NewTenantID())
		})
		if s.SharedOnly {
			return
		}
		t.Run("own", func(t *testing.T) {
			t.Parallel()
			tenant := domain.NewTenantID()
			test(t, s.own(tenant), tenant)
		})
	})
}

// large is each for a test with large documents, or a long one: if the server is slow, it uses only a shared build.
func (s *suite) large(t *testing.T, name string, test func(t *testing.T, build domain.Build, tenant domain.TenantID)) {
	if !s.Slow {
		s.each(t, name, test)
		return
	}
	parallel(t, name, func(t *testing.T) { test(t, s.shared(t), domain.NewTenantID()) })
}

// parallel runs a test in parallel with the others.
func parallel(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}

func document(id string, version int64, data string) domain.Document {
	return domain.Document{ID: id, Version: version, Data: json.RawMessage(data)}
}

// fatalf is what testing.T and rapid.T have in common.
type fatalf interface {
	Helper()
	Fatalf(format string, args ...any)
}

func (s *suite) save(t fatalf, build domain.Build, tenant domain.TenantID, batch drivers.Batch) {
	t.Helper()
	if err := s.driver.Save(context.Background(), build, tenant, batch); err != nil {
		t.Fatalf("Save from %d to %d: %v", batch.From, batch.To, err)
	}
}

// wantDocuments checks everything that the tenant has in the build: what Query pages through, what Count counts, and
// what Load and Get find.
func (s *suite) wantDocuments(t fatalf, build domain.Build, tenant domain.TenantID, want ...domain.Document) {
	t.Helper()
	ctx := context.Background()
	byID := make(map[string]domain.Document, len(want))
	ids := []string{"there is no such document"}
	for _, document := range want {
		byID[document.ID] = document
		ids = append(ids, document.ID)
	}
	check := func(method string, got []domain.Document) {
		t.Helper()
		if len(got) != len(byID) {
			t.Fatalf("%s gives %d documents, want %d", method, len(got), len(byID))
		}
		seen := make(map[string]bool, len(got))
		for _, document := range got {
			if seen[document.ID] {
				t.Fatalf("%s gives %q twice", method, document.ID)
			}
			seen[document.ID] = true
			wanted, ok := byID[document.ID]
			if !ok {
				t.Fatalf("%s gives %q, which should not be there", method, document.ID)
			}
			if document.Version != wanted.Version {
				t.Fatalf("%s gives %q at version %d, want %d", method, document.ID, document.Version, wanted.Version)
			}
			if difference := compareJSON(wanted.Data, document.Data); difference != "" {
				t.Fatalf("%s gives %q with other data: %s", method, document.ID, difference)
			}
		}
	}
	queried, err := s.pages(build, tenant, domain.DocumentQuery{Limit: max(1000, len(want)/5)})
	if err != nil {
		t.Fatalf("Query: %v", err)
	}
	check("Query", queried)
	loaded, err := s.driver.Load(ctx, build, tenant, ids)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	if s.Partial {
		// Load may still return a removal that was interrupted before its checkpoint.
		loaded = slices.DeleteFunc(loaded, func(document domain.Document) bool { return document.Data == nil })
	}
	check("Load", loaded)
	if count, err := s.driver.Count(ctx, build, tenant, nil); err != nil || count != int64(len(want)) {
		t.Fatalf("Count = %d, %v; want %d", count, err, len(want))
	}
	for i, document := range want {
		if i == 20 {
			break
		}
		got, ok, err := s.driver.Get(ctx, build, tenant, document.ID)
		if err != nil || !ok {
			t.Fatalf("Get(%q) = %t, %v", document.ID, ok, err)
		}
		byID = map[string]domain.Document{document.ID: document}
		check("Get", []domain.Document{got})
	}
}

// pages reads all documents that the query asks for, in pages of its limit.
func (s *suite) pages(build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	var all []domain.Document
	for {
		page, err := s.driver.Query(context.Background(), build, tenant, query)
		if err != nil {
			return nil, err
		}
		if cut := query.Cut(page); len(cut) < len(page) {
			return nil, fmt.Errorf("a page of at most %d documents and %d bytes was asked for, which %d would have filled; it has %d", query.Limit, query.MaxBytes, len(cut), len(page))
		}
		all = append(all, page...)
		if query.Ended(page) {
			return all, nil
		}
		if len(page) == 0 {
			return nil, fmt.Errorf("a page of at most %d documents and %d bytes is empty, and not the last", query.Limit, query.MaxBytes)
		}
		place, err := domain.SortKeyOf(page[len(page)-1], query.Order)
		if err != nil {
			return nil, err
		}
		if query.After != nil && place.Compare(*query.After, query.Order) <= 0 {
			return nil, fmt.Errorf("a page after %+v ends at %+v, which is before it", *query.After, place)
		}
		query.After = &place
	}
}

func (s *suite) wantCheckpoint(t fatalf, build domain.Build, tenant domain.TenantID, want int64) {
	t.Helper()
	got, err := s.driver.Checkpoint(context.Background(), build, tenant)
	if err != nil || got != want {
		t.Fatalf("Checkpoint = %d, %v; want %d", got, err, want)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

func wantCode(t *testing.T, err error, want domain.Code) {
	t.Helper()
	if !domain.IsCode(err, want) {
		t.Errorf("the error is %v, want one with the code %s", err, want)
	}
}
