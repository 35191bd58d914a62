package reactor_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
)

// A projection may fold more types than a group's selection can name.
func TestAProjectionOfManyTypes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	called := make(chan string, 10)
	p, _ := b.start(t, reactor.Reactor{
		Definition: reactor.Definition{Name: "many", Projection: "sums"},
		Handler: func(_ context.Context, _ domain.TenantID, event reactor.Event) error {
			called <- event.DocumentID
			return nil
		},
	})
	tenant := b.tenant(t)
	definition := sums("sums", domain.ModeAsync)
	for i := range 150 {
		definition.On[fmt.Sprintf("Rare%d", i)] = `doc`
	}
	p.create(t, tenant, definition)
	b.append(t, tenant, "x-1", "Unknown", `{"k": "b", "n": 1}`)
	position := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	p.awaitChanges(t, tenant, "sums", fmt.Sprintf(`a %d {"sum": 1}`, position))
	if id := <-called; id != "a" {
		t.Errorf("it was called for %q", id)
	}
}

// A reactor has no lag if its projection has nothing left to fold, even if the newest events do not belong to the
// projection.
func TestUnselectedEventsLeaveNoLag(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var called atomic.Int64
	p, _ := b.start(t, reactor.Reactor{
		Definition: reactor.Definition{Name: "idle", Projection: "sums"},
		Handler:    func(context.Context, domain.TenantID, reactor.Event) error { called.Add(1); return nil },
	})
	byType, byQuery := sums("sums", domain.ModeAsync), sums("sums", domain.ModeAsync)
	byQuery.On["Unknown"], byQuery.Source.Query.Items = "doc", domain.Query{{Types: []string{"Add"}}}
	for _, definition := range []domain.Definition{byType, byQuery} {
		tenant := b.tenant(t)
		p.create(t, tenant, definition)
		b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
		others := b.append(t, tenant, "x-1", "Unknown", `{"k": "a", "n": 1}`)
		until(t, "the end of the lag", func() bool {
			status, err := p.groups.Get(t.Context(), tenant, domain.ServiceGroup(domain.ServiceReactor, "idle"))
			return err == nil && len(status.Partitions) == 1 && status.Partitions[0].Checkpoint >= others
		})
	}
	if n := called.Load(); n != 2 {
		t.Errorf("it was called %d times", n)
	}
}

// Events selected by a new definition are delivered from its swap on, even while events keep coming.
func TestAddedTypeDuringAppends(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var mu sync.Mutex
	called := make(map[string]int)
	p, _ := b.start(t, reactor.Reactor{
		Definition: reactor.Definition{Name: "added", Projection: "sums"},
		Handler: func(_ context.Context, _ domain.TenantID, event reactor.Event) error {
			mu.Lock()
			defer mu.Unlock()
			called[event.Type]++
			return nil
		},
	})
	tenant := b.tenant(t)
	definition := sums("sums", domain.ModeAsync)
	p.create(t, tenant, definition)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	busy.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			b.append(t, tenant, "x-busy", "Add", `{"k": "busy", "n": 1}`)
			<-tick.C
		}
	})
	calls := func(of string) int {
		mu.Lock()
		defer mu.Unlock()
		return called[of]
	}
	until(t, "the first calls", func() bool { return calls("Add") > 3 })
	definition.On["Other"] = `{"sum": 1000}`
	_, err := p.rebuilds.Deploy(t.Context(), tenant, definition, "test", false)
	must(t, err)
	until(t, "the new definition", func() bool {
		now, err := p.catalog.Live(t.Context(), tenant, "sums")
		must(t, err)
		return now.Definition.On["Other"] != ""
	})
	position := b.append(t, tenant, "x-1", "Other", `{"k": "other", "n": 1}`)
	until(t, "the call for the new type", func() bool { return calls("Other") == 1 })
	until(t, "the change by the new type", func() bool {
		for _, change := range b.published(t, tenant, "sums") {
			if change == fmt.Sprintf(`other %d {"sum": 1000}`, position) {
				return true
			}
		}
		return false
	})
}
