package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/drivers/drivertest/proxy"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// faultsFor is how long TestFaults runs: a duration such as 30m.
const faultsFor = "MANIFOLD_TEST_FAULTS"

// recoversWithin is how long after a fault both processes may take until they serve everything again. Hung
// connections are detected after 10 s; the rest is for a busy machine.
const recoversWithin = 40 * time.Second

// account is the inline projection. It refuses to withdraw more than there is.
const account = `{
	"name": "account", "mode": "inline", "key": "event.data.k", "source": {"categories": ["account"]},
	"on": {
		"Added": "{'n': doc.?n.orValue(0) + event.data.n}",
		"Taken": "doc.?n.orValue(0) >= event.data.n ? {'n': doc.?n.orValue(0) - event.data.n} : {'n': int('refused')}"
	}
}`

// faultWorkload is the load while things break. Clients append events that an inline projection folds, and read the
// result. Consumers receive from a group.
type faultWorkload struct {
	t          *testing.T
	both       services
	user       user
	tenantLoad *tenantLoad

	requests atomic.Int64
	acked    atomic.Int64
	refused  atomic.Int64

	mu        sync.Mutex
	positions map[string]int64   // of acknowledged events, by id
	seen      []accountSeen      // read by a client
	delivered map[int64]struct{} // positions
}

// accountSeen is a document of the inline projection as it was read.
type accountSeen struct {
	k           string
	position, n int64
}

// change appends one event through the nth process, or through another one if that is down, and reads the event's
// document. It reports whether the event was appended.
func (w *faultWorkload) change(ctx context.Context, u user, n int, kind, k string, by int64) (bool, error) {
	id := eventID("faults", w.requests.Add(1))
	a, err := u.call(ctx, n, "POST", "/v1/append", client.AppendRequest{Streams: []client.StreamAppend{
		{Stream: "account-" + k, Events: []client.NewEvent{newEvent(id, kind, k, by)}}}})
	if err != nil {
		return false, err
	}
	switch {
	case a.status == http.StatusUnprocessableEntity && a.code() == "refused" && kind == "Taken":
		w.refused.Add(1)
		return false, nil
	case a.status != http.StatusCreated && a.status != http.StatusOK:
		return false, fmt.Errorf("append: %s", a)
	}
	var appended client.Appended
	if err := json.Unmarshal(a.body, &appended); err != nil {
		return false, err
	}
	w.acked.Add(1)
	w.mu.Lock()
	w.positions[*id] = appended.Position
	w.mu.Unlock()
	return true, w.read(ctx, u, n+1, k, appended.Position)
}

// read reads a document, which must not lag behind a position.
func (w *faultWorkload) read(ctx context.Context, u user, n int, k string, position int64) error {
	a, err := u.call(ctx, n, "GET", "/v1/projections/account/documents/"+k, nil)
	if err != nil {
		return err
	}
	var document client.Document
	if err := a.decode(http.StatusOK, &document); err != nil {
		return fmt.Errorf("behind an append at position %d: %w", position, err)
	}
	var data struct{ N int64 }
	if err := json.Unmarshal(document.Document, &data); err != nil {
		return err
	}
	if document.Position < position {
		return fmt.Errorf("a read of %s is at position %d, behind its own append at %d", k, document.Position, position)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, accountSeen{k, document.Position, data.N})
	return nil
}

func (w *faultWorkload) appendSome(ctx, quit context.Context, n int, r *rand.Rand) error {
	for quit.Err() == nil {
		kind, by := "Added", 1+r.Int64N(5)
		if r.IntN(5) < 2 {
			kind, by = "Taken", 1+r.Int64N(12)
		}
		if _, err := w.change(ctx, w.user, n+r.IntN(2), kind, fmt.Sprint("key-", r.IntN(6)), by); err != nil {
			return err
		}
		pauseBriefly(quit)
	}
	return nil
}

func (w *faultWorkload) consume(ctx, quit context.Context, n int) error {
	for quit.Err() == nil {
		a, err := w.user.once(ctx, n, "POST", "/v1/subscriptions/all/receive", map[string]any{"wait": 1})
		if err != nil || a.status == http.StatusServiceUnavailable || a.status == http.StatusTooManyRequests {
			n++
			pauseBriefly(quit)
			continue
		}
		var received client.Deliveries
		if err := a.decode(http.StatusOK, &received); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if len(received.Deliveries) == 0 {
			continue
		}
		var attempts []client.Attempt
		w.mu.Lock()
		for _, d := range received.Deliveries {
			w.delivered[d.Event.Position] = struct{}{}
			attempts = append(attempts, client.Attempt{Id: d.Event.Id, Attempt: d.Attempt})
		}
		w.mu.Unlock()
		// The result does not matter: an event that is not acknowledged is redelivered.
		_, _ = w.user.once(ctx, n, "POST", "/v1/subscriptions/all/ack", map[string]any{"ids": attempts})
	}
	return nil
}

