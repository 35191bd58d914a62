package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// The tenants of a shared transaction commit together, but for those whose batch is not simple.
func TestSharedTransaction(t *testing.T) {
	t.Parallel()
	s, db := openShared(t)
	const (
		plain      = iota
		newStream  // whose version must be read
		guessed    // a new stream with an expected version
		wrongGuess // likewise, and the stream exists
		conflict   // is refused without a write
		withdrawn  // its client has gone
		large
		overtaken // another process has appended
		tenants
	)
	var ids [tenants]domain.TenantID
	for i := range ids {
		ids[i] = domain.NewTenantID()
		mustAppend(t, s, ids[i], one("order-1", domain.None))
	}
	other := openLogOf(t, db, nil)
	mustAppend(t, other, ids[wrongGuess], one("order-2", domain.None))
	mustAppend(t, s, ids[wrongGuess], one("order-1", domain.Any)) // so that its head is known again
	mustAppend(t, other, ids[overtaken], one("order-1", domain.Any))
	s.writers.running.Wait()
	for _, i := range []int{wrongGuess} {
		s.writers.of[ids[i]].log.contended = false
	}

	big := one("order-1", 1)
	big.Streams[0].Events[0].Data = fmt.Appendf(nil, "%q", bytes.Repeat([]byte("x"), sharedBytes))
	together := make([]*participant, tenants)
	for i, a := range [tenants]domain.Append{
		one("order-1", 1), one("order-2", domain.Any), one("order-2", domain.None), one("order-2", domain.None), one("order-1", 7), {}, big, one("order-1", 1),
	} {
		together[i] = waitingFor(t, s, ids[i], a)
	}
	s.shared.running = 1
	s.shared.lead(t.Context(), together)
	if s.shared.running != 0 {
		t.Error("the transaction has not ended")
	}
	committed := make(map[int]bool)
	for i, p := range together {
		if p.lost != nil {
			t.Errorf("tenant %d: %v", i, p.lost)
		}
		committed[i] = p.committed && p.sent.whole()
	}
	for i, want := range [tenants]bool{plain: true, newStream: true, guessed: true} {
		if committed[i] != want {
			t.Errorf("tenant %d: committed is %t, want %t", i, committed[i], want)
		}
	}
	var transactions, events int
	pool := db.Pool(t, pgtest.RoleSuperuser, 1)
	err := pool.QueryRow(t.Context(), "select count(distinct xmin::text), count(*) from manifold.events where tenant_id = any($1) and position = 2",
		[][16]byte{ids[plain], ids[newStream], ids[guessed]}).Scan(&transactions, &events)
	// On a cluster, each worker has a transaction for its tenants.
	if most := max(1, len(db.Nodes(t))-1); err != nil || transactions > most || events != 3 {
		t.Errorf("%d events were committed in %d transactions, %v", events, transactions, err)
	}
	for i, p := range together {
		if !p.w.aloneUntil.IsZero() {
			t.Errorf("tenant %d is held responsible for a failure", i)
		}
		finish(t, p)
	}
}

// A tenant that fails, or has to be waited for, takes its transaction back. It commits alone afterwards, and the others
// do so once.
func TestSharedTransactionIsTakenBack(t *testing.T) {
	t.Parallel()
	s, db := openShared(t)
	for name, c := range map[string]struct {
		culprit func(t *testing.T, tenant domain.TenantID) domain.Append
	}{
		"locked": {func(t *testing.T, tenant domain.TenantID) domain.Append {
			tx, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { tx.Rollback(context.Background()) })
			if _, err = tx.Exec(t.Context(), "select from manifold.logs where tenant_id = $1 for update", [16]byte(tenant)); err != nil {
				t.Fatal(err)
			}
			return one("order-1", 1)
		}},
		"duplicate": {func(t *testing.T, tenant domain.TenantID) domain.Append {
			a := one("order-1", 1)
			a.Streams[0].Events[0].ID = domain.NewEventID()
			mustAppend(t, s, tenant, a)
			return one("order-1", domain.Any, a.Streams[0].Events[0].ID)
		}},
		"version cannot be read": {func(*testing.T, domain.TenantID) domain.Append { return one("order-\xff", domain.Any) }},
		"refused by the database": {func(*testing.T, domain.TenantID) domain.Append {
			a := one("order-1", 1)
			a.Streams[0].Events[0].Data = []byte(`"\u0000"`)
			return a
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var tenants []domain.TenantID
			for range 5 {
				tenants = append(tenants, domain.NewTenantID())
				mustAppend(t, s, tenants[len(tenants)-1], one("order-1", domain.None))
			}
			at := rand.IntN(len(tenants))
			bad := c.culprit(t, tenants[at])
			s.writers.running.Wait()
			together := make([]*participant, len(tenants))
			for i, tenant := range tenants {
				a := one("order-1", 1)
				if i == at {
					a = bad
				}
				together[i] = waitingFor(t, s, tenant, a)
			}
			s.shared.running++
			began := time.Now()
			s.shared.lead(t.Context(), together)
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %s", took)
			}
			for i, p := range together {
				if p.committed || p.lost != nil {
					t.Errorf("tenant %d: committed %t, %v", i, p.committed, p.lost)
				}
				if blamed := !p.w.aloneUntil.IsZero(); blamed != (i == at) {
					t.Errorf("tenant %d of %d: alone until %s; the culprit is %d", i, len(together), p.w.aloneUntil, at)
				}
				if i != at {
					finish(t, p)
				}
			}
		})
	}
}

