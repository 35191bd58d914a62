package systemtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// crashes runs a workload and kills something at random moments.
//
// In the first rounds the kill happens after a rebuild has begun and a few more appends were answered. Other
// processes take over a dead process's rebuild only later, so each of these rounds has a separate target. In later
// rounds the kill happens at any time. Up to each kill, clients append as fast as they can; then they rest.
func crashes(t *testing.T, w *workload, r *rand.Rand, more int, kill func(round int)) {
	t.Helper()
	w.rest = 200 * time.Millisecond
	w.calm.Store(true)
	w.load(3, r.Uint64())
	var rebuilds sync.WaitGroup
	for round := range len(w.targets) + more {
		if round < len(w.targets) {
			changed, started := r.IntN(3) > 0, make(chan struct{})
			rebuilds.Add(1)
			w.run(func() error {
				defer rebuilds.Done()
				return w.targets[round].rebuild(t.Context(), changed, func() { close(started) })
			})
			select {
			case <-started:
			case <-w.quit.Done(): // it could not be
			}
		}
		w.calm.Store(false)
		if w.await(r.IntN(len(w.tenants)), r.IntN(80)); w.quit.Err() != nil {
			break
		}
		kill(round)
		w.calm.Store(true)
	}
	w.await(0, 10)
	// All rebuilds end while events are appended.
	rebuilds.Wait()
	w.finish()
	for _, target := range w.targets {
		t.Logf("%s: %d rebuilds were swapped in; edition %d", target.name, target.rebuilds, target.edition)
	}
}

func TestKillService(t *testing.T) {
	t.Parallel()
	r := chance(t)
	s := serve(t, pgtest.Database(t))
	w := newWorkload(t, services{s})
	crashes(t, w, r, 1, func(int) {
		s.kill()
		s.start()
	})
}

func TestKillOneOfTwoServices(t *testing.T) {
	t.Parallel()
	r := chance(t)
	db := pgtest.Database(t)
	both := serveTwo(t, db)
	w := newWorkload(t, both)
	crashes(t, w, r, 1, func(round int) {
		one := both[r.IntN(2)]
		one.kill()
		if round == len(w.targets) { // kill the other one, too
			for _, s := range both {
				if s != one {
					s.kill()
					s.start()
				}
			}
		} else {
			w.await(0, r.IntN(50)) // the other one continues alone
		}
		one.start()
	})
}

func TestKillBackends(t *testing.T) {
	t.Parallel()
	r := chance(t)
	db := pgtest.Database(t)
	s := serve(t, db)
	w := newWorkload(t, services{s})
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	crashes(t, w, r, 3, func(round int) {
		// The rounds kill all of them, half of them, or one.
		share := []float64{1, 0.5, 0.1}[round%3]
		_, err := super.Exec(context.Background(), `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and usename like 'manifold_%' and random() <= $1`, share)
		if err != nil {
			t.Error(err)
		}
	})
}

func TestKillPostgreSQL(t *testing.T) {
	t.Parallel()
	r := chance(t)
	server := pgtest.Private(t, pgtest.Options{})
	db := pgtest.Migrated(t, server)
	s := serve(t, db)
	w := newWorkload(t, services{s})
	crashes(t, w, r, 1, func(int) {
		w.crashes.Add(1)
		server.Kill()
		if err := server.Restart(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.crashes.Add(1)
	})
}

// Tenants that share transactions lose nothing, and append nothing twice, when the service is killed, and when it and
// PostgreSQL are killed together.
func TestKillDuringSharedCommits(t *testing.T) {
	t.Parallel()
	r := chance(t)
	server := pgtest.Private(t, pgtest.Options{})
	db := pgtest.Migrated(t, server)
	s := serve(t, db)
	w := newAppends(t, services{s}, "a", "b", "c", "d", "e", "f", "g", "h")
	w.load(2, r.Uint64())
	for round := range 4 {
		if w.await(r.IntN(len(w.tenants)), 20+r.IntN(40)); w.quit.Err() != nil {
			break
		}
		s.kill()
		if round%2 == 1 {
			server.Kill()
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.start()
	}
	w.await(0, 20)
	w.finish()
	var shared int
	err := db.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(), `
		select count(*) from (select xmin::text from manifold.events group by 1 having count(distinct tenant_id) > 1) as t`).Scan(&shared)
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d transactions were shared", shared); shared < 10 {
		t.Errorf("only %d transactions were shared", shared)
	}
}

// Document saves that a database crash has reverted are repeated automatically, even if nothing more is appended: a
// read with the acknowledged position returns them.
func TestSavesLostInACrash(t *testing.T) {
	t.Parallel()
	r := chance(t)
	server := pgtest.Private(t, pgtest.Options{})
	s := serve(t, pgtest.Migrated(t, server))
	operator := newUser(t, services{s}, operatorKey)
	_, u := newTenant(t, operator, "acme")
	p := tenantLoad{user: u, history: newHistory()}
	u.must(t, 201, nil, "PUT", "/v1/projections/sums", sumsDefinition("sums", 1))
	for round := range 3 {
		var last int64
		for i := range 1 + r.IntN(5) {
			o, err := p.append(t.Context(), 0, client.AppendRequest{Streams: []client.StreamAppend{
				{Stream: "account-1", Events: []client.NewEvent{newEvent(eventID(round, i), "Added", fmt.Sprint("key-", i), 1)}}}})
			if err != nil {
				t.Fatal(err)
			}
			last = o.answer.Position
		}
		if _, err := p.documents(t.Context(), "sums", 100, last); err != nil {
			t.Fatal(err)
		}
		server.Kill()
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		documents, err := p.documents(t.Context(), "sums", 100, last)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readSums(documents)
		if err != nil {
			t.Fatal(err)
		}
		log, err := p.log(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		compareSums(t, fmt.Sprintf("after crash %d, at position %d", round+1, last), got, foldSums(t, log, 1))
		if t.Failed() {
			return
		}
	}
}
