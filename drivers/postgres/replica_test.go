package postgres_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/drivertest/proxy"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// replicated is a driver whose database has a replica.
type replicated struct {
	*postgres.Driver
	t       *testing.T
	db      pgtest.DB
	replica *embedded.Server
	between *proxy.Proxy // between the driver and the replica
}

func newReplicated(t *testing.T, maxLag time.Duration) *replicated {
	t.Helper()
	pgtest.NotOnCluster(t, "it has a primary and a replica of its own")
	primary := pgtest.Private(t, pgtest.Replicated())
	db := pgtest.Migrated(t, primary)
	r := &replicated{t: t, db: db, replica: pgtest.Replica(t, primary)}
	to, err := url.Parse(r.replica.URL(db.Name))
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(db.URL(migrations.RoleDocuments))
	if err != nil {
		t.Fatal(err)
	}
	own := at.String()
	r.between = proxy.New(t, to.Host)
	at.Host = r.between.Address()
	r.Driver, err = postgres.Open(t.Context(), postgres.Config{URL: own, MaxConns: 4, QueryTimeout: time.Hour, Replicas: []string{at.String()}, ReplicaLag: maxLag})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// run runs a statement as the replica's superuser.
func (r *replicated) run(statement string) {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.replica.URL("postgres"))
	if err == nil {
		_, err = conn.Exec(r.t.Context(), statement)
		err = errors.Join(err, conn.Close(r.t.Context()))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// await waits until the condition holds.
func (r *replicated) await(what string, holds func() bool) {
	r.t.Helper()
	for late := time.After(time.Minute); !holds(); {
		select {
		case <-late:
			r.t.Fatal("it does not come true: ", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// get reads a document from a replica at a position; read is false if none has it.
func (r *replicated) get(build domain.Build, tenant domain.TenantID, position int64, id string) (version int64, read bool) {
	r.t.Helper()
	reader, ok := r.AtPosition(position)
	if !ok {
		return 0, false
	}
	document, _, err := reader.Get(r.t.Context(), build, tenant, id)
	if err != nil && !errors.Is(err, drivers.ErrNoReplica) {
		r.t.Fatal(err)
	}
	return document.Version, err == nil
}

// Whether the replica lags or not, its answer at the newest position is that of the primary, or it has none.
func TestReplicasAnswerAsThePrimaryDoes(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, time.Minute)
	tenant := domain.NewTenantID()
	keyed, _ := ofOne(tenant, 1)
	table := shared("orders", 2)
	if err := r.CreateTemporaryTable(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	positions := make(map[int64]int64)
	replays, answers := true, 0
	rapid.Check(t, func(rt *rapid.T) {
		build := rapid.SampledFrom([]domain.Build{keyed, table}).Draw(rt, "build")
		if pause := rapid.IntRange(0, 2).Draw(rt, "pause") == 0; pause == replays {
			r.run(map[bool]string{true: "select pg_wal_replay_pause()", false: "select pg_wal_replay_resume()"}[pause])
			replays = !pause
		}
		position := positions[build.Number]
		batch := drivers.Batch{From: position, To: position + 1}
		for _, id := range rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 0, 5, rapid.ID).Draw(rt, "ids") {
			value := rapid.SampledFrom([]string{`1`, `2.5`, `"x"`, `null`, `[1]`}).Draw(rt, "value")
			batch.Upserts = append(batch.Upserts, domain.Document{ID: fmt.Sprint("d", id), Version: position + 1, Data: fmt.Appendf(nil, `{"a": %s, "b": {"c": 1}}`, value)})
		}
		save(t, r.Driver, build, tenant, batch)
		position++
		positions[build.Number] = position
		for range 4 {
			reader, ok := r.AtPosition(position)
			if !ok {
				continue
			}
			query := domain.DocumentQuery{Limit: rapid.IntRange(1, 12).Draw(rt, "limit"), Where: drawRanges(rt)}
			query.Order = rapid.SampledFrom([][]domain.Order{nil, {byPath("a", false)}, {byPath("a", true)}}).Draw(rt, "order")
			found, err := reader.Query(t.Context(), build, tenant, query)
			count, countErr := reader.Count(t.Context(), build, tenant, query.Where)
			if err := cmp.Or(err, countErr); errors.Is(err, drivers.ErrNoReplica) {
				continue
			} else if err != nil {
				rt.Fatal(err)
			}
			answers++
			want, err := r.Query(t.Context(), build, tenant, query)
			if err != nil {
				rt.Fatal(err)
			}
			same := func(a, b domain.Document) bool {
				return a.ID == b.ID && a.Version == b.Version && string(a.Data) == string(b.Data)
			}
			if !slices.EqualFunc(found, want, same) {
				rt.Fatalf("a replica has %v, the primary %v", found, want)
			}
			if want, err := r.Count(t.Context(), build, tenant, query.Where); err != nil || count != want {
				rt.Fatalf("a replica counts %d, the primary %d, %v", count, want, err)
			}
		}
	})
	if answers == 0 {
		t.Error("the replica has answered nothing")
	}
}

// A replica answers for the positions that it has, of builds that it has, while it is up and not too far behind.
func TestReplicasThatCannotAnswer(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 2*time.Second)
	tenant := domain.NewTenantID()
	keyed, _ := ofOne(tenant, 1)
	old, rebuilt := shared("orders", 2), shared("orders", 3)
	create := func(build domain.Build) {
		t.Helper()
		if err := r.CreateTemporaryTable(t.Context(), build); err != nil {
			t.Fatal(err)
		}
		save(t, r.Driver, build, tenant, drivers.Batch{To: 5, Upserts: documents(5, "a")})
	}
	create(keyed)
	create(old)
	for _, build := range []domain.Build{keyed, old} {
		r.await("the replica answers", func() bool { _, read := r.get(build, tenant, 5, "a"); return read })
		if _, read := r.get(build, tenant, 6, "a"); read {
			t.Error("the replica has answered for a position that nothing has")
		}
	}
	if _, read := r.get(old, domain.NewTenantID(), 1, "a"); read {
		t.Error("the replica has answered for a tenant without a checkpoint")
	}
	reader, ok := r.AtPosition(1)
	if !ok {
		t.Fatal("there is no replica")
	}
	if _, err := reader.Query(t.Context(), keyed, tenant, domain.DocumentQuery{Limit: 0}); err == nil || errors.Is(err, drivers.ErrNoReplica) {
		t.Errorf("an invalid query ends with %v", err)
	}
	if _, _, err := reader.Get(t.Context(), keyed, domain.NewTenantID(), "a"); err == nil || errors.Is(err, drivers.ErrNoReplica) {
		t.Errorf("a read of another tenant's build ends with %v", err)
	}
	if explained, err := reader.Explain(t.Context(), keyed, tenant, domain.DocumentQuery{Limit: 1}); err != nil || explained.Statement == "" {
		t.Errorf("the explanation is %v, %v", explained, err)
	}

	r.run("select pg_wal_replay_pause()")
	save(t, r.Driver, keyed, tenant, drivers.Batch{From: 5, To: 6, Upserts: documents(6, "a")})
	create(rebuilt)
	if err := r.DropTable(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if version, read := r.get(keyed, tenant, 5, "a"); read && version != 5 {
		t.Errorf("a replica that lags has version %d", version)
	}
	if _, read := r.get(keyed, tenant, 6, "a"); read {
		t.Error("the replica has answered for a position that it lacks")
	}
	if _, read := r.get(rebuilt, tenant, 5, "a"); read {
		t.Error("the replica has answered for a build that it lacks")
	}
	r.await("the replica is too far behind", func() bool { _, read := r.get(keyed, tenant, 5, "a"); return !read })
	if state := r.ReplicaStates()[0]; state.Problem == nil && state.Lag < time.Second {
		t.Errorf("the replica is %+v", state)
	}
	r.run("select pg_wal_replay_resume()")
	r.await("the replica has caught up", func() bool { _, read := r.get(rebuilt, tenant, 5, "a"); return read })
	if version, read := r.get(keyed, tenant, 6, "a"); !read || version != 6 {
		t.Errorf("the replica has version %d: %t", version, read)
	}
	if _, read := r.get(old, tenant, 5, "a"); read {
		t.Error("the replica has answered for a build that was dropped")
	}

	// In a snapshot that is not recent enough, the query itself does not run.
	if reader, ok = r.AtPosition(7); !ok {
		t.Fatal("there is no replica")
	}
	if _, err := reader.Query(t.Context(), keyed, tenant, domain.DocumentQuery{Limit: 1}); !errors.Is(err, drivers.ErrNoReplica) || !strings.Contains(err.Error(), "22P02") || !strings.Contains(err.Error(), "at position 6") {
		t.Errorf("a query of a replica that is behind ends with %v", err)
	}

	// The primary may have the answer to a query that takes too long on the replica.
	lock, err := r.db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	if err == nil {
		_, err = lock.Exec(t.Context(), "lock table "+postgres.CommonTable+" in access exclusive mode") // the replica locks it, too
	}
	if err != nil {
		t.Fatal(err)
	}
	ordered := domain.DocumentQuery{Limit: 1, Order: []domain.Order{byPath("a", true)}}
	r.await("a query is cancelled", func() bool {
		if reader, ok = r.AtPosition(6); !ok {
			return false
		}
		ended := make(chan error, 1)
		go func() {
			_, err := reader.Query(t.Context(), keyed, tenant, ordered)
			ended <- err
		}()
		for {
			select {
			case err := <-ended:
				if err != nil && !errors.Is(err, drivers.ErrNoReplica) {
					t.Fatalf("a query that takes too long ends with %v", err)
				}
				return err != nil && strings.Contains(err.Error(), "57014")
			case <-time.After(5 * time.Millisecond):
				r.run("select pg_cancel_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and application_name like '%-replica'")
			}
		}
	})
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.await("the replica is unlocked", func() bool { _, read := r.get(keyed, tenant, 6, "a"); return read })

	// A query does not wait for its time limit if the replica hangs.
	if reader, ok = r.AtPosition(6); !ok {
		t.Fatal("there is no replica")
	}
	r.between.Hang(proxy.ToClient)
	if _, err := reader.Query(t.Context(), keyed, tenant, ordered); !errors.Is(err, drivers.ErrNoReplica) {
		t.Errorf("a query of a replica that hangs ends with %v", err)
	}
	r.between.Heal()
	r.await("the replica is read again", func() bool { _, read := r.get(keyed, tenant, 6, "a"); return read })

	r.replica.Kill()
	if _, read := r.get(keyed, tenant, 6, "a"); read {
		t.Error("a replica has answered that is down")
	}
	r.await("the replica is known to be down", func() bool { _, ok := r.AtPosition(6); return !ok })
	if err := r.replica.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.await("the replica is back", func() bool { _, read := r.get(keyed, tenant, 6, "a"); return read })
	r.run("select pg_promote()")
	if _, read := r.get(keyed, tenant, 6, "a"); read {
		t.Error("a server has answered that was promoted")
	}
}

// The table of beacons has no tenant. A database that has it can be distributed and opened, and if it is lost, it is
// made again with the tables of documents.
func TestTheTableOfBeacons(t *testing.T) {
	t.Parallel()
	pgtest.NotOnCluster(t, "a distributed database has no replicas")
	db := pgtest.Database(t)
	at := db.URL(migrations.RoleDocuments)
	// The primary takes the place of its replica, and is not read.
	driver, err := postgres.Open(t.Context(), postgres.Config{URL: at, MaxConns: 2, Replicas: []string{at}})
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	owner := db.Pool(t, migrations.RoleDocuments, 1)
	var found bool
	exists := func() bool {
		t.Helper()
		if err := owner.QueryRow(t.Context(), "select to_regclass($1) is not null", postgres.BeaconsTable).Scan(&found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if !exists() {
		t.Fatal("there is no table of beacons")
	}
	rows, _ := owner.Query(t.Context(), "select o::regclass = any (array[$1, $2]::regclass[]) from ("+postgres.OwnedTables+") as owned (o)", postgres.CommonTable, postgres.KeysTable)
	if owned, err := pgx.CollectRows(rows, pgx.RowTo[bool]); err != nil || !slices.Equal(owned, []bool{true, true}) {
		t.Errorf("other tables than those of documents would be distributed: %v, %v", owned, err)
	}
	open(t, db).Close()
	if _, err := owner.Exec(t.Context(), "drop table "+postgres.BeaconsTable); err != nil {
		t.Fatal(err)
	}
	if err := driver.CreateTemporaryTable(t.Context(), shared("orders", 1)); err != nil {
		t.Fatal(err)
	}
	if !exists() {
		t.Error("the table of beacons was not made again")
	}
}
