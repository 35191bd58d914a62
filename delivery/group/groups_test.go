package group_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

// groupBench is a separate database for a test, with the groups of one process.
type groupBench struct {
	db     pgtest.DB
	store  *tables.Tables
	groups *group.Groups
	tenant domain.TenantID
}

func newGroupBench(t testing.TB) groupBench {
	t.Helper()
	b := groupBench{db: pgtest.Database(t), tenant: domain.NewTenantID()}
	b.store = b.open(t)
	if err := b.store.CreateTenant(t.Context(), domain.Tenant{ID: b.tenant, Name: b.tenant.String()}); err != nil {
		t.Fatal(err)
	}
	b.groups, _ = startGroups(t, b.store, group.Observer{})
	return b
}

// open opens another store on the database, as another process does.
func (b groupBench) open(t testing.TB) *tables.Tables {
	t.Helper()
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: b.db.URL(migrations.RoleApp), SystemURL: b.db.URL(migrations.RoleSystem), RetentionURL: b.db.URL(migrations.RoleRetention),
		MaxConns: 8, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// through opens the tables as another process does, behind a separate network.
func (b groupBench) through(t testing.TB) (*tables.Tables, *pgtest.Network) {
	t.Helper()
	network := pgtest.NewNetwork(t, b.db)
	return openThrough(t, b.db, network), network
}

// groupsOf returns the groups of a process, which are not running.
func groupsOf(s *tables.Tables) *group.Groups {
	return group.New(group.Config{Store: s.GroupTables, Events: s.Log, Log: quiet})
}

// count counts a statement when it is sent.
func count(network *pgtest.Network, statement string, sent *atomic.Int64) {
	network.Before(statement, func() bool {
		sent.Add(1)
		return true
	})
}

// startGroups runs the groups of one process until the test ends or stop is called.
func startGroups(t testing.TB, s *tables.Tables, observer group.Observer) (groups *group.Groups, stop func()) {
	t.Helper()
	groups = group.New(group.Config{Store: s.GroupTables, Events: s.Log, Log: quiet, Observer: observer})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 3)
	run := func(do func() error) {
		go func() {
			defer func() { done <- struct{}{} }()
			if err := do(); err != nil {
				t.Error(err)
			}
		}()
	}
	run(func() error { return groups.Run(ctx) })
	run(func() error { return s.Listen(ctx, groups.Wake) })
	run(func() error { return s.ListenGroups(ctx, groups.Notice) })
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		for range cap(done) {
			<-done
		}
	}
	t.Cleanup(stop)
	return groups, stop
}

// append appends an event to each named stream, and returns the position of the last one.
func (b groupBench) append(t testing.TB, streams ...string) int64 {
	t.Helper()
	request := domain.Append{}
	for i, stream := range streams {
		request.Streams = append(request.Streams, domain.StreamAppend{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{
			{Type: "Happened", Data: json.RawMessage(fmt.Sprintf(`{"n": %d}`, i))},
		}})
	}
	appended, err := b.store.Append(t.Context(), b.tenant, request)
	if err != nil {
		t.Fatal(err)
	}
	return appended.Position
}

func (b groupBench) put(t testing.TB, name string, definition domain.GroupDefinition) domain.GroupStatus {
	t.Helper()
	status, _, err := b.groups.Put(t.Context(), b.tenant, name, definition)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func (b groupBench) status(t testing.TB, name string) domain.PartitionStatus {
	t.Helper()
	status, err := b.groups.Get(t.Context(), b.tenant, name)
	if err != nil {
		t.Fatal(err)
	}
	return status.Partitions[0]
}

// receive receives up to batch events, without waiting.
func (b groupBench) receive(t testing.TB, name string, batch int) []domain.Delivery {
	t.Helper()
	return b.wait(t, name, batch, 0)
}

func (b groupBench) wait(t testing.TB, name string, batch int, wait time.Duration) []domain.Delivery {
	t.Helper()
	deliveries, err := b.groups.Receive(t.Context(), b.tenant, name, group.Receive{Batch: batch, Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	return deliveries
}

// attempts names deliveries in an answer.
func attempts(deliveries ...domain.Delivery) []domain.Attempt {
	all := make([]domain.Attempt, len(deliveries))
	for i := range deliveries {
		all[i] = domain.Attempt{EventID: deliveries[i].Event.ID, Attempt: deliveries[i].Attempt}
	}
	return all
}

// positions returns the positions of the deliveries' events.
func positions(deliveries []domain.Delivery) []int64 {
	all := make([]int64, len(deliveries))
	for i := range deliveries {
		all[i] = deliveries[i].Event.Position
	}
	return all
}

func mustPositions(t testing.TB, deliveries []domain.Delivery, want ...int64) {
	t.Helper()
	if got := positions(deliveries); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("events at %d were delivered; want %d", got, want)
	}
}

func mustOutcomes(t testing.TB, want domain.Outcome) func([]domain.Outcome, error) {
	return func(got []domain.Outcome, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i] != want {
				t.Fatalf("answer %d is %s; want %s", i, got[i], want)
			}
		}
	}
}

func TestEventsAreDeliveredOnceAndAcked(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "order-1", "other-1", "order-3")
	b.put(t, "g", domain.GroupDefinition{Selection: domain.Selection{Categories: []string{"order"}}})
	first := b.receive(t, "g", 2)
	mustPositions(t, first, 1, 2)
	second := b.receive(t, "g", 10)
	mustPositions(t, second, 3, 5)
	mustPositions(t, b.receive(t, "g", 10))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(second...)))
	if s := b.status(t, "g"); s.Checkpoint != 0 || s.ReadTo != 5 || s.Oldest != 1 || s.InFlight != 2 {
		t.Fatalf("with the first two in flight, the status is %+v", s)
	}
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(first...)))
	mustOutcomes(t, domain.OutcomeNotInFlight)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(first...)))
	if s := b.status(t, "g"); s.Checkpoint != 5 || s.Oldest != 0 || s.InFlight != 0 {
		t.Fatalf("with everything settled, the status is %+v", s)
	}
}
