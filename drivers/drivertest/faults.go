package drivertest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/drivertest/proxy"
)

// patience limits each operation once the server can be reached. It only stops tests that hang.
const patience = 3 * time.Minute

// RunFaults tests how a driver handles failures of the network and the server: connections that are cut in the middle
// of a save, a server that hangs, is down for a while, or comes back empty, and a save that arrives late. In the end no
// document is lost, duplicated, or ahead of its checkpoint. The harness's places need Address and OpenAt.
func RunFaults(t *testing.T, harness Harness) {
	place := harness.Place(t)
	if place.Address == "" || place.OpenAt == nil {
		t.Fatal("the harness's place has no Address or OpenAt: faults cannot be made")
	}
	s := &suite{Harness: harness, place: place}
	s.driver = s.open(t)
	s.each(t, "connections that are cut in the middle", s.cuts)
	s.each(t, "a server that hangs", s.hangs)
	s.each(t, "a server that is down and comes back", s.downs)
	s.each(t, "a save that arrives late", s.lateSave)
	s.each(t, "documents that are gone", s.dropped)
	if place.Forget != nil {
		parallel(t, "a server that comes back empty-handed", func(t *testing.T) {
			s := &suite{Harness: harness, place: harness.Place(t)}
			s.driver = s.open(t)
			s.emptied(t)
		})
	}
}

// behindProxy opens a driver behind a proxy, and a worker on it.
func (s *suite) behindProxy(t *testing.T, build domain.Build, tenant domain.TenantID) (*proxy.Proxy, worker) {
	t.Helper()
	p := proxy.New(t, s.place.Address)
	driver := s.place.OpenAt(t, p.Address())
	t.Cleanup(driver.Close)
	l := ledger{seed: rand.Uint64(), bytes: 20_000}
	t.Logf("the ledger's seed is %d", l.seed)
	return p, worker{l, driver, build, tenant}
}

// patiently returns a context that ends long after everything should be done.
func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// wantConsistent checks that documents and checkpoint are consistent. All documents are as they are at the checkpoint.
// In a database without transactions they may be as at a later version of theirs, which Load reports.
func (s *suite) wantConsistent(t *testing.T, w worker, to int64) {
	t.Helper()
	for {
		at, err := s.driver.Checkpoint(t.Context(), w.build, w.tenant)
		if err != nil {
			t.Fatalf("Checkpoint: %v", err)
		}
		documents, err := s.pages(w.build, w.tenant, domain.DocumentQuery{Limit: 1000})
		if err != nil {
			t.Fatalf("Query: %v", err)
		}
		var ids []string
		want := make(map[string]domain.Document)
		for _, document := range w.documents(t, at) {
			ids = append(ids, document.ID)
			want[document.ID] = document
		}
		loaded, err := s.driver.Load(t.Context(), w.build, w.tenant, ids)
		if err != nil {
			t.Fatalf("Load: %v", err)
		}
		if now, err := s.driver.Checkpoint(t.Context(), w.build, w.tenant); err != nil || now != at {
			continue // a save whose connection was cut has arrived meanwhile
		}
		history := w.history(t, to)
		for _, document := range documents {
			wanted := want[document.ID]
			if s.Partial && document.Version > at {
				wanted = history[document.ID][document.Version]
			}
			if wanted.Data == nil || document.Version != wanted.Version || compareJSON(wanted.Data, document.Data) != "" {
				t.Fatalf("at the checkpoint %d, %q has version %d and %.100s; want version %d and %.100s", at, document.ID, document.Version, document.Data, wanted.Version, wanted.Data)
			}
			delete(want, document.ID)
		}
		for _, document := range loaded {
			if removed, ok := history[document.ID][document.Version]; s.Partial && document.Version > at && ok && removed.Data == nil {
				delete(want, document.ID)
			}
		}
		for id := range want {
			t.Fatalf("at the checkpoint %d, %q is missing, and Load does not report a later removal", at, id)
		}
		return
	}
}

