package eventlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// Who has lost the head once locks the log, and cannot lose it a second time: another process that appends meanwhile
// waits.
func TestALostHeadIsLockedNextTime(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	var stores [2]opened
	for i := range stores {
		s, err := openLog(t.Context(), pg.Config{AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 2}, Observer{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores[i] = s
	}
	s, other := stores[0], stores[1]
	tenant := domain.NewTenantID()
	one := func(expected domain.Expected) domain.Append {
		return domain.Append{Streams: []domain.StreamAppend{{Stream: "order-1", Expected: expected, Events: []domain.NewEvent{{Type: "A", Data: []byte(`1`)}}}}}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Append(t.Context(), tenant, one(0))
	must(err)
	s.writers.running.Wait()
	_, err = other.Append(t.Context(), tenant, one(1))
	must(err)

	w := s.writers.of[tenant]
	r, err := s.newRequest(one(2))
	must(err)
	var b batch
	b.begin()
	b.add(r)
	lost := attempt{w: w, log: &w.log, batch: &b}
	must(lost.run(t.Context()))
	if r.answered || len(b.requests) != 1 || !w.log.contended {
		t.Fatal("the head was not lost")
	}

	b.begin()
	second := attempt{w: w, log: &w.log, batch: &b}
	second.x, err = s.db.App.Pipeline(t.Context(), tenant)
	must(err)
	release := sync.OnceFunc(second.x.Close)
	defer release()
	must(second.lock(t.Context()))
	waiting := make(chan error, 1)
	go func() {
		_, err := other.Append(context.Background(), tenant, one(domain.Any))
		waiting <- err
	}()
	db.WaitForLock(t)
	select {
	case err := <-waiting:
		t.Fatalf("another process has appended to a locked log: %v", err)
	default:
	}
	if streams, lookUps := b.plan(t.Context(), &w.log); len(streams)+len(lookUps) > 0 {
		t.Errorf("the repaired versions leave %v and %d requests to be read", streams, len(lookUps))
	}
	w.mu.Lock()
	w.bytes += r.bytes // as if it had come through the queue
	w.mu.Unlock()
	s.writers.bytes.Add(r.bytes)
	err = second.write(t.Context())
	release()
	must(err)
	must(<-waiting)
	if got := fmt.Sprint(r.err, r.appended.Position, r.appended.Streams[0].Version); got != "<nil> 3 3" {
		t.Errorf("the request is answered %s", got)
	}
}

// In a log that others append to, an attempt need not know their newest events: it takes one round trip, unless they
// change what it has planned. Then the next attempt reads them first.
func TestAppendBehindOthers(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	var stores [2]opened
	for i := range stores {
		s, err := openLog(t.Context(), pg.Config{AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 4}, Observer{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		stores[i] = s
	}
	s, other := stores[0], stores[1]
	super := db.Pool(t, pgtest.RoleSuperuser, 2)
	one := func(stream string, expected domain.Expected) domain.Append {
		return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: expected, Events: []domain.NewEvent{{Type: "A", Data: []byte(`1`)}}}}}
	}
	for _, c := range []struct {
		name    string
		foreign string // the stream that the other process appends to
		removed bool   // that event
		locked  bool   // the log is locked for longer than the attempt waits
		stream  string
		expect  domain.Expected
		at      [2]int // how the request is answered: by the first and by the second attempt
		answer  string
	}{
		{name: "another stream", foreign: "b", stream: "a", expect: 1, at: [2]int{1, 0}, answer: "<nil> 3 2"},
		{name: "nothing", stream: "a", expect: 1, at: [2]int{1, 0}, answer: "<nil> 2 2"},
		{name: "a new stream", foreign: "b", stream: "c", expect: 0, at: [2]int{1, 0}, answer: "<nil> 3 1"},
		{name: "the same new stream", foreign: "c", stream: "c", expect: 0, at: [2]int{0, 1}, answer: `the stream "c" is at version 1, and none was expected`},
		{name: "the same stream", foreign: "a", stream: "a", expect: domain.Any, at: [2]int{0, 1}, answer: "<nil> 3 3"},
		{name: "the expected version", foreign: "a", stream: "a", expect: 1, at: [2]int{0, 1}, answer: `the stream "a" is at version 2, and 1 was expected`},
		{name: "a removed event", foreign: "b", removed: true, stream: "a", expect: 1, at: [2]int{0, 1}, answer: "<nil> 3 2"},
		{name: "a lock", locked: true, stream: "a", expect: 1, at: [2]int{0, 1}, answer: "<nil> 2 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tenant := domain.NewTenantID()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			_, err := s.Append(t.Context(), tenant, one("a", 0))
			must(err)
			s.writers.mu.RLock()
			w := s.writers.of[tenant]
			s.writers.mu.RUnlock()
			for running := true; running; runtime.Gosched() {
				w.mu.Lock()
				running = w.running
				w.mu.Unlock()
			}
			w.log.contended = true
			if c.foreign != "" {
				_, err = other.Append(t.Context(), tenant, one(c.foreign, domain.Any))
				must(err)
			}
			if c.removed {
				_, err = super.Exec(t.Context(), "delete from manifold.events where tenant_id = $1 and position = 2", tenant.String())
				must(err)
			}
			unlock := func() {}
			if c.locked {
				tx, err := super.Begin(t.Context())
				must(err)
				unlock = func() { must(tx.Rollback(context.Background())) }
				_, err = tx.Exec(t.Context(), "select from manifold.logs where tenant_id = $1 for update", tenant.String())
				must(err)
			}

			r, err := s.newRequest(one(c.stream, c.expect))
			must(err)
			w.mu.Lock()
			w.bytes += r.bytes // as if it had come through the queue
			w.mu.Unlock()
			s.writers.bytes.Add(r.bytes)
			var b batch
			b.add(r)
			for n, answered := range c.at {
				if len(b.requests) == 0 {
					break
				}
				b.begin()
				a := attempt{w: w, log: &w.log, batch: &b}
				must(a.run(t.Context()))
				if a.behind != (n == 0) {
					t.Errorf("attempt %d: behind %t", n+1, a.behind)
				}
				if r.answered != (answered == 1) {
					t.Fatalf("attempt %d: answered %t", n+1, r.answered)
				}
				unlock()
				unlock = func() {}
			}
			got := fmt.Sprint(r.err)
			if r.err == nil {
				got = fmt.Sprint(r.err, r.appended.Position, r.appended.Streams[0].Version)
			}
			if got != c.answer {
				t.Errorf("answered %s, want %s", got, c.answer)
			}
			// What the writer has learned is true.
			next, err := s.Append(t.Context(), tenant, one("a", domain.Any))
			must(err)
			version := int64(0)
			must(super.QueryRow(t.Context(), "select max(stream_version) from manifold.events where tenant_id = $1 and stream_id = 'a'", tenant.String()).Scan(&version))
			if next.Streams[0].Version != version {
				t.Errorf("the next event of the stream is answered with version %d, and has %d", next.Streams[0].Version, version)
			}
		})
	}
}

// While others wait, a batch is sent behind the other on the same connection, and what is refused of one, or lost, is
// nobody else's loss.
func TestBatchesArePipelined(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	var batches atomic.Int64
	s, err := openLog(t.Context(), pg.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 2}, Observer{Appended: func(int, int, time.Duration) { batches.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tenant := domain.NewTenantID()
	const many = 600 // of which three fit into a batch
	request := func(stream string, expected domain.Expected, events int) domain.Append {
		a := domain.StreamAppend{Stream: stream, Expected: expected, Events: make([]domain.NewEvent, events)}
		for i := range a.Events {
			a.Events[i] = domain.NewEvent{Type: "A", Data: []byte(`1`)}
		}
		return domain.Append{Streams: []domain.StreamAppend{a}}
	}
	if _, err := s.Append(t.Context(), tenant, request("order-0", domain.None, 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pool := db.Pool(t, pgtest.RoleSuperuser, 1)
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(ctx, "select from manifold.logs where tenant_id = $1 for update", tenant.String()); err != nil {
		t.Fatal(err)
	}
	s.writers.running.Wait()
	acquired := s.db.App.Stat().AcquireCount()
	var wg sync.WaitGroup
	heads := make([]int64, 9)
	appendTo := func(i int, a domain.Append, conflict bool) {
		wg.Go(func() {
			got, err := s.Append(ctx, tenant, a)
			if failure, ok := errors.AsType[*domain.Error](err); ok != conflict || ok && failure.Code != domain.CodeVersionConflict {
				t.Errorf("request %d: %v", i, err)
			}
			heads[i] = got.Position
		})
	}
	w := s.writers.of[tenant]
	waiting := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.queue)
	}
	appendTo(0, request("order-0", 1, 1), false)
	db.WaitForLock(t)
	for i := 1; i <= 8; i++ {
		switch i {
		case 8: // what is taken for granted of a stream that nobody has read is wrong
			appendTo(i, request("order-8", 7, many), true)
		default:
			appendTo(i, request(fmt.Sprintf("order-%d", i), domain.None, many), false)
		}
		for waiting() < i && ctx.Err() == nil {
			runtime.Gosched()
		}
	}
	before := batches.Load()
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	s.writers.running.Wait()
	for i, want := range []int64{2, 602, 1202, 1802, 2402, 3002, 3602, 4202, 0} {
		if heads[i] != want {
			t.Errorf("request %d was answered with position %d, want %d", i, heads[i], want)
		}
	}
	if written, acquired := batches.Load()-before, s.db.App.Stat().AcquireCount()-acquired; acquired >= written {
		t.Errorf("%d batches took a connection %d times", written, acquired)
	}
}
