package aggregate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/upcasting"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// watched has the database of a process behind a network. It watches what the process reads from streams, and reports
// the snapshots that are put.
type watched struct {
	*Tables
	db        pgtest.DB
	events    atomic.Int64
	lowest    atomic.Int64 // the lowest version that a read of a stream has started at
	snapshots chan Snapshot
}

// watch counts events and reports snapshots in the network. Snapshots of streams whose key is "broken" fail.
func (w *watched) watch(t testing.TB, network *pgtest.Network) {
	t.Helper()
	w.lowest.Store(math.MaxInt64)
	network.On(pgtest.Fault{Statement: "and e.stream_id = $2::text and e.stream_version", After: func(s *pgtest.Statement) bool {
		w.events.Add(int64(s.Rows))
		for from := pg.Int8Value(s.Params[2]); ; {
			if was := w.lowest.Load(); from >= was || w.lowest.CompareAndSwap(was, from) {
				return true
			}
		}
	}})
	network.On(pgtest.Fault{Statement: "insert into snapshots as s", Ended: func(s *pgtest.Statement) bool {
		w.snapshots <- Snapshot{Stream: string(s.Params[1]), Tag: string(s.Params[2]), Version: pg.Int8Value(s.Params[3]), State: bytes.Clone(s.Params[4])}
		return true
	}})
	_, err := w.db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(),
		"alter table manifold.snapshots add constraint not_broken check (stream_id not like '%-broken')")
	must(t, err)
}

func code(err error) domain.Code {
	if problem, ok := errors.AsType[*domain.Error](err); ok {
		return problem.Code
	}
	return ""
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begin opens a database with one tenant and States over it. With run, snapshots are taken in the background.
func begin(t testing.TB, run bool) (*watched, *States, domain.TenantID) {
	t.Helper()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	ctx := context.Background()
	s, err := openTables(ctx, pg.Config{
		AppURL: network.URL(t, db, migrations.RoleApp), SystemURL: network.URL(t, db, migrations.RoleSystem), RetentionURL: network.URL(t, db, migrations.RoleRetention),
		MaxConns: 8, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	t.Cleanup(s.Close)
	w := &watched{Tables: s, db: db, snapshots: make(chan Snapshot, 1000)}
	w.watch(t, network)
	upcasters, err := upcasting.New(s.Registry, s.Log, nil)
	must(t, err)
	states, err := New(Config{Store: s.Postgres, Events: s.Log, Upcasters: upcasters, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	tenant := domain.NewTenantID()
	must(t, s.CreateTenant(ctx, domain.Tenant{ID: tenant, Name: tenant.String()}))
	if run {
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() {
			if err := states.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { cancel(); running.Wait() })
	}
	return w, states, tenant
}

// add appends events with the numbers from to upTo as data, and reports them to States.
func add(t rapid.TB, s *watched, states *States, tenant domain.TenantID, stream string, from, upTo int) {
	t.Helper()
	for from <= upTo {
		last := min(upTo, from+domain.MaxRequestEvents-1)
		var events []domain.NewEvent
		for n := from; n <= last; n++ {
			events = append(events, domain.NewEvent{Type: "Added", Data: json.RawMessage(fmt.Sprintf(`{"n": %d}`, n))})
		}
		appended, err := s.Append(context.Background(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: events}}})
		must(t, err)
		states.Appended(tenant, appended)
		from = last + 1
	}
}

// adding adds up the numbers, and counts them.
func adding(category string) Definition {
	return Definition{
		Category: category, Initial: json.RawMessage(`{"sum": 0, "count": 0}`),
		On: map[string]string{"Added": `{"sum": state.sum + event.data.n, "count": state.count + 1}`},
	}
}

// sumTo is the state after the events 1 to n.
func sumTo(n int) string { return fmt.Sprintf(`{"count":%d,"sum":%d}`, n, n*(n+1)/2) }

func wantState(t rapid.TB, got State, version int64, want string) {
	t.Helper()
	if got.Version != version || string(got.Data) != want {
		t.Fatalf("got version %d, %s; want version %d, %s", got.Version, got.Data, version, want)
	}
}