// cuts saves batches whose connection ends after a drawn number of bytes, in either direction.
func (s *suite) cuts(t *testing.T, build domain.Build, tenant domain.TenantID) {
	p, w := s.behindProxy(t, build, tenant)
	to := int64(0)
	for round := range s.times(16, 8) {
		ctx := patiently(t) // a save may take half a minute until it is given up
		to += 1 + rand.Int64N(30)
		direction, maxBytes := proxy.ToServer, 400_000.0
		if round%3 == 2 {
			direction, maxBytes = proxy.ToClient, 3000
		}
		bytes, reset := int(math.Exp(rand.Float64()*math.Log(maxBytes))), rand.IntN(2) == 0
		save := func() error { return w.advance(ctx, t, to) }
		if round%4 != 3 {
			// Everything that the save needs is read first, so that the cut is in the save itself.
			batch, err := w.batch(ctx, t, to)
			if err != nil {
				t.Fatal(err)
			}
			save = func() error { return w.driver.Save(ctx, build, tenant, batch) }
		}
		p.Cut(direction, bytes, reset)
		if err := save(); err != nil && !errors.Is(err, drivers.ErrStale) && !domain.IsCode(err, domain.CodeUnavailable) {
			t.Errorf("cut %s after %d bytes (reset: %t), a save gives %v; want the code %s", direction, bytes, reset, err, domain.CodeUnavailable)
		}
		s.wantConsistent(t, w, to)
		p.Heal()
		w.reach(ctx, t, to)
		s.wantCheckpoint(t, build, tenant, to)
		s.wantDocuments(t, build, tenant, w.documents(t, to)...)
	}
}

// all calls every method at once and returns the errors by method name. Methods that remove something get builds that
// nothing else uses.
func (s *suite) all(ctx context.Context, t *testing.T, w worker) map[string]error {
	t.Helper()
	spare := s.withoutTable()
	calls := map[string]func() error{
		"CreateTemporaryTable": func() error { return w.driver.CreateTemporaryTable(ctx, spare) },
		"IndexTable":           func() error { return w.driver.IndexTable(ctx, spare) },
		"SwapTable":            func() error { return w.driver.SwapTable(ctx, spare, nil) },
		"DropTable":            func() error { return w.driver.DropTable(ctx, spare) },
		"DropTenant":           func() error { return w.driver.DropTenant(ctx, spare, w.tenant) },
		"Load": func() error {
			_, err := w.driver.Load(ctx, w.build, w.tenant, []string{"a"})
			return err
		},
		"Save": func() error { return w.driver.Save(ctx, w.build, w.tenant, drivers.Batch{From: 1 << 40, To: 1 << 41}) },
		"Checkpoint": func() error {
			_, err := w.driver.Checkpoint(ctx, w.build, w.tenant)
			return err
		},
		"Checkpoints": func() (err error) {
			for _, err = range w.driver.Checkpoints(ctx, w.build) {
			}
			return err
		},
		"Get": func() error {
			_, _, err := w.driver.Get(ctx, w.build, w.tenant, "a")
			return err
		},
		"Query": func() error {
			_, err := w.driver.Query(ctx, w.build, w.tenant, domain.DocumentQuery{Limit: 1, Where: has("a")})
			return err
		},
		"Count": func() error {
			_, err := w.driver.Count(ctx, w.build, w.tenant, has("a"))
			return err
		},
		"Explain": func() error {
			_, err := w.driver.Explain(ctx, w.build, w.tenant, domain.DocumentQuery{Limit: 1})
			return err
		},
		"Ping": func() error { return w.driver.Ping(ctx) },
	}
	type answer struct {
		method string
		err    error
	}
	answers := make(chan answer, len(calls))
	for method, call := range calls {
		go func() { answers <- answer{method, call()} }()
	}
	errs := make(map[string]error)
	limit := time.After(patience)
	for range calls {
		select {
		case answer := <-answers:
			errs[answer.method] = answer.err
			delete(calls, answer.method)
		case <-limit:
			for method := range calls {
				t.Errorf("%s does not return when its context ends", method)
			}
			t.FailNow()
		}
	}
	return errs
}

