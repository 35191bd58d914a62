package systemtest

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// twoHosts returns a service's settings with the URLs of a database that is on a primary and on its replica.
func twoHosts(t *testing.T, db pgtest.DB, replica *embedded.Server) (environ []string) {
	t.Helper()
	for name, role := range map[string]migrations.Role{
		"": pgtest.RoleMigrator, "APP_": migrations.RoleApp, "SYSTEM_": migrations.RoleSystem, "DOCUMENTS_": migrations.RoleDocuments, "RETENTION_": migrations.RoleRetention,
	} {
		first, err := url.Parse(db.URL(role))
		if err != nil {
			t.Fatal(err)
		}
		second, err := url.Parse(replica.URL(db.Name))
		if err != nil {
			t.Fatal(err)
		}
		first.Host += "," + second.Host
		first.RawQuery += "&target_session_attrs=read-write"
		environ = append(environ, "MANIFOLD_DATABASE_"+name+"URL="+first.String())
	}
	return environ
}

// run runs statements as the superuser of a server.
func run(t *testing.T, server *embedded.Server, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", strings.TrimSpace(statement), err)
		}
	}
}

// awaitOnPrimary waits until a query is true.
func awaitOnPrimary(t *testing.T, server *embedded.Server, query string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for late := time.After(patience); ; {
		var is bool
		if err := conn.QueryRow(t.Context(), query).Scan(&is); err != nil {
			t.Fatal(err)
		}
		if is {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			t.Fatal("it does not come true: ", query)
		}
	}
}

// The primary is killed under load, and its synchronous replica is promoted. Two processes continue by themselves:
// every acknowledged event is there once, followers see each event once, a rebuild ends, and documents are complete.
func TestFailover(t *testing.T) {
	t.Parallel()
	pgtest.NotOnCluster(t, "it has a primary and a replica of its own")
	r := chance(t)
	primary := pgtest.Private(t, pgtest.Replicated())
	db := pgtest.Migrated(t, primary)
	replica := pgtest.Replica(t, primary)
	run(t, primary, "alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
	awaitOnPrimary(t, primary, "select exists (select from pg_stat_replication where sync_state = 'sync')")
	environ := twoHosts(t, db, replica)
	w := newWorkload(t, serveTwo(t, db, environ...))
	w.load(3, r.Uint64())
	for range 2 {
		w.await(r.IntN(len(w.tenants)), 100+r.IntN(100))
	}
	started, rebuilt := make(chan struct{}), make(chan struct{})
	w.run(func() error {
		defer close(rebuilt)
		return w.targets[0].rebuild(t.Context(), true, func() { close(started) })
	})
	select {
	case <-started:
	case <-w.quit.Done(): // it could not be
	}
	w.crashes.Add(1)
	began := time.Now()
	primary.Kill()
	run(t, replica, "select pg_promote()")
	w.crashes.Add(1)
	w.await(0, 1)
	t.Logf("appends continued %s after the primary was killed", time.Since(began).Round(time.Millisecond))
	w.await(0, 100)
	w.await(1, 100)
	w.calm.Store(true)
	<-rebuilt
	w.finish()
}

// A replica is promoted that lacks acknowledged events. The service notices, says so, and ends. Started again, it
// continues with the log as it is now, and documents fit the log.
func TestFailoverThatLosesEvents(t *testing.T) {
	t.Parallel()
	pgtest.NotOnCluster(t, "it has a primary and a replica of its own")
	primary := pgtest.Private(t, pgtest.Replicated())
	db := pgtest.Migrated(t, primary)
	replica := pgtest.Replica(t, primary)
	s := serve(t, db, twoHosts(t, db, replica)...)
	_, u := newTenant(t, newUser(t, services{s}, operatorKey), "acme")
	u.must(t, 201, nil, "POST", "/v1/projections", []byte(`{"name": "sums", "source": {"categories": ["a"]}, "initial": {"sum": 0}, "on": {"Counted": "{\"sum\": doc.sum + event.data.n}"}}`))
	appendOne := func(n int) (position int64) {
		t.Helper()
		var appended client.Appended
		u.must(t, 201, &appended, "POST", "/v1/append", client.AppendRequest{Streams: []client.StreamAppend{{Stream: "a-1", Events: []client.NewEvent{newEvent(eventID("lost", n), "Counted", "a", 1)}}}})
		return appended.Position
	}
	for n := range 10 {
		appendOne(n)
	}
	awaitOnPrimary(t, primary, "select exists (select from pg_stat_replication where replay_lsn = pg_current_wal_lsn())")
	run(t, replica, "alter system set primary_conninfo = ''", "select pg_reload_conf()")
	awaitOnPrimary(t, primary, "select not exists (select from pg_stat_replication)")
	for n := range 5 {
		appendOne(10 + n)
	}
	if _, err := u.documents(t.Context(), "sums", 10, 15); err != nil {
		t.Fatal(err)
	}
	primary.Kill()
	run(t, replica, "select pg_promote()")
	select {
	case <-s.ended:
	case <-time.After(patience):
		t.Fatal("the service continues")
	}
	if !strings.Contains(s.output(), "has gone back from position 15 to 10") {
		t.Errorf("the service does not say why it ended")
	}
	s.kill() // it has ended
	s.start()
	if position := appendOne(20); position != 11 {
		t.Errorf("the next event is at %d", position)
	}
	documents, err := u.documents(t.Context(), "sums", 10, 11)
	if err != nil || len(documents) != 1 || !sameJSON(documents[0].Document, []byte(`{"sum": 11}`)) {
		t.Errorf("the documents are %v, %v", documents, err)
	}
}
