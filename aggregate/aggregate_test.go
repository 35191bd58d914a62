package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// watched is the store; it counts the events that it returns, and reports the snapshots that are put.
type watched struct {
	*Tables
	db        pgtest.DB
	events    atomic.Int64
	snapshots chan domain.Snapshot
	broken    string // the store cannot keep snapshots of this stream
}

func (w *watched) StreamSlice(ctx context.Context, tenant domain.TenantID, stream string, query domain.StreamQuery) (domain.StreamSlice, error) {
	slice, err := w.Tables.StreamSlice(ctx, tenant, stream, query)
	w.events.Add(int64(len(slice.Events)))
	return slice, err
}

func (w *watched) PutSnapshot(ctx context.Context, tenant domain.TenantID, snapshot domain.Snapshot) error {
	if snapshot.Stream == w.broken {
		return errors.New("it is broken")
	}
	if err := w.Tables.PutSnapshot(ctx, tenant, snapshot); err != nil {
		return err
	}
	select {
	case w.snapshots <- snapshot:
	default:
	}
	return nil
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

// begin opens a store with one tenant and States over it. With run, snapshots are taken in the background.
func begin(t testing.TB, run bool) (*watched, *States, domain.TenantID) {
	t.Helper()
	db := pgtest.Database(t)
	ctx := context.Background()
	s, err := openTables(ctx, pg.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns: 8, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	t.Cleanup(s.Close)
	w := &watched{Tables: s, db: db, snapshots: make(chan domain.Snapshot, 1000)}
	upcasters, err := upcasting.New(s)
	must(t, err)
	states, err := New(Config{Store: w, Upcasters: upcasters, Log: slog.New(slog.DiscardHandler)})
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

// add appends events with the numbers from to upTo as data, and tells States.
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

// adding sums the numbers up, and counts.
func adding(category string) domain.Aggregate {
	return domain.Aggregate{
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
