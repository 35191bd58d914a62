package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

func (s *suite) concurrency(t *testing.T) {
	t.Parallel()
	s.each(t, "of many savers from one checkpoint exactly one wins", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		processes := []drivers.Driver{s.driver, s.open(t), s.open(t)}
		rapid.Check(t, func(t *rapid.T) {
			// Each check is a separate race: it starts where the last one ended.
			from, err := s.driver.Checkpoint(context.Background(), build, tenant)
			if err != nil {
				t.Fatalf("Checkpoint: %v", err)
			}
			before, err := s.pages(build, tenant, domain.DocumentQuery{Limit: 1000})
			if err != nil {
				t.Fatalf("Query: %v", err)
			}
			batches := make([]drivers.Batch, rapid.IntRange(2, 6).Draw(t, "savers"))
			log := drawBatch(t, "log", from)
			for i := range batches {
				if s.Partial {
					// What a loser has written stays and is correct, because all fold one log: each goes part of the
					// way.
					batches[i] = between(log, from, rapid.Int64Range(from+1, log.To).Draw(t, fmt.Sprint("end ", i)))
				} else {
					batches[i] = drawBatch(t, fmt.Sprint("saver ", i), from)
				}
			}
			start := make(chan struct{})
			errs := make([]error, len(batches))
			var wait sync.WaitGroup
			for i, batch := range batches {
				wait.Go(func() {
					<-start
					errs[i] = processes[i%len(processes)].Save(context.Background(), build, tenant, batch)
				})
			}
			close(start)
			wait.Wait()
			winner := -1
			for i, err := range errs {
				switch {
				case err == nil && winner >= 0:
					t.Fatalf("savers %d and %d both won", winner, i)
				case err == nil:
					winner = i
				case !errors.Is(err, drivers.ErrStale):
					t.Fatalf("Save: %v", err)
				}
			}
			if winner < 0 {
				t.Fatalf("nobody won")
			}
			want := newContents(before)
			want.apply(batches[winner])
			s.wantCheckpoint(t, build, tenant, batches[winner].To)
			if rest := between(log, batches[winner].To, log.To); s.Partial && rest.From < rest.To {
				s.save(t, build, tenant, rest)
				want.apply(rest)
			}
			s.wantDocuments(t, build, tenant, want.documents()...)
		})
	})

	s.each(t, "the winner's documents are not left at a loser's older version", s.racingInserts)

	s.each(t, "a chain of saves by several workers", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		const workers = 4
		saves := s.times(40, 15)
		var mutex sync.Mutex
		won := make(map[int64]drivers.Batch) // by From
		// All fold one log: each position changes a document, and most change the same document more than once.
		fold := func(from, to int64) drivers.Batch {
			batch, seen := drivers.Batch{From: from, To: to}, make(map[string]bool)
			for position := to; position > from; position-- {
				id := fmt.Sprint(position * position % 7)
				switch {
				case seen[id]:
				case position%4 == 0:
					batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: id, Version: position})
				default:
					batch.Upserts = append(batch.Upserts, document(id, position, fmt.Sprintf(`{"position": %d}`, position)))
				}
				seen[id] = true
			}
			return batch
		}
		const furthest = 8
		var wait sync.WaitGroup
		for worker := range workers {
			driver := s.driver
			if worker%2 == 1 {
				driver = s.open(t)
			}
			wait.Go(func() {
				random := rand.New(rand.NewPCG(uint64(worker), uint64(build.Number)))
				for range saves {
					from, err := driver.Checkpoint(t.Context(), build, tenant)
					if err != nil {
						t.Errorf("Checkpoint: %v", err)
						return
					}
					batch := fold(from, from+1+random.Int64N(furthest))
					switch err := driver.Save(t.Context(), build, tenant, batch); {
					case err == nil:
						mutex.Lock()
						if _, twice := won[from]; twice {
							t.Errorf("two workers saved from %d", from)
						}
						won[from] = batch
						mutex.Unlock()
					case !errors.Is(err, drivers.ErrStale):
						t.Errorf("Save: %v", err)
						return
					}
				}
			})
		}
		wait.Wait()
		want := newContents(nil)
		var at int64
		for range won {
			batch, ok := won[at]
			if !ok {
				t.Fatalf("nobody saved from %d, where the chain of %d saves should continue", at, len(won))
			}
			want.apply(batch)
			at = batch.To
		}
		s.wantCheckpoint(t, build, tenant, at)
		// The next save overtakes what losers may have written beyond the checkpoint.
		last := fold(at, at+furthest)
		s.save(t, build, tenant, last)
		want.apply(last)
		s.wantDocuments(t, build, tenant, want.documents()...)
	})

	parallel(t, "tenants do not wait for one another to be right", func(t *testing.T) {
		build := s.shared(t)
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				tenant := domain.NewTenantID()
				for at := range int64(20) {
					if err := s.driver.Save(t.Context(), build, tenant, drivers.Batch{From: at, To: at + 1, Upserts: []domain.Document{
						document("a", at+1, `{}`), document(fmt.Sprint(at), at+1, `{}`),
					}}); err != nil {
						t.Errorf("Save: %v", err)
						return
					}
				}
				if count, err := s.driver.Count(t.Context(), build, tenant, nil); err != nil || count != 21 {
					t.Errorf("Count = %d, %v; want 21", count, err)
				}
			})
		}
		wait.Wait()
	})

	if s.Partial {
		return
	}
	s.each(t, "a reader sees all of a batch or nothing", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		n, saves := s.times(300, 20), s.times(30, 10)
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprintf("d%03d", i)
		}
		done := make(chan struct{})
		var saver sync.WaitGroup
		saver.Go(func() {
			defer close(done)
			for at := range int64(saves) {
				batch := drivers.Batch{From: at, To: at + 1}
				for _, id := range ids {
					batch.Upserts = append(batch.Upserts, document(id, at+1, `{}`))
				}
				if err := s.driver.Save(t.Context(), build, tenant, batch); err != nil {
					t.Errorf("Save: %v", err)
					return
				}
			}
		})
		check := func(method string, documents []domain.Document, err error) {
			if err != nil {
				t.Errorf("%s: %v", method, err)
			}
			if len(documents) != 0 && len(documents) != n {
				t.Errorf("%s gives %d documents of a batch of %d", method, len(documents), n)
			}
			for _, document := range documents {
				if document.Version != documents[0].Version {
					t.Errorf("%s gives documents of version %d and of %d", method, documents[0].Version, document.Version)
					break
				}
			}
		}
		for reading := true; reading; {
			select {
			case <-done:
				reading = false
			default:
			}
			documents, err := s.driver.Query(t.Context(), build, tenant, domain.DocumentQuery{Limit: 2 * n})
			check("Query", documents, err)
			documents, err = s.driver.Load(t.Context(), build, tenant, ids)
			check("Load", documents, err)
			if count, err := s.driver.Count(t.Context(), build, tenant, nil); err != nil || count != 0 && count != int64(n) {
				t.Errorf("Count = %d, %v", count, err)
			}
		}
		saver.Wait()
	})
}

