package systemtest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/members"
)

// A worker of a cluster is killed while clients of tenants on all workers append and consume. Appends of its tenants
// are answered with 503 until it is back. Other tenants append and receive meanwhile, and their projections continue,
// because no process stops working. Afterwards everything continues without a restart of the service. No acknowledged
// event is missing, and none is duplicated.
func TestKillWorkerOfACluster(t *testing.T) {
	db := pgtest.Database(t)
	victim := db.Workers(t)[0]
	s := serve(t, db)
	w := newAppends(t, services{s})
	loads, own, others := runClusterLoads(t, w, db, victim.Port)
	awaitAppends(t, w, loads, 20)
	killed := time.Now()
	victim.Kill(t)
	for _, load := range own {
		select {
		case <-load.refusal:
		case <-w.quit.Done():
			t.Fatal("a client ended")
		case <-time.After(patience):
			t.Fatal("no append to the killed worker is refused")
		}
	}
	// A process that could not announce itself would stop working on projections after this time.
	<-time.After(time.Until(killed.Add(2 * members.Dead)))
	awaitOthers(t, w, others)
	if strings.Contains(s.output(), "could not report to the database that it is alive") {
		t.Error("the process stopped working while a worker was down")
	}
	// What is stored on every node cannot be changed.
	for _, change := range []struct {
		by           user
		method, path string
		body         any
	}{
		{w.operator, "POST", "/v1/tenants", client.NewTenant{Name: "late"}},
		{w.operator, "PUT", "/v1/projections/late", sumsDefinition("late", 1)},
		{others[0].user, "PUT", "/v1/projections/late", sumsDefinition("late", 1)},
		{others[0].user, "POST", "/v1/keys", client.NewKey{Name: "late", Scopes: []string{"events:read"}}},
	} {
		if a, err := change.by.once(t.Context(), 0, change.method, change.path, change.body); err != nil || a.status != http.StatusServiceUnavailable || a.code() != "unavailable" {
			t.Errorf("%s %s while a worker is down: %s, %v", change.method, change.path, a, err)
		}
	}
	victim.Start(t)
	down := time.Since(killed)
	awaitAppends(t, w, loads, 20)
	w.end()
	w.all.Wait()
	for _, load := range loads {
		if load.log != victim.Port && load.refused.Load() > 0 {
			t.Errorf("%s: %d appends to another worker were refused", load.name, load.refused.Load())
		}
		load.check(t, w)
	}
	t.Logf("the worker at port %d was down for %s", victim.Port, down)
}

// A worker of a cluster is killed again and again, and started at once. The service continues without a restart, no
// acknowledged event is missing, and none is duplicated.
func TestKillWorkerOfAClusterRepeatedly(t *testing.T) {
	db := pgtest.Database(t)
	victim := db.Workers(t)[0]
	w := newAppends(t, services{serve(t, db)})
	loads, _, _ := runClusterLoads(t, w, db, victim.Port)
	for range 10 {
		awaitAppends(t, w, loads, 12)
		victim.Kill(t)
		victim.Start(t)
	}
	awaitAppends(t, w, loads, 12)
	w.end()
	w.all.Wait()
	for _, load := range loads {
		load.check(t, w)
	}
}

// A worker of a cluster stops answering, while its connections stay open: its processes hang, or the machine vanishes
// from the network. Other tenants append and receive, and their projections continue, also when cached keys and what
// was leased of limits have expired. When the worker answers again, everything continues without a restart of the
// service. No acknowledged event is missing, and none is duplicated.
func TestSilentWorkerOfACluster(t *testing.T) {
	for name, silence := range map[string]func(pgtest.Worker, testing.TB) (resume func()){"hangs": pgtest.Worker.Hang, "vanishes": pgtest.Worker.Vanish} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.Database(t)
			victim := db.Workers(t)[0]
			w := newAppends(t, services{serve(t, db)})
			loads, _, others := runClusterLoads(t, w, db, victim.Port)
			awaitAppends(t, w, loads, 20)
			began := time.Now()
			resume := silence(victim, t)
			for _, load := range others {
				load.longest.Store(0)
			}
			<-time.After(45 * time.Second) // a cached key has 30, and so has a statement
			awaitOthers(t, w, others)
			for _, load := range others {
				longest := time.Duration(load.longest.Load())
				t.Logf("%s: meanwhile the longest append took %s", load.name, longest)
				if longest > 5*time.Second {
					t.Errorf("%s: an append waited %s", load.name, longest)
				}
			}
			if a, err := w.operator.once(t.Context(), 0, "GET", "/readyz", nil); err != nil || a.status != http.StatusOK {
				t.Errorf("the process is not ready: %s, %v", a, err)
			}
			t.Logf("other tenants continued %s after the worker had stopped to answer", time.Since(began))
			resume()
			awaitAppends(t, w, loads, 20)
			w.end()
			w.all.Wait()
			for _, load := range loads {
				if load.log != victim.Port && load.refused.Load() > 0 {
					t.Errorf("%s: %d appends to another worker were refused", load.name, load.refused.Load())
				}
				load.check(t, w)
			}
		})
	}
}
