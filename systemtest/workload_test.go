package systemtest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
)

const (
	permanentDocuments = 10 // documents that come with the first events and never go
	temporaryDocuments = 5  // documents that come and go
)

// workload is clients of several tenants that append, follow, read and rebuild, whatever happens to the service. All
// tenants have the same names and ids for everything.
type workload struct {
	t        *testing.T
	operator user
	tenants  []*tenantLoad
	targets  []*target

	// crashes counts events around crashes of the database that may revert the documents' last saves, each with its
	// checkpoint, as the contract of drivers permits. It grows before and after each crash, and is odd in between.
	crashes atomic.Int64

	quit context.Context // ended: the clients finish their current work
	end  context.CancelFunc
	calm atomic.Bool   // the clients rest between requests, and leave processor time to other tests
	rest time.Duration // of each client while it is calm
	all  sync.WaitGroup
}

// tenantLoad is one tenant and the operations of its clients.
type tenantLoad struct {
	user
	name    string
	history *history
	filled  int64 // the log's head when the load began

	followed []client.Event
}

// target is a projection that is rebuilt repeatedly.
type target struct {
	by       user // the user that rebuilds it
	name     string
	tenants  []*tenantLoad // the tenants with documents in it
	edition  int64         // of the definition that was put last
	rebuilds int           // that were swapped in

	databases []string // each edition's documents are in the next of them; none: in the log's own
}

// newWorkload makes tenants, with events, and projections: one of each tenant's own, and a shared one.
func newWorkload(t *testing.T, at site) *workload {
	t.Helper()
	w := newAppends(t, at, "acme", "umbrella")
	shared := &target{by: w.operator, name: "shared-sums", edition: 1}
	for i, p := range w.tenants {
		w.targets = append(w.targets, &target{by: p.user, name: "own-sums", tenants: []*tenantLoad{p}, edition: int64(i + 1)})
		p.fill(t)
	}
	shared.tenants = w.tenants
	w.targets = append(w.targets, shared)
	for _, target := range w.targets {
		target.by.must(t, 201, nil, "PUT", "/v1/projections/"+target.name, sumsDefinition(target.name, target.edition))
		for _, p := range target.tenants {
			if _, err := p.documents(t.Context(), target.name, 1000, p.filled); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// newAppends makes tenants with empty logs, and no projections.
func newAppends(t *testing.T, at site, tenants ...string) *workload {
	t.Helper()
	w := &workload{t: t, operator: newUser(t, at, operatorKey), rest: 250 * time.Millisecond}
	w.quit, w.end = context.WithCancel(t.Context())
	t.Cleanup(func() {
		w.end()
		w.all.Wait()
	})
	for _, name := range tenants {
		_, u := newTenant(t, w.operator, name)
		w.tenants = append(w.tenants, &tenantLoad{user: u, name: name, history: newHistory()})
	}
	return w
}

// run runs a client until it has done its last thing. What it returns fails the test.
func (w *workload) run(client func() error) {
	w.all.Go(func() {
		if err := client(); err != nil {
			w.t.Error(err)
			w.end()
		}
	})
}

// await waits for so many more answers to a tenant's appends; the test has failed where they do not come.
func (w *workload) await(tenant, more int) {
	if err := w.tenants[tenant].history.await(w.quit, more); err != nil && w.quit.Err() == nil {
		w.t.Error(err)
		w.end()
	}
}

// pause returns a channel that receives when a client may send its next request: after a brief pause, or after a rest
// while the load is calm.
func (w *workload) pause(brief time.Duration) <-chan time.Time {
	if w.calm.Load() {
		brief = max(brief, w.rest)
	}
	return time.After(brief)
}

// rests waits until a reader may send its next request, or the load ends.
func (w *workload) rests() {
	select {
	case <-w.pause(10 * time.Millisecond):
	case <-w.quit.Done():
	}
}

// load starts the clients: appenders, a follower and readers for each tenant.
func (w *workload) load(appenders int, seed uint64) {
	for i, p := range w.tenants {
		var appending sync.WaitGroup
		for n := range appenders {
			appending.Add(1)
			w.run(func() error {
				defer appending.Done()
				a := appender{tenantLoad: p, n: n, chance: rand.New(rand.NewPCG(seed, uint64(100*i+n)))}
				return a.run(w.t.Context(), w)
			})
		}
		appended := make(chan struct{})
		go func() { appending.Wait(); close(appended) }()
		w.run(func() error { return p.follow(w.t.Context(), w, appended) })
		for _, target := range w.targets {
			if len(target.tenants) > 1 || target.tenants[0] == p {
				w.run(func() error { return p.watch(w.t.Context(), w, target.name) })
			}
		}
	}
}

// finish ends the load, and compares logs and documents with what was done.
func (w *workload) finish() {
	t := w.t
	t.Helper()
	w.end()
	w.all.Wait()
	if t.Failed() {
		return
	}
	for _, p := range w.tenants {
		log, err := p.log(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.history.check(t, log)
		if len(log) != len(p.followed) {
			t.Fatalf("%s: the log has %d events, and its follower saw %d", p.name, len(log), len(p.followed))
		}
		for i := range log {
			if log[i].Id != p.followed[i].Id {
				t.Fatalf("%s: at position %d the follower saw event %s, and now there is %s", p.name, i+1, p.followed[i].Id, log[i].Id)
			}
		}
		for _, target := range w.targets {
			for _, has := range target.tenants {
				if has == p {
					target.check(t, p, log)
				}
			}
		}
		t.Logf("%s: %d events, %d requests", p.name, len(log), len(p.history.operations))
	}
}

// check compares documents with a fold from scratch, and makes sure that the definition is the latest one.
func (g *target) check(t *testing.T, p *tenantLoad, log []client.Event) {
	t.Helper()
	documents, err := p.documents(t.Context(), g.name, 4, int64(len(log)))
	if err != nil {
		t.Errorf("%s, %s: %v", p.name, g.name, err)
		return
	}
	got, err := readSums(documents)
	if err != nil {
		t.Errorf("%s, %s: %v", p.name, g.name, err)
		return
	}
	compareSums(t, p.name+", "+g.name, got, foldSums(t, log, g.edition))
}

// eventID is the same for all tenants.
func eventID(parts ...any) *string {
	h := sha256.Sum256(fmt.Append(nil, parts...))
	id := fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
	return &id
}

func newEvent(id *string, eventType, k string, n int64) client.NewEvent {
	data, err := json.Marshal(datum{k, n})
	if err != nil {
		panic(err) // a string and a number
	}
	return client.NewEvent{Id: id, Type: eventType, Data: data}
}

// fill appends the events that are there before the load, so that a rebuild takes several batches.
func (p *tenantLoad) fill(t *testing.T) {
	t.Helper()
	for batch := range 4 {
		stream := client.StreamAppend{Stream: fmt.Sprintf("account-%d", batch%4)}
		for i := range 1000 {
			stream.Events = append(stream.Events, newEvent(eventID("fill", batch, i), "Added", fmt.Sprintf("key-%d", i%permanentDocuments), int64(i%7)))
		}
		if _, err := p.append(t.Context(), 0, client.AppendRequest{Streams: []client.StreamAppend{stream}}); err != nil {
			t.Fatal(err)
		}
		p.filled += 1000
	}
}