// racingInserts lets two savers start from one checkpoint, as at a handover, and insert the same documents. The one
// that gets further has the newer versions. If it wins, everything that it saved stays. If it loses, each document is
// as one of the two saved it, and not older than the winner's.
func (s *suite) racingInserts(t *testing.T, build domain.Build, tenant domain.TenantID) {
	near, far := s.driver, s.open(t)
	const each = 8 // ids of one kind per round
	for from := int64(0); from < int64(2*s.times(30, 12)); from += 2 {
		batches := []drivers.Batch{{From: from, To: from + 1}, {From: from, To: from + 2}}
		for i := range each {
			for saver := range batches {
				batch := &batches[saver]
				for kind, removes := range [][]bool{{false, false}, {true, false}, {false, true}} {
					id := fmt.Sprintf("%d %d %d", from, kind, i)
					if removes[saver] {
						batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: id, Version: batch.To})
					} else {
						batch.Upserts = append(batch.Upserts, document(id, batch.To, fmt.Sprintf(`{"saver": %d}`, saver)))
					}
				}
			}
		}
		errs := make([]error, len(batches))
		start := make(chan struct{})
		var wait sync.WaitGroup
		for saver, driver := range []drivers.Driver{near, far} {
			wait.Go(func() {
				<-start
				errs[saver] = driver.Save(t.Context(), build, tenant, batches[saver])
			})
		}
		close(start)
		wait.Wait()
		winner := 0
		if errs[0] != nil {
			winner = 1
		}
		if errs[winner] != nil || !errors.Is(errs[1-winner], drivers.ErrStale) {
			t.Fatalf("of two savers from %d one must win, and the other be stale: %v", from, errs)
		}
		var ids []string
		least := make(map[string]int64)
		for _, upsert := range batches[winner].Upserts {
			ids, least[upsert.ID] = append(ids, upsert.ID), upsert.Version
		}
		for _, deletion := range batches[winner].Deletes {
			ids = append(ids, deletion.ID)
		}
		loaded, err := s.driver.Load(t.Context(), build, tenant, ids)
		if err != nil {
			t.Fatalf("Load: %v", err)
		}
		for _, found := range loaded {
			want := batches[winner].To
			if s.Partial && found.Version > want {
				want = from + 2 // the loser got further with this document
			}
			if found.Version != want || found.Data != nil && compareJSON([]byte(fmt.Sprintf(`{"saver": %d}`, want-from-1)), found.Data) != "" {
				t.Fatalf("the saver from %d to %d has won, and %q is at version %d with %s", from, batches[winner].To, found.ID, found.Version, found.Data)
			}
			delete(least, found.ID)
		}
		for id, version := range least {
			t.Fatalf("the saver from %d to %d has won, and %q, which it saved at version %d, is missing", from, batches[winner].To, id, version)
		}
		if winner == 0 {
			s.save(t, build, tenant, drivers.Batch{From: from + 1, To: from + 2})
		}
	}
}