// hangs stops the replies, or everything, and checks that each method returns when its context ends.
func (s *suite) hangs(t *testing.T, build domain.Build, tenant domain.TenantID) {
	p, w := s.behindProxy(t, build, tenant)
	to := int64(0)
	for _, directions := range [][]proxy.Direction{{proxy.ToClient}, {proxy.ToServer, proxy.ToClient}} {
		to += 20
		w.reach(patiently(t), t, to)
		to += 20
		batch, err := w.batch(patiently(t), t, to)
		if err != nil {
			t.Fatal(err)
		}
		for _, direction := range directions {
			p.Hang(direction)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if err := w.driver.Save(ctx, build, tenant, batch); !errors.Is(err, context.DeadlineExceeded) && !domain.IsCode(err, domain.CodeUnavailable) {
			t.Errorf("a save on a server that hangs gives %v", err)
		}
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		for method, err := range s.all(ctx, t, w) {
			ownTable := !build.Shared() && method == "CreateTemporaryTable" // nothing to create, no server to ask
			if !errors.Is(err, context.DeadlineExceeded) && !domain.IsCode(err, domain.CodeUnavailable) && !ownTable {
				t.Errorf("%s on a server that hangs gives %v", method, err)
			}
		}
		cancel()
		s.wantConsistent(t, w, to)
		// The proxy stops first, so that commands in flight cannot arrive after they were given up.
		p.Down()
		p.Heal()
		p.Up()
		w.reach(patiently(t), t, to)
		s.wantCheckpoint(t, build, tenant, to)
		s.wantDocuments(t, build, tenant, w.documents(t, to)...)
	}
}

// downs stops the server while a worker is saving, and starts it again.
func (s *suite) downs(t *testing.T, build domain.Build, tenant domain.TenantID) {
	p, w := s.behindProxy(t, build, tenant)
	w.reach(patiently(t), t, 10)
	p.Down()
	const enough = 5 * time.Second
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	errs := s.all(ctx, t, w)
	cancel()
	for method, err := range errs {
		ownTable := !build.Shared() && method == "CreateTemporaryTable"
		if !domain.IsCode(err, domain.CodeUnavailable) && !ownTable && !(errors.Is(err, context.DeadlineExceeded) && time.Since(begun) >= enough) {
			t.Errorf("%s without a server gives %v, want the code %s", method, err, domain.CodeUnavailable)
		}
	}
	p.Up()

	// The worker reports each save; the server stops in the middle of the following saves.
	const saves = 30
	saved := make(chan int64, saves)
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	var working sync.WaitGroup
	working.Go(func() {
		defer close(saved)
		for to := int64(11); to <= 10+saves; to++ {
			for {
				err := w.advance(ctx, t, to)
				if err == nil {
					break
				}
				if errors.Is(ctx.Err(), context.Canceled) {
					return
				}
				if !errors.Is(err, drivers.ErrStale) && !domain.IsCode(err, domain.CodeUnavailable) {
					t.Errorf("continuing to %d: %v", to, err)
					return
				}
			}
			saved <- to
		}
	})
	defer func() {
		cancel()
		working.Wait()
	}()
	for to := range saved {
		if to%6 == 0 {
			p.Down()
			s.wantConsistent(t, w, to+1)
			p.Up()
		}
	}
	s.wantCheckpoint(t, build, tenant, 10+saves)
	s.wantDocuments(t, build, tenant, w.documents(t, 10+saves)...)
}

// lateSave sends a batch so slowly that others may overtake it. It does no harm, whichever arrives first.
func (s *suite) lateSave(t *testing.T, build domain.Build, tenant domain.TenantID) {
	p, slow := s.behindProxy(t, build, tenant)
	ctx := patiently(t)
	slow.reach(ctx, t, 20)
	fast := slow
	fast.driver = s.driver
	batch, err := slow.batch(ctx, t, 60)
	if err != nil {
		t.Fatal(err)
	}
	p.Slow(proxy.ToServer, 40)
	late := make(chan error, 1)
	go func() { late <- slow.driver.Save(ctx, build, tenant, batch) }()
	for to := int64(25); to <= 100; to += 5 {
		fast.reach(ctx, t, to)
	}
	p.Heal()
	if err := <-late; err != nil && !errors.Is(err, drivers.ErrStale) && !domain.IsCode(err, domain.CodeUnavailable) {
		t.Errorf("the late save gives %v", err)
	}
	slow.reach(ctx, t, 100)
	s.wantCheckpoint(t, build, tenant, 100)
	s.wantDocuments(t, build, tenant, slow.documents(t, 100)...)
	slow.reach(ctx, t, 130)
	s.wantCheckpoint(t, build, tenant, 130)
	s.wantDocuments(t, build, tenant, slow.documents(t, 130)...)
}

// refused saves a batch that starts from an outdated checkpoint, until the server has answered.
func (w worker) refused(t *testing.T, from int64) error {
	t.Helper()
	ctx := patiently(t)
	for {
		err := w.driver.Save(ctx, w.build, w.tenant, drivers.Batch{From: from, To: from + 1, Upserts: []domain.Document{document("wrong", from+1, `{}`)}})
		if err == nil {
			t.Fatalf("a save from %d got through, where there is no longer a checkpoint", from)
		}
		if !domain.IsCode(err, domain.CodeUnavailable) || ctx.Err() != nil {
			return err
		}
	}
}

// dropped removes a build while its driver cannot reach the server, and creates it again.
func (s *suite) dropped(t *testing.T, build domain.Build, tenant domain.TenantID) {
	p, w := s.behindProxy(t, build, tenant)
	w.reach(patiently(t), t, 20)
	p.Down()
	if err := s.driver.DropTable(t.Context(), build); err != nil {
		t.Fatalf("DropTable: %v", err)
	}
	p.Up()
	if err := w.refused(t, 20); !errors.Is(err, drivers.ErrNoTable) && !errors.Is(err, drivers.ErrStale) {
		t.Errorf("a save to a build that is gone gives %v", err)
	}
	p.Down()
	if err := s.driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatalf("CreateTemporaryTable: %v", err)
	}
	p.Up()
	wantError(t, w.refused(t, 20), drivers.ErrStale)
	w.reach(patiently(t), t, 30)
	s.wantCheckpoint(t, build, tenant, 30)
	s.wantDocuments(t, build, tenant, w.documents(t, 30)...)
}

