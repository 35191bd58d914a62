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
