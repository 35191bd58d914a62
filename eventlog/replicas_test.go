package eventlog_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// replicated is a log with a replica, and counts who answers.
type replicated struct {
	*tables.Tables
	db       pgtest.DB
	replica  *embedded.Server
	maxLag   time.Duration
	mu       sync.Mutex
	answered map[string]int // by source
	refused  map[string]int // by reason
}

func newReplicated(t *testing.T, maxLag time.Duration) *replicated {
	t.Helper()
	pgtest.NotOnCluster(t, "it has a primary and a replica of its own")
	primary := pgtest.Private(t, pgtest.Replicated())
	l := &replicated{db: pgtest.Migrated(t, primary), replica: pgtest.Replica(t, primary), maxLag: maxLag, answered: make(map[string]int), refused: make(map[string]int)}
	app, err := url.Parse(l.db.URL(migrations.RoleApp))
	tablestest.Must(t, err)
	to, err := url.Parse(l.replica.URL(l.db.Name))
	tablestest.Must(t, err)
	app.Host = to.Host
	l.Tables = tablestest.OpenWith(t, l.db, func(c *tables.Config) {
		c.Replicas, c.ReplicaLag = []string{app.String()}, maxLag
		c.Observer.HistoryRead = func(source string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.answered[source]++
		}
		c.Observer.ReplicaRefused = func(_, reason string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.refused[reason]++
		}
	})
	return l
}

// byReplica returns how many pages replicas have answered.
func (l *replicated) byReplica() (pages int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for source, n := range l.answered {
		if source != "primary" {
			pages += n
		}
	}
	return pages
}

