package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// Who has lost the head once locks the log, and cannot lose it a second time: another process that appends meanwhile
// waits.
func TestNobodyLosesTwice(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	var stores [2]*Store
	for i := range stores {
		s, err := Open(t.Context(), Config{AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 2})
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
	must(lost.make(t.Context()))
	if r.answered || len(b.requests) != 1 || !w.log.contended {
		t.Fatal("the head was not lost")
	}

	b.begin()
	second := attempt{w: w, log: &w.log, batch: &b}
	second.x, err = s.exchange(t.Context(), s.app)
	must(err)
	release := sync.OnceFunc(second.x.close)
	defer release()
	must(second.lock())
	waiting := make(chan error, 1)
	go func() {
		_, err := other.Append(context.Background(), tenant, one(domain.Any))
		waiting <- err
	}()
	pool := db.Pool(t, pgtest.RoleSuperuser, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for blocked := false; !blocked; {
		must(pool.QueryRow(ctx, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'), pg_sleep(0.005)::text`).Scan(&blocked, new(string)))
		select {
		case err := <-waiting:
			t.Fatalf("another process has appended to a locked log: %v", err)
		default:
		}
	}
	if streams, lookUps := b.plan(&w.log); len(streams)+len(lookUps) > 0 {
		t.Errorf("the mended versions leave %v and %d requests to be read", streams, len(lookUps))
	}
	w.mu.Lock()
	w.bytes += r.bytes // as if it had come through the queue
	w.mu.Unlock()
	s.writers.bytes.Add(r.bytes)
	err = second.write()
	release()
	must(err)
	must(<-waiting)
	if got := fmt.Sprint(r.err, r.appended.Position, r.appended.Streams[0].Version); got != "<nil> 3 3" {
		t.Errorf("the request is answered %s", got)
	}
}