// emptied removes everything while the driver cannot reach the server. When builds are created again, the driver
// recreates what they need, without a restart.
func (s *suite) emptied(t *testing.T) {
	shared, tenant := s.shared(t), domain.NewTenantID()
	own := s.own(tenant)
	var workers []worker
	p, first := s.behindProxy(t, shared, tenant)
	for _, build := range []domain.Build{shared, own} {
		w := first
		w.build = build
		w.reach(patiently(t), t, 20)
		workers = append(workers, w)
	}
	p.Down()
	s.place.Forget(t)
	p.Up()
	for _, w := range workers {
		err := w.refused(t, 20)
		t.Logf("a save to build %d of %s gives %v", w.build.Number, w.build.Name, err)
		if w.build.Shared() && !errors.Is(err, drivers.ErrNoTable) {
			t.Errorf("a save to a table that is gone gives %v, want %v", err, drivers.ErrNoTable)
		}
	}
	for _, w := range workers {
		if err := w.driver.CreateTemporaryTable(t.Context(), w.build); err != nil {
			t.Fatalf("CreateTemporaryTable: %v", err)
		}
		wantError(t, w.refused(t, 20), drivers.ErrStale)
		w.reach(patiently(t), t, 30)
		s.wantCheckpoint(t, w.build, tenant, 30)
		s.wantDocuments(t, w.build, tenant, w.documents(t, 30)...)
	}
}
