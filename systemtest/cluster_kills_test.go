package systemtest

import (
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A worker of a cluster is killed again and again, and started at once, under load of appends and consumers. The service
// continues without a restart, no acknowledged event is missing, and none is duplicated.
func TestKillWorkerOfAClusterRepeatedly(t *testing.T) {
	db := pgtest.Database(t)
	victim := db.Workers(t)[0]
	s := serve(t, db)
	w := newAppends(t, services{s})
	loads := clusterLoads(t, w, db, victim.Port)
	for _, load := range loads {
		w.run(func() error { return load.run(w) })
		w.run(func() error { return load.consume(w) })
	}
	awaitAll := func() {
		for _, load := range loads {
			if err := load.history.await(w.quit, 12); err != nil {
				t.Fatalf("%v; at last the service said:\n%s", err, s.output())
			}
		}
	}
	for range 10 {
		awaitAll()
		victim.Kill(t)
		victim.Start(t)
	}
	awaitAll()
	w.end()
	w.all.Wait()
	for _, load := range loads {
		log, err := load.tenantLoad.log(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		load.history.check(t, log)
		t.Logf("%s: log at %d; %d events, %d refusals; the longest append took %s", load.name, load.log, len(log), load.refused.Load(), load.longest)
	}
}
