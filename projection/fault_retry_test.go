package projection_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// flaky is a map in Go that fails while its outside system is down. It counts the keys that it computes.
type flaky struct{ down, keys, fails atomic.Int64 }

func (f *flaky) handler() folding.Handler {
	type record struct {
		At int64 `json:"at"`
	}
	return folding.MapOf(folding.MapRule[record]{
		Key: func(event domain.Event) (string, error) {
			f.keys.Add(1)
			return fmt.Sprint(event.Position), nil
		},
		Map: func(event domain.Event) (*record, error) {
			if event.Type == "Odd" && f.down.Load() > 0 {
				f.fails.Add(1)
				return nil, errors.New("the other system is down")
			}
			return &record{event.Position}, nil
		},
	})
}

// A stopped projection tries its event again by itself, reads only that event, and reports the fault once.
func TestAStoppedProjectionRetriesItsEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	var other flaky
	other.down.Store(1)
	var reported atomic.Int64
	p := b.process(options{
		handlers: map[string]folding.Handler{"flaky": other.handler()},
		retries:  domain.RetrySchedule{First: 2 * time.Millisecond, Longest: 20 * time.Millisecond},
		observer: projection.Observer{Fault: func(domain.Fault) { reported.Add(1) }},
	})
	created, err := p.catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "flaky", Handler: "flaky"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	b.append(t, tenant, "x-1", "Even", `{}`)
	at := b.append(t, tenant, "x-1", "Odd", `{}`)
	last := at
	for range 50 {
		last = b.append(t, tenant, "x-1", "Even", `{}`)
	}
	p.start(t, b)
	var fault domain.Fault
	stopped := func(retries int64) {
		t.Helper()
		await(t, func() bool {
			var ok bool
			if fault, ok, err = b.store.Fault(t.Context(), tenant, created.ProjectionID, created.Build); err != nil {
				t.Fatal(err)
			}
			return ok && fault.Retries >= retries
		})
	}
	stopped(1)
	first, keys, fails := fault, other.keys.Load(), other.fails.Load()
	stopped(first.Retries + 5)
	if fault.Position != at || !fault.At.Equal(first.At) || fault.RetryAt.Before(first.RetryAt) {
		t.Errorf("the fault was %+v, and is %+v", first, fault)
	}
	// One retry may have begun before the count, and one may have begun since.
	if keys, fails = other.keys.Load()-keys, other.fails.Load()-fails; keys > fails+2 {
		t.Errorf("%d retries have looked at %d events", fails, keys)
	}
	if n := reported.Load(); n != 1 {
		t.Errorf("the fault was reported %d times", n)
	}
	status, err := p.catalog.Status(t.Context(), tenant, "flaky")
	if err != nil || status.State != projection.StateFaulted || status.Fault.Retries < fault.Retries || status.Fault.RetryAt.IsZero() {
		t.Errorf("the status is %+v, %v", status, err)
	}
	other.down.Store(0)
	await(t, func() bool {
		_, stopped, err := b.store.Fault(t.Context(), tenant, created.ProjectionID, created.Build)
		return err == nil && !stopped
	})
	if got := documents(t, p.catalog, tenant, "flaky", last); int64(len(got)) != last {
		t.Errorf("%d documents of %d events", len(got), last)
	}
}

