package systemtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/outbox"
	"github.com/manifold-es/manifold/outbox/postgres"
)

// The variables that make this binary a drainer of an outbox, which TestKillDrainers kills.
const (
	drainerDatabase = "MANIFOLD_TEST_DRAINER_DATABASE"
	drainerService  = "MANIFOLD_TEST_DRAINER_SERVICE"
	drainerKey      = "MANIFOLD_TEST_DRAINER_KEY"
)

// drain is the drainer's process: it publishes until it is killed, and prints a line whenever it has published
// something.
func drain() error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv(drainerDatabase))
	if err != nil {
		return err
	}
	store, err := postgres.DefaultTable.Open(pool)
	if err != nil {
		return err
	}
	service, err := outbox.NewHTTP(os.Getenv(drainerService), os.Getenv(drainerKey), nil)
	if err != nil {
		return err
	}
	d, err := outbox.New(outbox.Config{
		Store: store, Batch: 20, Lease: time.Second, Poll: 20 * time.Millisecond,
		Publish: func(ctx context.Context, rows []outbox.Row) error {
			err := service.Publish(ctx, rows)
			fmt.Println("published", len(rows), err) // between what the service has and what the outbox knows
			return err
		},
	})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// drainer is a process of drain.
type drainer struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// startDrainer starts a process, which is given to who wants to know that one has just published something.
func startDrainer(t *testing.T, published chan<- *drainer, environ ...string) *drainer {
	t.Helper()
	d := &drainer{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	d.cmd.Env = append(os.Environ(), environ...)
	d.cmd.Stderr = os.Stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case published <- d:
			default: // nobody waits for it
			}
		}
	}()
	return d
}

// kill ends it with SIGKILL, wherever it is.
func (d *drainer) kill() {
	_ = d.cmd.Process.Kill() // it is gone already where this fails
	<-d.ended
	_ = d.cmd.Wait()
}

// Producers change their tables and add events in the same transactions, and roll some of them back, while the
// drainers' processes are killed repeatedly. The log must contain only what was committed, once and in order.
func TestKillDrainers(t *testing.T) {
	t.Parallel()
	r := chance(t)
	const keys, kills = 6, 6
	at := inside(t, configuration(pgtest.Database(t)))
	_, tenant := newTenant(t, newUser(t, at, operatorKey), "acme")
	address, err := at.address(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	db := pgtest.Database(t)
	pool := db.Pool(t, pgtest.RoleSuperuser, 8)
	if err := postgres.DefaultTable.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "create table counters (key text primary key, n int not null); insert into counters select k::text, 0 from generate_series(1, 6) as k"); err != nil {
		t.Fatal(err)
	}
	var producing sync.WaitGroup
	killed, stop := context.WithCancel(t.Context())
	defer func() { stop(); producing.Wait() }()
	for producer := range 4 {
		choose := rand.New(rand.NewPCG(r.Uint64(), uint64(producer)))
		producing.Go(func() {
			for killed.Err() == nil && !t.Failed() {
				if err := count(t.Context(), pool, choose, keys); err != nil {
					t.Error(err)
				}
				// There is always some work, but not much more.
				select {
				case <-killed.Done():
				case <-time.After(2 * time.Millisecond):
				}
			}
		})
	}
	environ := []string{drainerDatabase + "=" + db.URL(pgtest.RoleSuperuser), drainerService + "=http://" + address, drainerKey + "=" + tenant.key}
	published := make(chan *drainer)
	drainers := []*drainer{startDrainer(t, published, environ...), startDrainer(t, published, environ...)}
	defer func() {
		for _, d := range drainers {
			d.kill()
		}
	}()
	for range kills {
		var victim *drainer
		for range 1 + r.IntN(20) {
			select {
			case victim = <-published:
			case <-time.After(patience):
				t.Fatal("nothing is published")
			}
		}
		victim.kill()
		for i := range drainers {
			if drainers[i] == victim {
				drainers[i] = startDrainer(t, published, environ...)
			}
		}
	}
	stop()
	producing.Wait()
	store, err := postgres.DefaultTable.Open(pool)
	if err != nil {
		t.Fatal(err)
	}
	for late := time.After(patience); ; {
		lag, err := store.Lag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if lag.Waiting == 0 {
			break
		}
		select {
		case <-late:
			t.Fatalf("%d are not published", lag.Waiting)
		case <-time.After(20 * time.Millisecond):
		}
	}
	for key := range keys {
		n := 0
		for path := fmt.Sprintf("/v1/streams/counted-%d?count=1000", key+1); path != ""; {
			a, err := tenant.call(t.Context(), 0, "GET", path, nil)
			var page client.EventList
			if err := errors.Join(err, a.decode(200, &page)); err != nil {
				t.Fatal(err)
			}
			for _, event := range page.Events {
				if n++; string(event.Data) != fmt.Sprint(n) {
					t.Fatalf("event %d of counted-%d is %s", n, key+1, event.Data)
				}
			}
			path = a.next()
		}
		var want int
		if err := pool.QueryRow(t.Context(), "select n from counters where key = $1", fmt.Sprint(key+1)).Scan(&want); err != nil || n != want {
			t.Errorf("counted-%d has %d events, want %d; %v", key+1, n, want, err)
		}
	}
}

var errUndone = errors.New("undone")

// count adds 1 to one of the counters, and an event that says so; now and then it undoes both.
func count(ctx context.Context, pool *pgxpool.Pool, choose *rand.Rand, keys int) error {
	key := fmt.Sprint(1 + choose.IntN(keys))
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var n int
		if err := tx.QueryRow(ctx, "update counters set n = n + 1 where key = $1 returning n", key).Scan(&n); err != nil {
			return err
		}
		if err := postgres.Add(ctx, tx, outbox.Event{Topic: "counted", Key: key, Payload: json.RawMessage(fmt.Sprint(n))}); err != nil {
			return err
		}
		if choose.IntN(8) == 0 {
			return errUndone
		}
		return nil
	})
	if errors.Is(err, errUndone) {
		return nil
	}
	return err
}
