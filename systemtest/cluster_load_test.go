package systemtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// clusterLoad is a client that appends to a tenant's log, and consumers of its events.
type clusterLoad struct {
	*tenantLoad
	log, documents int // the ports of the workers with the tenant's log and with its documents

	refused      atomic.Int64  // appends that were answered with 503
	refusal      chan struct{} // closed by the first
	longest      atomic.Int64  // nanoseconds that an append took, including retries
	received     map[client.UUID]int
	acknowledged atomic.Int64 // events that were received
}

// runClusterLoads runs the loads of clusterLoads: all, those with their logs on the victim, and those with nothing
// there.
func runClusterLoads(t *testing.T, w *workload, db pgtest.DB, victim int) (all, own, others []*clusterLoad) {
	t.Helper()
	all = clusterLoads(t, w, db, victim)
	for _, load := range all {
		switch victim {
		case load.log:
			own = append(own, load)
		case load.documents: // its appends continue, too
		default:
			others = append(others, load)
		}
		w.run(func() error { return load.run(w) })
		w.run(func() error { return load.consume(w) })
	}
	return all, own, others
}

// clusterLoads makes tenants, each with a projection and a group, until eight have their logs on the victim, which is
// more than there are workers of projections and connections for look-ups, and two or three others have nothing there.
func clusterLoads(t *testing.T, w *workload, db pgtest.DB, victim int) (loads []*clusterLoad) {
	t.Helper()
	coordinator := db.Nodes(t)[0]
	for tenants, there, elsewhere := 0, 0, 0; there < 8 || elsewhere < 2; tenants++ {
		name := fmt.Sprint("tenant-", tenants)
		id, u := newTenant(t, w.operator, name)
		// With limits, since what is leased of them is in the database, too.
		w.operator.must(t, http.StatusOK, nil, "PUT", "/v1/tenants/"+id+"/limits", []byte(`{"limits": {"requests": {"perSecond": 5000, "burst": 5000}}}`))
		load := &clusterLoad{
			tenantLoad: &tenantLoad{user: u, name: name, history: newHistory()}, refusal: make(chan struct{}), received: make(map[client.UUID]int),
		}
		for table, port := range map[string]*int{"manifold.logs": &load.log, "manifold_documents.documents": &load.documents} {
			err := coordinator.QueryRow(t.Context(), `
				select nodeport from citus_shards where shardid = get_shard_id_for_distribution_column($1::text::regclass, $2::text::uuid)`, table, id).Scan(port)
			if err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case load.log == victim:
			there++
		case load.documents == victim:
		case elsewhere == 3: // more would delay each other, by the processors
			continue
		default:
			elsewhere++
		}
		u.must(t, 201, nil, "PUT", "/v1/projections/sums", sumsDefinition("sums", 1))
		u.must(t, 201, nil, "PUT", "/v1/subscriptions/all", []byte(`{"source": {"categories": ["account"]}, "from": "start"}`))
		loads = append(loads, load)
	}
	return loads
}

// run appends until the load ends. It repeats a request for as long as the answer is 503.
func (load *clusterLoad) run(w *workload) error {
	for n := 0; w.quit.Err() == nil; n++ {
		request := client.AppendRequest{Streams: []client.StreamAppend{{
			Stream: fmt.Sprint("account-", n%5), Events: []client.NewEvent{newEvent(eventID("cluster", n), "Added", fmt.Sprint("key-", n%10), int64(n))}}}}
		o := operation{request: request, begin: time.Since(load.history.epoch)}
		for {
			a, err := load.once(context.Background(), 0, "POST", "/v1/append", request)
			if err != nil {
				return fmt.Errorf("%s: append: %w", load.name, err)
			}
			if a.status == http.StatusServiceUnavailable { // unavailable, or the outcome is unknown
				if load.refused.Add(1) == 1 {
					close(load.refusal)
				}
				<-w.pause(50 * time.Millisecond)
				continue
			}
			if a.status != http.StatusCreated && a.status != http.StatusOK {
				return fmt.Errorf("%s: append: %s", load.name, a)
			}
			if err := a.decode(a.status, &o.answer); err != nil {
				return err
			}
			break
		}
		o.end = time.Since(load.history.epoch)
		load.longest.Store(max(load.longest.Load(), int64(o.end-o.begin)))
		load.history.add(o)
		<-w.pause(20 * time.Millisecond) // leaves some of the processors' time, so that delays have other reasons
	}
	return nil
}