// While a projection keeps retrying, a skip takes effect, and another build takes over.
func TestRetriesGiveWayToSkipsAndBuilds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	var broken atomic.Bool
	broken.Store(true)
	p := b.process(options{
		handlers: map[string]folding.Handler{"tally": addingUp(&broken)},
		retries:  domain.RetrySchedule{First: time.Millisecond, Longest: time.Millisecond},
	})
	p.start(t, b)
	created, err := p.catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "tally", Handler: "tally"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	build := created.Build
	retried := func(position int64) {
		t.Helper()
		await(t, func() bool {
			fault, ok, err := b.store.Fault(t.Context(), tenant, created.ProjectionID, build)
			if err != nil {
				t.Fatal(err)
			}
			return ok && fault.Position == position && fault.Retries > 0
		})
	}
	resumed := func(position int64) { // a retry that had begun before may report the fault once more
		t.Helper()
		await(t, func() bool {
			_, err := p.catalog.Document(t.Context(), tenant, "tally", "a", projection.Freshness{MinPosition: position, Wait: time.Minute})
			return err == nil
		})
	}
	skipped := make(map[int64][]string) // for all documents
	for range 5 {
		bad := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": "many"}`)
		retried(bad)
		if _, err := p.catalog.Skip(t.Context(), tenant, "tally", bad, "", "test"); err != nil {
			t.Fatal(err)
		}
		skipped[bad] = nil
		last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
		resumed(last)
		mustEqual(t, documents(t, p.catalog, tenant, "tally", last), addedUp(t, b.log(t, tenant), skipped))
	}
	bad := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": "many"}`)
	last := b.append(t, tenant, "x-1", "Add", `{"k": "b", "n": 2}`)
	retried(bad)
	reset, err := p.catalog.Reset(t.Context(), domain.Everyone, "tally", "test", false)
	if err != nil {
		t.Fatal(err)
	}
	build = reset.Build
	retried(bad)
	broken.Store(false)
	resumed(last)
	mustEqual(t, documents(t, p.catalog, tenant, "tally", last), addedUp(t, b.log(t, tenant), skipped))
}

// Parked documents are replayed by themselves when that is due, by one process, and wait longer each time.
func TestParkedDocumentsAreReplayedByThemselves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant, elsewhere := b.tenant(t), b.tenant(t)
	var broken atomic.Bool
	broken.Store(true)
	p := b.process(options{handlers: map[string]folding.Handler{"tally": addingUp(&broken)}})
	p.start(t, b)
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "tally", Handler: "tally", OnError: domain.OnErrorPark}, "test"); err != nil {
		t.Fatal(err)
	}
	var last int64
	for _, of := range []domain.TenantID{tenant, elsewhere} {
		b.append(t, of, "x-1", "Add", `{"k": "a", "n": 1}`)
		b.append(t, of, "x-1", "Add", `{"k": "a", "n": "many"}`)
		b.append(t, of, "x-1", "Add", `{"k": "b", "n": "more"}`)
		last = b.append(t, of, "x-1", "Add", `{"k": "a", "n": 2}`)
	}
	super := b.db.Pool(t, pgtest.RoleSuperuser, 1)
	parked := func(of domain.TenantID) (found []domain.ParkedDocument) {
		t.Helper()
		found, err := p.catalog.Parked(t.Context(), of, "tally", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	await(t, func() bool {
		return len(parked(tenant)) == 2 && len(parked(elsewhere)) == 2 && parked(tenant)[0].Events == 2 && parked(elsewhere)[0].Events == 2
	})
	if first := parked(tenant)[0]; first.RetryAt.Sub(first.ParkedAt) < 10*time.Second || first.RetryAt.Sub(first.ParkedAt) > 40*time.Second {
		t.Errorf("the first replay is %s after the parking", first.RetryAt.Sub(first.ParkedAt))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for range 2 { // processes
		retries := projection.NewParkedRetries(projection.ParkedRetriesConfig{
			Catalog: p.catalog, Owns: func(of domain.TenantID) bool { return of == tenant }, Every: 5 * time.Millisecond,
		})
		running.Go(func() { _ = retries.Run(ctx) })
	}
	due := func() {
		t.Helper()
		if _, err := super.Exec(t.Context(), "update manifold.parked_documents set retry_at = now()"); err != nil {
			t.Fatal(err)
		}
	}
	for retries := range int64(3) {
		due()
		await(t, func() bool { return parked(tenant)[0].Retries == retries+1 && parked(tenant)[1].Retries == retries+1 })
		if wait := time.Until(parked(tenant)[0].RetryAt); wait < 20*time.Second<<retries || wait > 61*time.Second<<retries {
			t.Errorf("after %d replays, the next is in %s", retries+1, wait)
		}
	}
	broken.Store(false)
	due()
	await(t, func() bool { return len(parked(tenant)) == 0 })
	mustEqual(t, documents(t, p.catalog, tenant, "tally", last), addedUp(t, b.log(t, tenant), nil))
	if found := parked(elsewhere); len(found) != 2 || found[0].Retries != 0 {
		t.Errorf("another process's documents are %+v", found)
	}
}