// awaitRead waits until the replica is read, or is not.
func (l *replicated) awaitRead(t *testing.T, read bool) {
	t.Helper()
	await(t, fmt.Sprintf("the replica is read: %t", read), func() bool { return (l.ReplicaStates()[0].Problem == nil) == read })
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.After(tablestest.Patience); !is(); {
		select {
		case <-late:
			t.Fatal("it does not come true: ", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// run runs a statement as the replica's superuser.
func (l *replicated) run(t *testing.T, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), l.replica.URL("postgres"))
	tablestest.Must(t, err)
	_, err = conn.Exec(t.Context(), statement)
	tablestest.Must(t, err)
	tablestest.Must(t, conn.Close(t.Context()))
}

// compare draws a read, and compares the answer with that of the primary. Only reads that may need several pages of
// different servers differ in where they stop, so limits are in events.
func (l *replicated) compare(r *rapid.T, t *testing.T, tenant domain.TenantID, head int64) {
	place := rapid.Int64Range(1, head)
	limit := rapid.SampledFrom([]int{1, 7, 100, 10_000}).Draw(r, "limit")
	direction := rapid.SampledFrom([]domain.Direction{domain.Forward, domain.Forward, domain.Backward}).Draw(r, "direction")
	category := rapid.SampledFrom([]string{"order", "invoice", "user"}).Draw(r, "category")
	from, to := place.Draw(r, "from"), place.Draw(r, "to")
	bytes := rapid.SampledFrom([]int{0, 1 << 20}).Draw(r, "bytes")
	var got, want any
	var err, wantErr error
	switch rapid.IntRange(0, 2).Draw(r, "what") {
	case 0:
		q := domain.LogQuery{From: from, To: to, Limit: limit, MaxBytes: bytes, Direction: direction}
		q.Categories = rapid.SampledFrom([][]string{nil, {category}, {category, "order"}}).Draw(r, "categories")
		q.Types = rapid.SampledFrom([][]string{nil, {"Rare"}}).Draw(r, "types")
		want, wantErr = l.LogSlice(t.Context(), tenant, q)
		q.AsOf = l.Recent()
		got, err = l.LogSlice(t.Context(), tenant, q)
	case 1:
		q := domain.StreamQuery{From: 1, To: rapid.Int64Range(1, 100).Draw(r, "version"), Limit: limit, MaxBytes: bytes}
		stream := fmt.Sprintf("%s-%d", category, rapid.IntRange(0, 6).Draw(r, "stream"))
		want, wantErr = l.StreamSlice(t.Context(), tenant, stream, q)
		q.AsOf = l.Recent()
		got, err = l.StreamSlice(t.Context(), tenant, stream, q)
	case 2:
		q := domain.ByStreamQuery{To: to, Limit: limit, MaxBytes: bytes, Category: category}
		want, wantErr = l.ReadByStream(t.Context(), tenant, q)
		q.AsOf = l.Recent()
		got, err = l.ReadByStream(t.Context(), tenant, q)
	}
	tablestest.Must(t, err)
	tablestest.Must(t, wantErr)
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		r.Fatalf("the answer differs from that of the primary:\n%+v\n%+v", got, want)
	}
}

// Whether the replica has all events or lags, a read with an AsOf has the answer of the primary at once after an
// append.
func TestReplicasAnswerAsThePrimaryDoes(t *testing.T) {
	t.Parallel()
	l := newReplicated(t, time.Minute)
	tenant := tablestest.NewTenant(t, l.Tables)
	mixedLog(t, l.Tables, tenant, 100)
	l.awaitRead(t, true)
	replays := true
	rapid.Check(t, func(r *rapid.T) {
		if pause := rapid.Bool().Draw(r, "pause"); pause == replays {
			statement := map[bool]string{true: "select pg_wal_replay_pause()", false: "select pg_wal_replay_resume()"}[pause]
			l.run(t, statement)
			replays = !pause
		}
		stream := rapid.SampledFrom([]string{"order-1", "invoice-2", "user-3"}).Draw(r, "stream")
		head := tablestest.Append(t, l.Tables, tenant, tablestest.Counted(stream, domain.Any, rapid.IntRange(1, 5).Draw(r, "events"))).Position
		for range 4 {
			l.compare(r, t, tenant, head)
		}
	})
	if l.byReplica() == 0 {
		t.Error("the replica has answered nothing")
	}
}

// A replica that no longer replays, that is down, or that was promoted, is not read beyond the configured lag. Reads as
// of a time need what was committed then, even if the lag would permit older answers.
func TestReplicasThatCannotBeReadAreSkipped(t *testing.T) {
	t.Parallel()
	l := newReplicated(t, 2*time.Second)
	tenant := tablestest.NewTenant(t, l.Tables)
	head := int64(len(mixedLog(t, l.Tables, tenant, 20)))
	read := func(asOf time.Time) (byReplica bool) {
		t.Helper()
		before := l.byReplica()
		events, err := l.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, To: head, Limit: 1000, AsOf: asOf})
		tablestest.Must(t, err)
		if int64(len(events)) != head {
			t.Fatalf("%d events of %d", len(events), head)
		}
		return l.byReplica() > before
	}
	l.awaitRead(t, true)
	await(t, "the replica has all events", func() bool { return read(l.Recent()) })

	l.run(t, "select pg_wal_replay_pause()")
	paused := time.Now()
	if read(paused) {
		t.Error("a replica answered as of a time that it had not reached")
	}
	l.awaitRead(t, false)
	if read(l.Recent()) {
		t.Error("a replica answered that is behind")
	}
	if lag := l.ReplicaStates()[0].Lag; lag < l.maxLag {
		t.Errorf("its lag is %s", lag)
	}
	l.run(t, "select pg_wal_replay_resume()")
	l.awaitRead(t, true)
	await(t, "the replica has what was committed while it paused", func() bool { return read(paused) })

	l.replica.Kill()
	if read(l.Recent()) {
		t.Error("a replica answered that is down")
	}
	l.awaitRead(t, false)
	tablestest.Must(t, l.replica.Restart(t.Context()))
	l.awaitRead(t, true)
	await(t, "the replica is read after its restart", func() bool { return read(l.Recent()) })

	l.run(t, "select pg_promote()")
	if read(l.Recent()) {
		t.Error("a server answered that was promoted")
	}
	l.awaitRead(t, false)
}