// Tenants append at the same time, while connections break before and after commits, another process appends to one of
// the logs, a session locks random logs, and one tenant repeats an id. Each acknowledged event is in its log once.
func TestSharedTransactionsUnderFaults(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	s := openLogOf(t, db, network)
	other := openLogOf(t, db, nil)
	var breaks atomic.Bool
	for _, insert := range []string{"manifold_insert_event", "manifold_insert_events"} {
		network.On(pgtest.BeforeCommit(insert, func() bool { return breaks.Load() && rand.IntN(60) == 0 }))
		network.On(pgtest.AfterCommit(insert, func() bool { return breaks.Load() && rand.IntN(60) == 0 }))
	}
	const tenants, requests = 24, 60
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	logs := make([]domain.TenantID, tenants)
	sent := make([][]domain.EventID, tenants) // and acknowledged
	for i := range logs {
		logs[i] = domain.NewTenantID()
		mustAppend(t, s, logs[i], one("order-1", domain.None))
	}
	breaks.Store(true)
	for i, tenant := range logs {
		wg.Go(func() {
			for n := range requests {
				id := domain.NewEventID()
				if i == 0 && len(sent[i]) > 0 {
					id = sent[i][0]
				}
				a := one(fmt.Sprintf("order-%d", n%3+1), domain.Any, id)
				from := s
				if i == 1 && n%2 == 0 {
					from = other
				}
				appended, err := from.Append(ctx, tenant, a)
				for err != nil && ctx.Err() == nil {
					if e, ok := errors.AsType[*domain.Error](err); i == 0 && ok && e.Code == domain.CodeEventIDConflict {
						break // the stream is another
					} else if !ok || e.Code != domain.CodeUnavailable && e.Code != domain.CodeOutcomeUnknown {
						t.Errorf("tenant %d: %v", i, err)
						return
					}
					appended, err = from.Append(ctx, tenant, a)
				}
				if err == nil && !(i == 0 && len(sent[i]) > 0) {
					sent[i] = append(sent[i], id)
					if got := appended.Streams[0].Events[0].ID; got != id {
						t.Errorf("tenant %d: the answer is for %s", i, got)
					}
				}
			}
		})
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		pool := db.Pool(t, pgtest.RoleSuperuser, 1)
		for range 10 {
			_, err := pool.Exec(ctx, "with l as materialized (select from manifold.logs where tenant_id = $1 for update) select pg_sleep(0.05), count(*) from l",
				[16]byte(logs[rand.IntN(tenants)]))
			if err != nil {
				t.Error(err)
			}
		}
	}()
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatal("the appends did not end")
	}
	breaks.Store(false)
	for i, tenant := range logs {
		events, err := other.ReadLog(t.Context(), tenant, domain.LogQuery{Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		versions, found := make(map[string]int64), make(map[domain.EventID]int)
		for n, e := range events {
			versions[e.Stream]++
			found[e.ID]++
			if e.Position != int64(n+1) || e.Version != versions[e.Stream] {
				t.Fatalf("tenant %d: event %d has position %d and version %d of %s", i, n+1, e.Position, e.Version, e.Stream)
			}
		}
		for _, id := range sent[i] {
			if found[id] != 1 {
				t.Errorf("tenant %d: the acknowledged event %s is in the log %d times", i, id, found[id])
			}
		}
		if want := requests + 1; i != 0 && len(events) != want {
			t.Errorf("tenant %d has %d events, want %d", i, len(events), want)
		}
	}
	shared := 0
	for _, node := range db.Nodes(t) { // each numbers its transactions
		var events string // the table, or the shards on the node
		err := node.QueryRow(t.Context(), `select coalesce(string_agg(format('select xmin::text as number, tenant_id from %s', c.oid::regclass), ' union all '), '')
			from pg_class c where c.relnamespace = 'manifold'::regnamespace and c.relkind = 'r' and c.relname ~ $1`,
			map[bool]string{false: "^events$", true: `^events_\d+$`}[db.Distributed()]).Scan(&events)
		if err != nil {
			t.Fatal(err)
		}
		if events == "" { // a coordinator has no shards
			continue
		}
		var here int
		err = node.QueryRow(t.Context(), "select count(*) from (select 1 from ("+events+") as e group by number having count(distinct tenant_id) > 1) as s").Scan(&here)
		if err != nil {
			t.Fatal(err)
		}
		shared += here
	}
	if (shared == 0) != db.Distributed() {
		t.Errorf("%d transactions were shared", shared)
	}
	t.Logf("%d transactions were shared", shared)
}

// Three tenants do their worst: the log of one is locked by another process, one repeats a duplicate, and one appends
// events of 1 MiB. The others' appends do not wait for them.
func TestHostileTenantsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	s, db := openShared(t)
	const tenants, appends = 32, 40
	logs := make([]domain.TenantID, tenants)
	for i := range logs {
		logs[i] = domain.NewTenantID()
		mustAppend(t, s, logs[i], one("order-1", domain.None))
	}
	next := make([]int64, tenants)
	slowest := func() (p99, longest time.Duration) {
		var mu sync.Mutex
		var took []time.Duration
		var wg sync.WaitGroup
		for i, tenant := range logs[3:] {
			wg.Go(func() {
				for range appends {
					next[i]++
					began := time.Now()
					if _, err := s.Append(t.Context(), tenant, one("order-1", domain.Expected(next[i]))); err != nil {
						t.Error(err)
					}
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		slices.Sort(took)
		return took[len(took)*99/100], took[len(took)-1]
	}
	aloneP99, alone := slowest()

	locked, repeating, large := logs[0], logs[1], logs[2]
	tx, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release := sync.OnceFunc(func() { tx.Rollback(context.Background()) })
	defer release()
	if _, err := tx.Exec(t.Context(), "select from manifold.logs where tenant_id = $1 for update", [16]byte(locked)); err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() {
		_, err := s.Append(context.Background(), locked, one("order-1", 1))
		held <- err
	}()
	duplicate, big := one("order-1", 1, domain.NewEventID()), one("order-1", domain.Any)
	mustAppend(t, s, repeating, duplicate)
	big.Streams[0].Events[0].Data = fmt.Appendf(nil, "%q", bytes.Repeat([]byte("x"), 1<<20-100))
	var attacks sync.WaitGroup
	quit, stop := context.WithCancel(t.Context())
	for tenant, a := range map[domain.TenantID]domain.Append{repeating: duplicate, large: big} {
		attacks.Go(func() {
			for quit.Err() == nil {
				if _, err := s.Append(t.Context(), tenant, a); err != nil {
					t.Error(err)
				}
			}
		})
	}
	attackedP99, attacked := slowest()
	stop()
	attacks.Wait()
	select {
	case err := <-held:
		t.Errorf("the held log was appended to: %v", err)
	default:
	}
	release()
	if err := <-held; err != nil {
		t.Error(err)
	}
	t.Logf("p99 %s, longest %s alone; under attack %s and %s", aloneP99, alone, attackedP99, attacked)
	// An append that waits for the locked log takes four seconds.
	if attacked > max(time.Second, 10*alone) {
		t.Errorf("an append took %s, alone %s at most", attacked, alone)
	}
}

func openShared(t *testing.T) (opened, pgtest.DB) {
	t.Helper()
	db := pgtest.Database(t)
	return openLogOf(t, db, nil), db
}

// openLogOf opens a Log, through a network if there is one.
func openLogOf(t *testing.T, db pgtest.DB, network *pgtest.Network) opened {
	t.Helper()
	app := db.URL(migrations.RoleApp)
	if network != nil {
		app = network.URL(t, db, migrations.RoleApp)
	}
	s, err := openLog(t.Context(), pg.Config{AppURL: app, SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 4}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// one is a request with one event, with this id if there is one.
func one(stream string, expected domain.Expected, id ...domain.EventID) domain.Append {
	event := domain.NewEvent{Type: "A", Data: []byte(`1`)}
	if len(id) > 0 {
		event.ID = id[0]
	}
	return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: expected, Events: []domain.NewEvent{event}}}}
}

func mustAppend(t *testing.T, s opened, tenant domain.TenantID, a domain.Append) {
	t.Helper()
	if _, err := s.Append(t.Context(), tenant, a); err != nil {
		t.Fatal(err)
	}
}

// waitingFor returns the attempt of a tenant's idle writer whose queue holds a request, if it has a stream.
func waitingFor(t *testing.T, s opened, tenant domain.TenantID, a domain.Append) *participant {
	t.Helper()
	w := s.writers.of[tenant]
	if len(a.Streams) > 0 {
		r, err := s.newRequest(a)
		if err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		w.queue, w.bytes = append(w.queue, r), w.bytes+r.bytes
		w.mu.Unlock()
		s.writers.bytes.Add(r.bytes)
	}
	b := new(batch)
	b.begin()
	return &participant{attempt: &attempt{w: w, log: &w.log, batch: b, next: new(batch)}, turn: make(chan []*participant, 1)}
}

// finish answers what a participant has written, and writes the rest alone.
func finish(t *testing.T, p *participant) {
	t.Helper()
	requests := slices.Clone(p.batch.requests)
	if p.committed {
		if err := p.land(p.sent, nil); err != nil {
			t.Error(err)
		}
	}
	for n := 0; len(p.batch.requests) > 0 && n < 3; n++ {
		p.batch.begin()
		again := attempt{w: p.w, log: p.log, batch: p.batch, next: p.next}
		if err := again.run(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, r := range requests {
		if !r.answered {
			t.Errorf("a request was not answered: %v", r.append)
		}
	}
}