// recovers waits until everything is served by each process.
func (w *faultWorkload) recovers(after string) (took time.Duration) {
	w.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(w.t.Context(), recoversWithin)
	defer cancel()
	for i, s := range w.both {
		alone := w.user
		alone.site = services{s}
		if _, err := w.change(ctx, alone, 0, "Added", fmt.Sprint("recovery-", i), 1); err != nil {
			w.t.Fatalf("%s after %s, process %d does not serve: %v", time.Since(began), after, i+1, err)
		}
	}
	return time.Since(began)
}

// check compares the answers with the log.
func (w *faultWorkload) check() {
	t := w.t
	log, err := w.tenantLoad.log(t.Context()) // positions have no gaps, or it fails
	if err != nil {
		t.Fatal(err)
	}
	positions := make(map[string]int64)
	balance, at := make(map[string]int64), make(map[string]map[int64]int64)
	wrong := 0
	for _, event := range log {
		positions[event.Id] = event.Position
		var d datum
		if err := json.Unmarshal(event.Data, &d); err != nil {
			t.Fatal(err)
		}
		if event.Type == "Taken" {
			d.N = -d.N
		}
		balance[d.K] += d.N
		if balance[d.K] < 0 {
			wrong++
		}
		if at[d.K] == nil {
			at[d.K] = make(map[int64]int64)
		}
		at[d.K][event.Position] = balance[d.K]
	}
	if wrong > 0 {
		t.Errorf("%d events of %d are in the log that the inline projection must refuse", wrong, len(log))
	}
	for id, position := range w.positions {
		if positions[id] != position {
			t.Errorf("the event %s was acknowledged at position %d, and is at %d", id, position, positions[id])
		}
	}
	for _, s := range w.seen {
		if n, there := at[s.k][s.position]; !there || n != s.n {
			t.Errorf("somebody has read %+v; a fold from scratch gives %d, %t", s, n, there)
		}
	}
	head := int64(len(log))
	for _, name := range []string{"account", "followed"} {
		documents, err := w.user.documents(t.Context(), name, 100, head)
		if err != nil {
			t.Fatal(err)
		}
		if len(documents) != len(balance) {
			t.Errorf("%s has %d documents, want %d", name, len(documents), len(balance))
		}
		for _, document := range documents {
			var data struct{ N int64 }
			if err := json.Unmarshal(document.Document, &data); err != nil || data.N != balance[document.Id] {
				t.Errorf("%s has %s of %s, want %d", name, document.Document, document.Id, balance[document.Id])
			}
		}
	}
	for late := time.After(patience); ; {
		w.mu.Lock()
		missing := 0
		for position := int64(1); position <= head; position++ {
			if _, there := w.delivered[position]; !there {
				missing++
			}
		}
		w.mu.Unlock()
		if missing == 0 {
			break
		}
		select {
		case <-late:
			t.Fatalf("of %d events the group has not delivered %d", head, missing)
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Logf("%d events, %d acknowledged by clients, %d refused; %d reads", head, w.acked.Load(), w.refused.Load(), len(w.seen))
}

// behind is a process with a separate network to the log and to the documents in the same database.
type behind struct {
	*service
	log, documents *proxy.Proxy
}

func serveBehind(t *testing.T, db pgtest.DB) behind {
	t.Helper()
	log, app := behindProxy(t, db.URL(migrations.RoleApp))
	documents, documentsURL := behindProxy(t, db.URL(migrations.RoleDocuments))
	same := func(role migrations.Role) string {
		address, err := url.Parse(db.URL(role))
		if err != nil {
			t.Fatal(err)
		}
		address.Host = log.Address()
		return address.String()
	}
	s := serve(t, db,
		"MANIFOLD_DATABASE_APP_URL="+app, "MANIFOLD_DATABASE_DOCUMENTS_URL="+documentsURL,
		"MANIFOLD_DATABASE_SYSTEM_URL="+same(migrations.RoleSystem), "MANIFOLD_DATABASE_RETENTION_URL="+same(migrations.RoleRetention))
	return behind{s, log, documents}
}

// TestFaults breaks every connection between two processes and their database, and the processes and the database
// themselves, one after another and some together. It runs for the duration in MANIFOLD_TEST_FAULTS.
func TestFaults(t *testing.T) {
	t.Parallel()
	length := 20 * time.Second
	if text := os.Getenv(faultsFor); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(faultsFor+":", err)
		}
	}
	r := chance(t)
	server := pgtest.Private(t, pgtest.Options{})
	db := pgtest.Migrated(t, server)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	processes := []behind{serveBehind(t, db), serveBehind(t, db)}
	both := services{processes[0].service, processes[1].service}
	_, u := newTenant(t, newUser(t, both, operatorKey), "acme")
	w := &faultWorkload{t: t, both: both, user: u, tenantLoad: &tenantLoad{user: u, name: "acme", history: newHistory()},
		positions: make(map[string]int64), delivered: make(map[int64]struct{})}
	u.must(t, http.StatusCreated, nil, "PUT", "/v1/projections/account", []byte(account))
	u.must(t, http.StatusCreated, nil, "PUT", "/v1/projections/followed", []byte(`{
		"name": "followed", "key": "event.data.k", "source": {"categories": ["account"]},
		"on": {"Added": "{'n': doc.?n.orValue(0) + event.data.n}", "Taken": "{'n': doc.?n.orValue(0) - event.data.n}"}}`))
	u.must(t, http.StatusCreated, nil, "PUT", "/v1/subscriptions/all", []byte(`{"from": "start", "ackTimeout": 3, "maxAttempts": 1000}`))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	quit, stop := context.WithCancel(ctx)
	consumed, stopConsuming := context.WithCancel(ctx)
	var appenders, consumers errgroup.Group
	run := func(group *errgroup.Group, do func() error) {
		group.Go(func() error {
			err := do()
			if err != nil {
				cancel() // the faults end, too
			}
			return err
		})
	}
	for n := range 4 {
		random := rand.New(rand.NewPCG(r.Uint64(), 0))
		run(&appenders, func() error { return w.appendSome(ctx, quit, n, random) })
	}
	for n := range 2 {
		run(&consumers, func() error { return w.consume(ctx, consumed, n) })
	}
	await := func(events int64) {
		for target, late := w.acked.Load()+events, time.After(recoversWithin); w.acked.Load() < target && ctx.Err() == nil; {
			select {
			case <-late:
				t.Error("events are no longer acknowledged")
				cancel()
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	wait := func(most time.Duration) {
		select {
		case <-time.After(rand.N(most)):
		case <-ctx.Done():
		}
	}
	networks := func(p behind) []*proxy.Proxy {
		return [][]*proxy.Proxy{{p.log}, {p.documents}, {p.log, p.documents}}[r.IntN(3)]
	}
	faults := []struct {
		name string
		do   func(p behind)
	}{
		{"cut connections", func(p behind) {
			for range 5 {
				hit := networks(p)
				for _, network := range hit {
					network.Cut([]proxy.Direction{proxy.ToServer, proxy.ToClient}[r.IntN(2)], r.IntN(3000), r.IntN(2) == 0)
				}
				wait(300 * time.Millisecond)
				for _, network := range hit {
					network.Heal()
				}
			}
		}},
		{"a network that is down", func(p behind) {
			hit := networks(p)
			for _, network := range hit {
				network.Down()
			}
			wait(2 * time.Second)
			for _, network := range hit {
				network.Up()
			}
		}},
		{"a network that hangs", func(p behind) {
			hit := networks(p)
			for _, network := range hit {
				network.Hang(proxy.ToServer)
				network.Hang(proxy.ToClient)
			}
			wait(4 * time.Second)
			for _, network := range hit {
				network.Heal()
			}
		}},
		{"a slow network", func(p behind) {
			for _, network := range []*proxy.Proxy{p.log, p.documents} {
				network.Delay(proxy.ToClient, 100*time.Millisecond)
			}
			wait(2 * time.Second)
			for _, network := range []*proxy.Proxy{p.log, p.documents} {
				network.Heal()
			}
		}},
		// Whoever asks the documents while it holds a log gets the answer when the log is lost, and others have
		// appended.
		{"sessions that are killed while they hold a log", func(p behind) {
			p.documents.Delay(proxy.ToServer, 100*time.Millisecond)
			for range 20 {
				_, err := super.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
					where datname = current_database() and usename = 'manifold_app' and state = 'idle in transaction'`)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				wait(200 * time.Millisecond)
			}
			p.documents.Heal()
		}},
		{"a killed process", func(p behind) {
			p.kill()
			await(10) // the other one continues
			p.start()
		}},
		{"killed sessions", func(behind) {
			for range 5 {
				_, err := super.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
					where datname = current_database() and usename like 'manifold_%' and random() < 0.5`)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				wait(200 * time.Millisecond)
			}
		}},
		{"a killed database", func(behind) {
			server.Kill()
			wait(time.Second)
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			for super.Ping(ctx) != nil && ctx.Err() == nil {
				wait(50 * time.Millisecond)
			}
		}},
	}
	await(20)
	slowest := make(map[string]time.Duration)
	began := time.Now()
	for n := 0; (time.Since(began) < length || n < len(faults)) && ctx.Err() == nil; n++ {
		fault := faults[n%len(faults)]
		if n >= len(faults) {
			fault = faults[r.IntN(len(faults))]
		}
		fault.do(processes[r.IntN(2)])
		if ctx.Err() == nil {
			slowest[fault.name] = max(slowest[fault.name], w.recovers(fault.name))
		}
	}
	stop()
	if err := appenders.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("slowest recoveries: %v", slowest)
	// What is inline is so still, at both processes.
	for i, s := range both {
		alone := u
		alone.site = services{s}
		if appended, err := w.change(t.Context(), alone, 0, "Taken", "key-0", 1<<40); err != nil || appended {
			t.Errorf("process %d appends what the inline projection must refuse: %v", i+1, err)
		}
	}
	w.check()
	stopConsuming()
	if err := consumers.Wait(); err != nil {
		t.Error(err)
	}
}
