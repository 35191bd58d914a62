package egresstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// Server is a broker that a test can kill. Its methods are called by one goroutine at a time.
type Server interface {
	Kill(t testing.TB)  // unacknowledged messages may be lost
	Start(t testing.TB) // starts it again with what it has stored
	// Open returns a client of the server, as each process has one. Config returns the rest of an egress's settings.
	Open(t testing.TB) egress.Broker
	Config() egress.Config
	// Stored returns everything that is stored, in order as far as the server keeps one.
	Stored(t testing.TB) []Stored
}

// Stored is a message as the server stores it.
type Stored struct {
	ID, Topic  string
	Attributes map[string]string // of the CloudEvent, by name
	Data       string
}

// TestKills publishes the events of some tenants from several processes. It kills some of the processes, and also the
// broker. No event may be lost, each stream's events must arrive in order, and repeated events must have the same id.
func TestKills(t *testing.T, server Server) {
	const processes, lives, events, streams = 2, 3, 800, 12
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	b := NewBench(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	appended := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		defer close(appended)
		random := rand.New(rand.NewPCG(seed, 0))
		for n := 0; n < events; {
			tenant := b.Tenants[random.IntN(len(b.Tenants))]
			var names []string
			for range 1 + random.IntN(20) {
				names = append(names, fmt.Sprintf("order-%d", random.IntN(streams)))
			}
			b.Append(t, tenant, append(names, "other-1")...)
			n += len(names)
			Pause(t)
		}
	})
	var buried sync.Mutex
	var started []*Process
	var dead sync.Map // labels of killed processes: the others take over from them, as in the service
	done := make(chan struct{})
	for process := range processes {
		var networks [lives]*pgtest.Network
		var mortal [lives]Bench
		for life := range lives {
			networks[life], mortal[life] = pgtest.NewNetwork(t, b.DB), b
			mortal[life].Store = open(t, func(role migrations.Role) string { return networks[life].URL(t, b.DB, role) })
		}
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(100+process)))
			for life := range lives {
				if saves := 3 + random.IntN(20); life < lives-1 {
					networks[life].CutAt("manifold_save_ledger", saves)
				}
				config := server.Config()
				config.Label, config.Died = fmt.Sprintf("process %d, life %d", process, life), func(label string) bool {
					_, died := dead.Load(label)
					return died
				}
				config.Name, config.Selection = "orders", domain.Selection{Categories: []string{"order"}}
				config.Start, config.Batch, config.Stay = true, 1+random.IntN(60), 50*time.Millisecond
				config.PauseMin, config.PauseMax = 50*time.Millisecond, 500*time.Millisecond
				config.Broker = server.Open(t)
				p := mortal[life].Start(t, config)
				buried.Lock()
				started = append(started, p)
				buried.Unlock()
				select {
				case <-networks[life].Dead():
				case <-done:
				case <-ctx.Done():
				}
				dead.Store(config.Label, true)
				all.Go(func() { // it still looks for what became of its last save
					p.Stop()
					config.Broker.Close()
				})
				buried.Lock()
				b.Bury(t)
				buried.Unlock()
			}
		})
	}
	for kills := 0; kills < 2 || !closed(appended); kills++ {
		pauses(t, 10)
		server.Kill(t)
		pauses(t, 5)
		server.Start(t)
	}
	settled := func() bool {
		for _, tenant := range b.Tenants {
			status, err := b.Store.GroupStatus(ctx, tenant, Group("orders"))
			if err != nil || status.Partitions[0].Checkpoint < status.Head || status.Partitions[0].Oldest > 0 {
				return false
			}
		}
		return true
	}
	for !settled() && ctx.Err() == nil {
		Pause(t)
		buried.Lock()
		for _, p := range started { // as after a change of the list of processes
			p.Dispatcher.Rebalance()
		}
		buried.Unlock()
	}
	close(done)
	all.Wait()
	if ctx.Err() != nil {
		for _, tenant := range b.Tenants {
			status, err := b.Store.GroupStatus(context.Background(), tenant, Group("orders"))
			t.Logf("of %d: %+v, %v", status.Head, status.Partitions, err)
		}
		t.Fatal("it does not come to an end")
	}
	b.Check(t, server.Stored(t), "orders", "order")
}

func pauses(t testing.TB, n int) {
	for range n {
		Pause(t)
	}
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Check reports what is wrong with the events that a server has stored of one category, for all tenants.
func (b Bench) Check(t testing.TB, stored []Stored, name, category string) {
	t.Helper()
	versions := make(map[string]int64) // newest version received, by tenant and stream
	first := make(map[string]string)   // id by tenant, stream and version
	repeats := 0
	for _, m := range stored {
		tenant, stream := m.Attributes[egress.AttributeTenant], m.Attributes["manifoldstream"]
		var version int64
		if _, err := fmt.Sscan(m.Attributes["manifoldversion"], &version); err != nil {
			t.Fatalf("a message says no version: %+v", m)
		}
		if want := name + "/" + tenant + "/" + m.Attributes["id"]; m.ID != want {
			t.Errorf("the id of a message is %q; want %q", m.ID, want)
		}
		place := fmt.Sprintf("%s %s@%d", tenant, stream, version)
		if id, again := first[place]; again {
			repeats++
			if id != m.ID {
				t.Errorf("%s came as %s, and again as %s", place, id, m.ID)
			}
			continue
		}
		first[place] = m.ID
		of := tenant + " " + stream
		if before := versions[of]; version != before+1 {
			t.Errorf("%s came after version %d", place, before)
		}
		versions[of] = max(versions[of], version)
	}
	count := 0
	for _, tenant := range b.Tenants {
		log, err := b.Store.ReadLog(context.Background(), tenant, domain.LogQuery{From: 1, Limit: 100_000, Categories: []string{category}})
		if err != nil {
			t.Fatal(err)
		}
		count += len(log)
		for i := range log {
			place := fmt.Sprintf("%s %s@%d", tenant, log[i].Stream, log[i].Version)
			if _, there := first[place]; !there {
				t.Errorf("%s is lost", place)
			}
		}
	}
	if len(first) != count {
		t.Errorf("%d events came, of %d", len(first), count)
	}
	t.Logf("%d events, and %d repeats", count, repeats)
}
