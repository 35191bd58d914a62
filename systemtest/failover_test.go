package systemtest

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

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

// The primary is killed under load, and its synchronous replica is promoted. Two processes continue by themselves: every
// acknowledged event is there once, followers see each event once, and documents are complete.
func TestFailover(t *testing.T) {
	t.Parallel()
	pgtest.NotOnCluster(t, "it has a primary and a replica of its own")
	r := chance(t)
	primary := pgtest.Private(t, pgtest.Replicated())
	db := pgtest.Migrated(t, primary)
	replica := pgtest.Replica(t, primary)
	run(t, primary, "alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
	environ := twoHosts(t, db, replica)
	w := newWorkload(t, services{serve(t, db, environ...), serve(t, db, environ...)})
	w.load(3, r.Uint64())
	for range 2 {
		w.await(r.IntN(len(w.tenants)), 100+r.IntN(100))
	}
	w.crashes.Add(1)
	primary.Kill()
	run(t, replica, "select pg_promote()")
	w.crashes.Add(1)
	w.await(0, 100)
	w.await(1, 100)
	w.calmDown()
	w.finish()
}
