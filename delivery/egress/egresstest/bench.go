package egresstest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

// Quiet is a logger that discards everything.
var Quiet = slog.New(slog.DiscardHandler)

// Bench is a separate database for a test, with some tenants.
type Bench struct {
	DB      pgtest.DB
	Store   *tables.Tables
	Tenants []domain.TenantID
}

// NewBench returns a Bench with this number of tenants.
func NewBench(t testing.TB, tenants int) Bench {
	t.Helper()
	b := Bench{DB: pgtest.Database(t)}
	b.Store = open(t, b.DB.URL)
	for range tenants {
		id := domain.NewTenantID()
		if err := b.Store.CreateTenant(t.Context(), domain.Tenant{ID: id, Name: id.String()}); err != nil {
			t.Fatal(err)
		}
		b.Tenants = append(b.Tenants, id)
	}
	return b
}

// open opens the tables at a URL for each role, until the test ends.
func open(t testing.TB, url func(migrations.Role) string) *tables.Tables {
	t.Helper()
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: url(migrations.RoleApp), SystemURL: url(migrations.RoleSystem), RetentionURL: url(migrations.RoleRetention), MaxConns: 8, Log: Quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Append appends an event to each named stream of a tenant, and returns the position of the last one.
func (b Bench) Append(t testing.TB, tenant domain.TenantID, streams ...string) int64 {
	t.Helper()
	return b.AppendData(t, tenant, `{"total": 7}`, streams...)
}

// AppendData is like Append, with the given data in each event.
func (b Bench) AppendData(t testing.TB, tenant domain.TenantID, data string, streams ...string) int64 {
	t.Helper()
	var request domain.Append
	for _, stream := range streams {
		request.Streams = append(request.Streams, domain.StreamAppend{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{
			{Type: "OrderPlaced", Data: json.RawMessage(data)},
		}})
	}
	appended, err := b.Store.Append(context.Background(), tenant, request)
	if err != nil {
		t.Error(err)
	}
	return appended.Position
}

// Process holds the groups and the egress of one process.
type Process struct {
	Groups     *group.Groups
	Egress     *egress.Egress
	Dispatcher *consume.Dispatcher

	end  context.CancelFunc
	done sync.WaitGroup
	stop sync.Once
}

// Start simulates a process that runs an egress, until the test ends or Stop is called. of has the egress's settings.
func (b Bench) Start(t testing.TB, of egress.Config) *Process {
	t.Helper()
	p := &Process{}
	p.Groups = group.New(group.Config{Store: b.Store.GroupTables, Events: b.Store.Log, Log: Quiet, Changed: func(tenant domain.TenantID, _ string) {
		p.Dispatcher.Notice(tenant)
	}})
	of.Groups, of.Births = p.Groups, b.Store.GroupTables
	var err error
	if p.Egress, err = egress.New(of); err == nil {
		err = p.Egress.Declare(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Dispatcher = consume.New(consume.Config{
		Heads: b.Store.Heads, Sources: []consume.Source{p.Egress}, Owns: of.Owns, Log: Quiet, PauseMin: 50 * time.Millisecond, PauseMax: 500 * time.Millisecond,
	})
	ctx, end := context.WithCancel(context.Background())
	later, endLater := context.WithCancel(context.Background()) // groups accept the last answers
	p.end = end
	run := func(ctx context.Context, what string, do func(context.Context) error) {
		p.done.Go(func() {
			if err := do(ctx); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	run(later, "groups", p.Groups.Run)
	run(ctx, "notices", func(ctx context.Context) error { return b.Store.ListenGroups(ctx, p.Groups.Notice) })
	run(ctx, "heads", func(ctx context.Context) error {
		return b.Store.Listen(ctx, func(head domain.Head) {
			p.Groups.Wake(head)
			p.Dispatcher.Wake(head)
		})
	})
	run(ctx, "consumers", func(ctx context.Context) error {
		defer endLater()
		return p.Dispatcher.Run(ctx)
	})
	t.Cleanup(p.Stop)
	return p
}

// Stop shuts the process down gracefully.
func (p *Process) Stop() {
	p.stop.Do(func() {
		p.end()
		p.done.Wait()
	})
}

// Group returns the name of an egress's groups.
func Group(name string) string { return domain.ServiceGroup(domain.ServiceEgress, name) }

// Until waits until holds returns true, for as long as a test may take. what describes the condition.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to pass: %s", what)
		}
		Pause(t)
	}
}

// Pause waits for a moment, so that others can work.
func Pause(t testing.TB) {
	select {
	case <-t.Context().Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// Bury makes the members of killed processes look dead, as if much time had passed. It affects live members too; they
// notice and join again.
func (b Bench) Bury(t testing.TB) {
	t.Helper()
	super := b.DB.Pool(t, pgtest.RoleSuperuser, 1)
	if _, err := super.Exec(context.Background(), "update manifold.subscription_members set alive_at = alive_at - interval '1 hour'"); err != nil {
		t.Error(fmt.Errorf("bury the members: %w", err))
	}
}
