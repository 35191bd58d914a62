package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

func (s *suite) saves(t *testing.T) {
	t.Parallel()
	s.each(t, "upserts, deletes and checkpoint", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		s.save(t, build, tenant, drivers.Batch{To: 3, Upserts: []domain.Document{
			document("a", 1, `{"n": 1}`), document("b", 2, `{"n": 2}`), document("c", 3, `{"n": 3}`),
		}})
		s.wantDocuments(t, build, tenant, document("a", 1, `{"n": 1}`), document("b", 2, `{"n": 2}`), document("c", 3, `{"n": 3}`))
		s.wantCheckpoint(t, build, tenant, 3)
		s.save(t, build, tenant, drivers.Batch{From: 3, To: 9,
			Upserts: []domain.Document{document("b", 7, `{"n": 22}`), document("d", 5, `{}`)},
			Deletes: []drivers.Deletion{{ID: "a", Version: 8}, {ID: "never there", Version: 9}},
		})
		s.wantDocuments(t, build, tenant, document("b", 7, `{"n": 22}`), document("c", 3, `{"n": 3}`), document("d", 5, `{}`))
		s.wantCheckpoint(t, build, tenant, 9)
		// A removed document may come back, and may be removed again.
		s.save(t, build, tenant, drivers.Batch{From: 9, To: 10, Upserts: []domain.Document{document("a", 10, `{"back": true}`)}})
		s.wantDocuments(t, build, tenant, document("a", 10, `{"back": true}`), document("b", 7, `{"n": 22}`), document("c", 3, `{"n": 3}`), document("d", 5, `{}`))
		s.save(t, build, tenant, drivers.Batch{From: 10, To: 11, Deletes: []drivers.Deletion{{ID: "a", Version: 11}, {ID: "d", Version: 11}}})
		s.wantDocuments(t, build, tenant, document("b", 7, `{"n": 22}`), document("c", 3, `{"n": 3}`))
		s.wantCheckpoint(t, build, tenant, 11)
	})

	s.each(t, "an existing document that the batch calls new is upserted", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{document("a", 1, `{"n": 1}`)}, New: 1})
		s.save(t, build, tenant, drivers.Batch{From: 1, To: 2, New: 2,
			Upserts: []domain.Document{document("b", 2, `{"n": 2}`), document("a", 2, `{"n": 2}`), document("c", 2, `{"n": 2}`)}})
		s.wantDocuments(t, build, tenant, document("a", 2, `{"n": 2}`), document("b", 2, `{"n": 2}`), document("c", 2, `{"n": 2}`))
		s.save(t, build, tenant, drivers.Batch{From: 2, To: 3, New: 1,
			Upserts: []domain.Document{document("d", 3, `{"n": 3}`), document("a", 3, `{"n": 3}`)}, Deletes: []drivers.Deletion{{ID: "b", Version: 3}}})
		s.wantDocuments(t, build, tenant, document("a", 3, `{"n": 3}`), document("c", 2, `{"n": 2}`), document("d", 3, `{"n": 3}`))
		s.wantCheckpoint(t, build, tenant, 3)
	})

	s.each(t, "the batch's memory is the caller's again", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		data := []byte(`{"n": 1}`)
		s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{{ID: "a", Version: 1, Data: data}}})
		copy(data, `{"n": 2}`)
		s.wantDocuments(t, build, tenant, document("a", 1, `{"n": 1}`))
	})

	s.each(t, "a save whose checkpoint is elsewhere is stale and keeps nothing", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		stale := func(from, to int64) {
			t.Helper()
			for _, batch := range []drivers.Batch{
				{From: from, To: to},
				{From: from, To: to, Upserts: []domain.Document{document("a", to, `{"stale": true}`), document("new", to, `{}`)}, New: 2},
				{From: from, To: to, Upserts: []domain.Document{document("a", to, `{"stale": true}`), document("new", to, `{}`)}},
				{From: from, To: to, Deletes: []drivers.Deletion{{ID: "b", Version: to}}},
			} {
				wantError(t, s.driver.Save(t.Context(), build, tenant, batch), drivers.ErrStale)
			}
		}
		stale(5, 10)
		s.wantDocuments(t, build, tenant)
		s.wantCheckpoint(t, build, tenant, 0)
		kept := []domain.Document{document("a", 4, `{"kept": true}`), document("b", 5, `{"kept": true}`)}
		s.save(t, build, tenant, drivers.Batch{To: 5, Upserts: kept})
		for _, batch := range [][2]int64{{0, 10}, {4, 10}, {6, 10}, {9, 10}, {10, 11}, {0, 5}, {4, 5}} {
			stale(batch[0], batch[1])
			s.wantDocuments(t, build, tenant, kept...)
			s.wantCheckpoint(t, build, tenant, 5)
		}
	})

	s.each(t, "a batch that breaks the rules is refused whole", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		kept := document("kept", 5, `{"kept": true}`)
		s.save(t, build, tenant, drivers.Batch{To: 5, Upserts: []domain.Document{kept}})
		good := document("good", 8, `{}`)
		for name, batch := range map[string]drivers.Batch{
			"backward":            {From: 5, To: 4},
			"negative":            {From: -1, To: 6},
			"more new than there": {From: 5, To: 10, Upserts: []domain.Document{good}, New: 2},
			"version too old":     {From: 5, To: 10, Upserts: []domain.Document{good, document("x", 5, `{}`)}},
			"version too new":     {From: 5, To: 10, Upserts: []domain.Document{good, document("x", 11, `{}`)}},
			"deletion too old":    {From: 5, To: 10, Upserts: []domain.Document{good}, Deletes: []drivers.Deletion{{ID: "kept", Version: 5}}},
			"deletion too new":    {From: 5, To: 10, Upserts: []domain.Document{good}, Deletes: []drivers.Deletion{{ID: "kept", Version: 11}}},
			"no id":               {From: 5, To: 10, Upserts: []domain.Document{good, document("", 8, `{}`)}},
			"deletion without id": {From: 5, To: 10, Upserts: []domain.Document{good}, Deletes: []drivers.Deletion{{Version: 8}}},
			"long id":             {From: 5, To: 10, Upserts: []domain.Document{good, document(strings.Repeat("x", domain.MaxDocumentIDBytes+1), 8, `{}`)}},
			"id with U+0000":      {From: 5, To: 10, Upserts: []domain.Document{good, document("a\x00b", 8, `{}`)}},
			"id that is no UTF-8": {From: 5, To: 10, Upserts: []domain.Document{good, document("a\xff", 8, `{}`)}},
			"one id twice":        {From: 5, To: 10, Upserts: []domain.Document{good, document("x", 7, `{}`), document("x", 8, `{}`)}},
			"deleted twice":       {From: 5, To: 10, Deletes: []drivers.Deletion{{ID: "kept", Version: 8}, {ID: "kept", Version: 9}}},
			"kept and deleted":    {From: 5, To: 10, Upserts: []domain.Document{good, document("kept", 7, `{}`)}, Deletes: []drivers.Deletion{{ID: "kept", Version: 8}}},
		} {
			t.Run(name, func(t *testing.T) {
				wantCode(t, s.driver.Save(t.Context(), build, tenant, batch), domain.CodeInvalidRequest)
				s.wantDocuments(t, build, tenant, kept)
				s.wantCheckpoint(t, build, tenant, 5)
			})
		}
	})

	s.large(t, "a document that cannot be kept keeps its whole batch out", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		for _, wrong := range []struct {
			name string
			data string
			code domain.Code
		}{
			{"too large", `{"text": "` + strings.Repeat("x", s.MaxDocumentBytes-11) + `"}`, domain.CodeTooLarge},
			{"far too large", `{"text": "` + strings.Repeat("x", 2*domain.MaxDocumentBytes) + `"}`, domain.CodeTooLarge},
			{"cut off", `{"a": `, domain.CodeInvalidJSON},
			{"empty", ``, domain.CodeInvalidJSON},
			{"U+0000", `{"a": "\u0000"}`, domain.CodeInvalidJSON},
			{"no UTF-8", "{\"a\": \"\xff\"}", domain.CodeInvalidJSON},
			{"lone surrogate", `{"a": "\ud800"}`, domain.CodeInvalidJSON},
			{"number out of range", `{"a": 1e200000}`, domain.CodeInvalidJSON},
		} {
			t.Run(wrong.name, func(t *testing.T) {
				batch := drivers.Batch{To: 10, Upserts: []domain.Document{document("good", 1, `{}`)}}
				for i := range 1500 {
					batch.Upserts = append(batch.Upserts, document(fmt.Sprint(i), 1, `{}`))
				}
				batch.Upserts = append(batch.Upserts, document("wrong", 2, wrong.data), document("after it", 3, `{}`))
				wantCode(t, s.driver.Save(t.Context(), build, tenant, batch), wrong.code)
				s.wantDocuments(t, build, tenant)
				s.wantCheckpoint(t, build, tenant, 0)
			})
		}
		largest := document("as large as may be", 1, `{"text": "`+strings.Repeat("x", s.MaxDocumentBytes-12)+`"}`)
		s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{largest}})
		s.wantDocuments(t, build, tenant, largest)
	})

	s.large(t, "documents that are too large together are not loaded", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		if s.Slow {
			t.Skip("the server needs half a minute for a reply of this size")
		}
		text := `{"text": "` + strings.Repeat("x", s.MaxDocumentBytes-1000) + `"}`
		var ids []string
		for n := range int64(drivers.MaxLoadBytes/len(text) + 1) {
			ids = append(ids, fmt.Sprint(n))
			s.save(t, build, tenant, drivers.Batch{From: n, To: n + 1, Upserts: []domain.Document{document(ids[n], n+1, text)}})
		}
		for range 2 {
			if documents, err := s.driver.Load(t.Context(), build, tenant, ids); !errors.Is(err, drivers.ErrLoadTooLarge) {
				t.Fatalf("Load of %d bytes = %d documents, %v", len(ids)*len(text), len(documents), err)
			}
		}
		if documents, err := s.driver.Load(t.Context(), build, tenant, ids[1:]); err != nil || len(documents) != len(ids)-1 {
			t.Errorf("Load of %d bytes = %d documents, %v", (len(ids)-1)*len(text), len(documents), err)
		}
	})

	s.large(t, "a document that grows in the database is kept or refused", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		grows := document("grows", 1, `{"a": [1`+strings.Repeat(",1", min(1_400_000, s.MaxDocumentBytes/2-10))+`]}`)
		batch := drivers.Batch{To: 1, Upserts: []domain.Document{document("good", 1, `{}`), grows, document("after it", 1, `{}`)}}
		if err := s.driver.Save(t.Context(), build, tenant, batch); err != nil {
			wantCode(t, err, domain.CodeTooLarge)
			s.wantDocuments(t, build, tenant)
			s.wantCheckpoint(t, build, tenant, 0)
			return
		}
		s.wantCheckpoint(t, build, tenant, 1)
		got, ok, err := s.driver.Get(t.Context(), build, tenant, grows.ID)
		if err != nil || !ok {
			t.Fatalf("Get = %t, %v", ok, err)
		}
		if difference := compareJSON(grows.Data, got.Data); difference != "" {
			t.Errorf("it comes back with other data: %s", difference)
		}
	})

	s.each(t, "depth", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		deepest := document("deepest", 1, nested(s.MaxDepth))
		s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{deepest}})
		s.wantDocuments(t, build, tenant, deepest)
		for _, depth := range []int{s.MaxDepth + 1, 5000} {
			beyond := document("beyond", 2, nested(depth))
			err := s.driver.Save(t.Context(), build, tenant, drivers.Batch{From: 1, To: 2, Upserts: []domain.Document{document("good", 2, `{}`), beyond}})
			if err == nil && s.MaxDepth == domain.MaxJSONDepth {
				return // nobody requires it, and the database accepts it
			}
			if !domain.IsCode(err, domain.CodeInvalidJSON) {
				t.Errorf("a document %d deep gives %v, want the code %s", depth, err, domain.CodeInvalidJSON)
			}
			s.wantDocuments(t, build, tenant, deepest)
			s.wantCheckpoint(t, build, tenant, 1)
		}
	})

	// More than a statement can have parameters in any of the databases. The kind of build makes no difference to that.
	parallel(t, "70,000 small documents", func(t *testing.T) {
		build, tenant := s.shared(t), domain.NewTenantID()
		n := s.many(70_000)
		batch := drivers.Batch{To: n, Upserts: make([]domain.Document, n)}
		for i := range batch.Upserts {
			batch.Upserts[i] = document(fmt.Sprintf("document %d", i), int64(i+1), fmt.Sprintf(`{"n": %d}`, i))
		}
		s.save(t, build, tenant, batch)
		s.wantDocuments(t, build, tenant, batch.Upserts...)
		batch = drivers.Batch{From: n, To: n + 1}
		for i := range n {
			batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: fmt.Sprintf("document %d", i), Version: n + 1})
		}
		batch.Deletes = batch.Deletes[1:]
		s.save(t, build, tenant, batch)
		s.wantDocuments(t, build, tenant, document("document 0", 1, `{"n": 0}`))
		s.wantCheckpoint(t, build, tenant, n+1)
	})

	s.each(t, "a save that is given up is whole or was never begun", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		n := min(200, int(s.many(1000)))
		var at int64
		for range s.times(30, 10) {
			batch := drivers.Batch{From: at, To: at + 1}
			for i := range n {
				batch.Upserts = append(batch.Upserts, document(fmt.Sprint(i), at+1, fmt.Sprintf(`{"n": %d}`, at+1)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.N(8000))*time.Microsecond)
			err := s.driver.Save(ctx, build, tenant, batch)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Save: %v", err)
			}
			if err != nil {
				// Without transactions it is complete only after a repeat; with them the repeat is stale if it was
				// complete.
				if err := s.driver.Save(t.Context(), build, tenant, batch); err != nil && !errors.Is(err, drivers.ErrStale) {
					t.Fatalf("Save again: %v", err)
				}
			}
			at++
			s.wantCheckpoint(t, build, tenant, at)
			s.wantDocuments(t, build, tenant, batch.Upserts...)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.driver.Save(ended, build, tenant, drivers.Batch{From: at, To: at + 1})
		wantError(t, err, context.Canceled)
		s.wantCheckpoint(t, build, tenant, at)
	})
}

// nested returns an object with lists and objects nested to the depth.
func nested(depth int) string {
	text := "1"
	for level := depth; level > 1; level-- {
		if level%2 == 0 {
			text = "[" + text + "]"
		} else {
			text = `{"a": ` + text + "}"
		}
	}
	return `{"a": ` + text + "}"
}