// consume receives and acknowledges events until the load ends.
func (load *clusterLoad) consume(w *workload) error {
	for w.quit.Err() == nil {
		if _, err := load.receive(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// receive receives and acknowledges some events, and returns their number.
func (load *clusterLoad) receive(ctx context.Context) (int, error) {
	var received client.Deliveries
	a, err := load.call(ctx, 0, "POST", "/v1/subscriptions/all/receive", map[string]any{"wait": 1, "batch": 100})
	if err == nil {
		err = a.decode(http.StatusOK, &received)
	}
	if err != nil || len(received.Deliveries) == 0 {
		return 0, err
	}
	var ids []map[string]any
	for _, d := range received.Deliveries {
		load.received[d.Event.Id]++
		ids = append(ids, map[string]any{"id": d.Event.Id, "attempt": d.Attempt})
	}
	a, err = load.call(ctx, 0, "POST", "/v1/subscriptions/all/ack", map[string]any{"ids": ids})
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("acknowledge: %s", a)
	}
	load.acknowledged.Add(int64(len(ids)))
	return len(received.Deliveries), err
}

// awaitThat waits until something holds that can only be looked at.
func awaitThat(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for late := time.After(patience); !holds(); {
		select {
		case <-late:
			t.Fatal("timed out waiting until ", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitAppends waits until each load has made more appends.
func awaitAppends(t *testing.T, w *workload, loads []*clusterLoad, more int) {
	t.Helper()
	var all sync.WaitGroup
	for _, load := range loads {
		all.Go(func() {
			if err := load.history.await(w.quit, more); err != nil {
				t.Error(err)
				w.end()
			}
		})
	}
	all.Wait()
}

// awaitOthers waits until the loads of tenants with nothing on a worker that is down have appended and received, and
// their projections have caught up.
func awaitOthers(t *testing.T, w *workload, others []*clusterLoad) {
	t.Helper()
	awaitAppends(t, w, others, 50)
	for _, load := range others {
		before := load.acknowledged.Load()
		awaitThat(t, "groups of other tenants receive", func() bool { return load.acknowledged.Load() >= before+20 })
		log, err := load.tenantLoad.log(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if documents, err := load.user.documents(t.Context(), "sums", 100, int64(len(log))); err != nil || len(documents) == 0 {
			t.Errorf("%s: while the other worker is down, %d documents are at position %d, %v", load.name, len(documents), len(log), err)
		}
	}
}

// check compares the log, the documents and what the group has received, after the load has ended.
func (load *clusterLoad) check(t *testing.T, w *workload) {
	t.Helper()
	log, err := load.tenantLoad.log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	load.history.check(t, log)
	documents, err := load.user.documents(t.Context(), "sums", 100, int64(len(log)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readSums(documents)
	if err != nil {
		t.Fatal(err)
	}
	compareSums(t, load.name, got, foldSums(t, log, 1))
	for late := w.pause(patience); len(load.received) < len(log); { // longer than a lease whose answer was lost
		_, err := load.receive(t.Context())
		select {
		case <-late:
			err = errors.Join(err, errors.New("no more events came"))
		default:
		}
		if err != nil {
			t.Fatalf("%s: the group has received %d events of %d, %v", load.name, len(load.received), len(log), err)
		}
	}
	twice := 0
	for _, times := range load.received {
		if times > 1 {
			twice++
		}
	}
	t.Logf("%s: log at %d, documents at %d; %d events, %d refusals, %d events received again; the longest append took %s",
		load.name, load.log, load.documents, len(log), load.refused.Load(), twice, time.Duration(load.longest.Load()))
}
