package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

var (
	replicaReads    = regexp.MustCompile(`\nmanifold_history_reads_total\{source="[^"]*:[^"]*"\} (\d+)`)
	documentsReads  = regexp.MustCompile(`\nmanifold_documents_reads_total\{database="default",source="replica"\} (\d+)`)
	replicaProblems = regexp.MustCompile(`"name":"(documents: default: )?replica:? [^"]*","ok":false`)
)

// A service reads from a replica that stops replaying, is killed under load, starts again and is promoted by accident.
// Each request is answered at its first attempt, each read has all events that were acknowledged before it, in order
// and without gaps, documents that are read with a position have its event, and rebuilds fold all events.
func TestReadsFromAReplica(t *testing.T) {
	t.Parallel()
	pgtest.NotOnCluster(t, "it has a primary and a replica of its own")
	primary := pgtest.Private(t, pgtest.Replicated())
	db := pgtest.Migrated(t, primary)
	replica := pgtest.Replica(t, primary)
	to, err := url.Parse(replica.URL(db.Name))
	if err != nil {
		t.Fatal(err)
	}
	to.User = nil
	s := serve(t, db, "MANIFOLD_DATABASE_REPLICAS="+to.String(), "MANIFOLD_DATABASE_REPLICA_LAG=2s", "MANIFOLD_DATABASE_REPLICA_DOCUMENTS=true")
	w := newAppends(t, services{s}, "acme", "umbrella")
	admin := newUser(t, fixed(s.admin), operatorKey)
	shared := &target{by: w.operator, name: "shared-sums", edition: 1, tenants: w.tenants}
	for _, p := range w.tenants {
		p.fill(t)
	}
	shared.by.must(t, 201, nil, "PUT", "/v1/projections/"+shared.name, sumsDefinition(shared.name, shared.edition))
	for _, p := range w.tenants {
		if _, err := p.documents(t.Context(), shared.name, 1000, p.filled); err != nil {
			t.Fatal(err)
		}
	}
	w.targets = append(w.targets, shared)
	w.load(1, 1)
	w.calm.Store(true)
	read := make(chan struct{})
	_, own := newTenant(t, w.operator, "own")
	own.must(t, 201, nil, "PUT", "/v1/projections/own-counts", json.RawMessage(`{"name": "own-counts", "source": {"categories": ["own"]}, "key": "event.stream", "indexes": ["n"],
		"on": {"Read": "merge(doc, {'n': doc.?n.orValue(0) + 1})"}}`))
	w.run(func() error { return own.readOwnAppends(t.Context(), w, read) })
	reads := func(by *regexp.Regexp) (pages int) {
		t.Helper()
		a, err := admin.once(t.Context(), 0, "GET", "/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range by.FindAllSubmatch(a.body, -1) {
			n, _ := strconv.Atoi(string(found[1]))
			pages += n
		}
		return pages
	}
	rebuild := func() {
		t.Helper()
		if err := shared.rebuild(t.Context(), true, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	// stage waits until the replica is read, or is not, and then for requests.
	stage := func(readable bool) {
		t.Helper()
		for late := time.After(patience); ; {
			a, err := admin.once(t.Context(), 0, "GET", "/readyz", nil)
			if err != nil || a.status != 200 {
				t.Fatalf("%s, %v", a, err)
			}
			if readable != replicaProblems.Match(a.body) {
				break
			}
			select {
			case <-late:
				t.Fatalf("the replica is readable: %t, and it is not so: %s", !readable, a)
			case <-time.After(20 * time.Millisecond):
			}
		}
		before, documentsBefore := reads(replicaReads), reads(documentsReads)
		for n := 0; n < 5 || readable && n < 200 && reads(documentsReads) == documentsBefore; n++ {
			select {
			case <-read:
			case <-w.quit.Done():
				t.FailNow()
			}
		}
		if after := reads(replicaReads); readable == (after == before) {
			t.Errorf("the replica is readable: %t, and answered %d pages", readable, after-before)
		}
		if after := reads(documentsReads); readable == (after == documentsBefore) {
			t.Errorf("the replica is readable: %t, and answered %d queries for documents", readable, after-documentsBefore)
		}
	}
	stage(true)
	rebuild()
	run(t, replica, "select pg_wal_replay_pause()")
	stage(false)
	run(t, replica, "select pg_wal_replay_resume()")
	stage(true)
	replica.Kill()
	rebuild()
	stage(false)
	if err := replica.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	stage(true)
	run(t, replica, "select pg_promote()")
	stage(false)
	w.finish()
}

// readOwnAppends appends, and reads the stream and the log at once: by the first attempt, each read has the events.
func (u user) readOwnAppends(ctx context.Context, w *workload, read chan<- struct{}) error {
	get := func(path string, to any) error {
		a, err := u.once(ctx, 0, "GET", path, nil)
		if err != nil {
			return err
		}
		return a.decode(http.StatusOK, to)
	}
	for n := int64(1); w.quit.Err() == nil; n++ {
		event := newEvent(eventID("own", n), "Read", "own", 1)
		a, err := u.once(ctx, 0, "POST", "/v1/append", client.AppendRequest{Streams: []client.StreamAppend{{Stream: "own-1", Events: []client.NewEvent{event}}}})
		if err != nil {
			return err
		}
		var appended client.Appended
		if err := a.decode(http.StatusCreated, &appended); err != nil {
			return err
		}
		var stream, log client.EventList
		if err := errors.Join(get("/v1/streams/own-1?count=1000", &stream), get("/v1/streams/$all?count=1000", &log)); err != nil {
			return err
		}
		// A position that the replica may have already, and the newest.
		for _, position := range []int64{max(1, appended.Position-5), appended.Position} {
			var one client.Document
			var list client.DocumentList
			path := fmt.Sprintf("/v1/projections/own-counts/documents%%s?timeout=30&minPosition=%d", position)
			if err := errors.Join(get(fmt.Sprintf(path, "/own-1"), &one), get(fmt.Sprintf(path, "")+"&orderBy=n&count=exact", &list)); err != nil {
				return err
			}
			if one.Position < position || len(list.Documents) != 1 || list.Documents[0].Position < position || list.Count == nil || *list.Count != 1 {
				return fmt.Errorf("at position %d the document is at %d, and the list is %+v", position, one.Position, list)
			}
		}
		if int64(len(stream.Events)) != min(n, 1000) {
			return fmt.Errorf("the stream has %d events after append %d", len(stream.Events), n)
		}
		for i, event := range log.Events {
			if event.Position != int64(i+1) {
				return fmt.Errorf("event %d of the log is at position %d", i+1, event.Position)
			}
		}
		if len(log.Events) < 1000 && int64(len(log.Events)) < appended.Position {
			return fmt.Errorf("a read has %d events after an append at %d", len(log.Events), appended.Position)
		}
		select {
		case read <- struct{}{}:
		default:
		}
		w.rests()
	}
	return nil
}