// A replica that lacks a removal answers with the floor that belongs to its events, unless the read is as of a later
// time. If the primary answers the rest, its floor counts.
func TestReplicasReportRemovedEvents(t *testing.T) {
	t.Parallel()
	l := newReplicated(t, time.Minute)
	tenant := tablestest.NewTenant(t, l.Tables)
	head := tablestest.Append(t, l.Tables, tenant, tablestest.Counted("order-1", domain.Any, 10)).Position
	q := domain.LogQuery{From: 1, To: head, Limit: 100}
	l.awaitRead(t, true)
	slice := func() domain.LogSlice {
		t.Helper()
		q.AsOf = l.Recent()
		slice, err := l.LogSlice(t.Context(), tenant, q)
		tablestest.Must(t, err)
		return slice
	}
	await(t, "the replica answers", func() bool { slice(); return l.byReplica() > 0 })
	l.run(t, "select pg_wal_replay_pause()")
	pages, paused := l.byReplica(), time.Now()
	await(t, "the replica is asked for a state that it has not reached", func() bool {
		q.AsOf = paused
		_, err := l.LogSlice(t.Context(), tenant, q)
		tablestest.Must(t, err)
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.refused["behind"] > 0
	})
	if l.byReplica() > pages {
		t.Error("it has answered")
	}
	retention := l.db.Pool(t, migrations.RoleRetention, 1)
	_, err := retention.Exec(t.Context(), fmt.Sprintf(`begin; set local manifold.tenant = '%[1]s';
		delete from manifold.events where tenant_id = '%[1]s' and position <= 4;
		insert into manifold.retention_floors (tenant_id, category, announced_to, removed_to, removed, run_id) values ('%[1]s', 'order', 4, 4, 4, gen_random_uuid()); commit`, tenant))
	tablestest.Must(t, err)
	if got := slice(); len(got.Events) != 10 || got.RemovedTo != 0 {
		t.Errorf("%d events of ten, removed to %d; the replica has removed none", len(got.Events), got.RemovedTo)
	}
	q.To = tablestest.Append(t, l.Tables, tenant, tablestest.Counted("order-1", domain.Any, 1)).Position
	if got := slice(); len(got.Events) != 11 || got.RemovedTo != 4 {
		t.Errorf("%d events, removed to %d; the primary has answered the rest", len(got.Events), got.RemovedTo)
	}
}

// After a failover that loses events, a replica that still follows the old primary, and has these events, is not read.
func TestReplicaOfALostHistory(t *testing.T) {
	t.Parallel()
	primary := pgtest.Private(t, pgtest.Replicated())
	db := pgtest.Migrated(t, primary)
	promoted, left := pgtest.Replica(t, primary), pgtest.Replica(t, primary)
	at := func(raw string, hosts ...string) string {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = strings.Join(hosts, ",")
		if q := u.Query(); len(hosts) > 1 {
			q.Set("target_session_attrs", "read-write")
			u.RawQuery = q.Encode()
		}
		return u.String()
	}
	hostOf := func(raw string) string {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return u.Host
	}
	oldHost, newHost := hostOf(db.URL(migrations.RoleApp)), hostOf(promoted.URL(db.Name))
	log := tablestest.OpenWith(t, db, func(c *tables.Config) {
		c.Replicas, c.ReplicaLag = []string{at(c.AppURL, hostOf(left.URL(db.Name)))}, time.Minute
		c.AppURL, c.SystemURL, c.RetentionURL = at(c.AppURL, oldHost, newHost), at(c.SystemURL, oldHost, newHost), at(c.RetentionURL, oldHost, newHost)
	})
	tenant := tablestest.NewTenant(t, log)
	tablestest.Append(t, log, tenant, tablestest.Counted("old-1", domain.Any, 3))
	await(t, "the replica to be read", func() bool { return log.ReplicaStates()[0].Problem == nil })
	promoted.Kill()
	other := tablestest.OpenWith(t, db, func(*tables.Config) {})
	lost := tablestest.Append(t, other, tenant, tablestest.Counted("lost-1", domain.Any, 5)).Position
	super, err := pgx.Connect(t.Context(), left.URL(db.Name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = super.Close(context.Background()) })
	await(t, "the replica to have the events", func() bool {
		var head int64
		err := super.QueryRow(t.Context(), "select head from manifold.logs where tenant_id = $1", tenant.String()).Scan(&head)
		return err == nil && head == lost
	})
	primary.Kill()
	if err := promoted.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), promoted.URL(db.Name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "select pg_promote()"); err != nil {
		t.Fatal(err)
	}
	var head int64
	await(t, "an append to the new primary", func() bool {
		appended, err := log.Append(t.Context(), tenant, tablestest.Counted("new-1", domain.Any, 5))
		head = appended.Position
		return err == nil
	})
	if head != lost {
		t.Fatalf("the new events end at %d, the lost ones at %d", head, lost)
	}
	lastStream := func() string {
		read, err := log.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, To: head, Limit: 100, AsOf: log.Recent()})
		if err != nil {
			t.Fatal(err)
		}
		return read[len(read)-1].Stream
	}
	// The process notices a quick failover with its next beacon.
	await(t, "a read of the new history", func() bool { return lastStream() == "new-1" })
	for range 20 {
		if stream := lastStream(); stream != "new-1" {
			t.Fatalf("the event at %d is one of %s", head, stream)
		}
	}
}
