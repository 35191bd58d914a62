package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// calls records the calls of a reactor.
type calls struct {
	mu   sync.Mutex
	seen map[domain.TenantID]map[int64]int // number of calls by position
	all  int
}

func (c *calls) note(tenant domain.TenantID, position int64) (times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = make(map[domain.TenantID]map[int64]int)
	}
	if c.seen[tenant] == nil {
		c.seen[tenant] = make(map[int64]int)
	}
	c.seen[tenant][position]++
	c.all++
	return c.seen[tenant][position]
}

func (c *calls) of(tenant domain.TenantID) map[int64]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[int64]int)
	for position, times := range c.seen[tenant] {
		all[position] = times
	}
	return all
}

// A reactor to a projection is called with the document when the document is stored, once for every event, and never by
// a rebuild.
func TestReactorIsCalledAfterTheDocumentIsStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var seen calls
	var p *process
	p, _ = b.start(t, reactor.Reactor{
		Definition: reactor.Definition{Name: "watch", Projection: "sums.shared", From: "start"},
		Handler: func(ctx context.Context, tenant domain.TenantID, event reactor.Event) error {
			seen.note(tenant, event.Position)
			stored, err := p.catalog.Document(ctx, tenant, "sums.shared", event.DocumentID, projection.Freshness{})
			switch {
			case event.Document == nil && err == nil && stored.Version < event.Position:
				t.Errorf("event %d: there is a document of version %d, and none was given", event.Position, stored.Version)
			case event.Document != nil && event.Document.Version < event.Position:
				t.Errorf("event %d: the document is of version %d", event.Position, event.Document.Version)
			case event.Document != nil && err == nil && stored.Version < event.Document.Version:
				t.Errorf("event %d: the document read is of version %d, and the one given of %d", event.Position, stored.Version, event.Document.Version)
			}
			return nil
		},
	})
	definition := sums("sums.shared", domain.ModeAsync)
	definition.PublishChanges = false
	tenants := []domain.TenantID{b.tenant(t), b.tenant(t)}
	b.append(t, tenants[0], "x-1", "Add", `{"k": "early", "n": 1}`)
	p.create(t, domain.Everyone, definition)
	want := make(map[domain.TenantID]int)
	for _, tenant := range tenants {
		for i := range 40 {
			b.append(t, tenant, fmt.Sprintf("x-%d", i%3), "Add", fmt.Sprintf(`{"k": "%d", "n": 1}`, i%5), `{"n": 9}`)
			b.append(t, tenant, "y-1", "Add", `{"k": "0", "n": 1}`) // of a category that the projection does not select
			if i%7 == 0 {
				b.append(t, tenant, "x-1", "Drop", fmt.Sprintf(`{"k": "%d"}`, i%5))
				want[tenant]++
			}
			want[tenant]++
		}
	}
	want[tenants[0]]++
	settled := func() {
		t.Helper()
		for _, tenant := range tenants {
			until(t, "all calls", func() bool { return len(seen.of(tenant)) == want[tenant] })
		}
	}
	settled()
	p.rebuild(t, domain.ProjectionID{Name: "sums.shared"})
	_, err := p.catalog.Reset(t.Context(), domain.Everyone, "sums.shared", "test", true)
	must(t, err)
	for _, tenant := range tenants {
		b.append(t, tenant, "x-1", "Add", `{"k": "behind", "n": 1}`)
		want[tenant]++
	}
	settled()
	for _, tenant := range tenants {
		for position, times := range seen.of(tenant) {
			if times != 1 {
				t.Errorf("the reactor was called %d times for event %d", times, position)
			}
		}
	}
}

// Whatever dies: each event reaches the reactor, even if only its answer was lost.
func TestNoEventIsLostWhenAProcessDies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var seen calls
	hold := make(chan struct{})
	watch := reactor.Reactor{
		Definition: reactor.Definition{Name: "watch", Categories: []string{"x"}, Timeout: time.Nanosecond, Concurrency: 4},
		Handler: func(ctx context.Context, tenant domain.TenantID, event reactor.Event) error {
			seen.note(tenant, event.Position)
			if string(event.Data) == `"slow"` {
				<-hold
			}
			return nil
		},
	}
	one, _ := b.start(t, watch)
	tenant := b.tenant(t)
	for range 10 {
		b.append(t, tenant, "x-1", "Added", `1`, `2`, `3`)
	}
	b.append(t, tenant, "x-1", "Added", `"slow"`)
	until(t, "all calls", func() bool { return len(seen.of(tenant)) == 31 })
	one.network.Cut()
	close(hold)
	for range 10 {
		b.append(t, tenant, "x-1", "Added", `1`, `2`, `3`)
	}
	two, _ := b.start(t, watch)
	until(t, "all calls behind the death", func() bool { return len(seen.of(tenant)) == 61 && seen.of(tenant)[31] > 1 })
	until(t, "all answers", func() bool {
		status, err := two.groups.Get(t.Context(), tenant, "reactor.watch")
		must(t, err)
		return status.Partitions[0].Checkpoint == 61 && status.Partitions[0].InFlight == 0
	})
}

// A failed event is retried and becomes a dead letter, which is replayed after the reactor is repaired. A panic is a
// failure.
func TestFailingReactor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var seen, ended calls
	var mu sync.Mutex
	broken := true
	p, _ := b.start(t, reactor.Reactor{
		Definition: reactor.Definition{Name: "mail", Types: []string{"Bad", "Worse", "Good"}, MaxAttempts: 3, BackoffMin: time.Millisecond, BackoffMax: 2 * time.Millisecond},
		Handler: func(_ context.Context, tenant domain.TenantID, event reactor.Event) error {
			times := seen.note(tenant, event.Position)
			mu.Lock()
			defer mu.Unlock()
			if broken && event.Attempt != times {
				t.Errorf("call %d for event %d is attempt %d", times, event.Position, event.Attempt)
			}
			switch {
			case broken && event.Type == "Bad":
				return errors.New("no connection")
			case broken && event.Type == "Worse":
				panic("what now")
			}
			ended.note(tenant, event.Position)
			return nil
		},
	})
	tenant := b.tenant(t)
	b.append(t, tenant, "x-1", "Bad", `1`)
	b.append(t, tenant, "x-1", "Worse", `1`)
	b.append(t, tenant, "x-1", "Other", `1`)
	b.append(t, tenant, "x-1", "Good", `1`)
	letters := func() (reasons []string) {
		all, err := p.groups.DeadLetters(t.Context(), tenant, "reactor.mail", 0, 10)
		if domain.IsCode(err, domain.CodeNotFound) {
			return nil
		}
		must(t, err)
		for _, letter := range all {
			reasons = append(reasons, letter.Reason)
		}
		return reasons
	}
	until(t, "dead letters", func() bool { return len(letters()) == 2 && len(ended.of(tenant)) == 1 })
	if reasons := letters(); reasons[0] != "no connection" || reasons[1] != "the reactor panicked: what now" {
		t.Errorf("the reasons are %q", reasons)
	}
	if seen := seen.of(tenant); seen[1] != 3 || seen[2] != 3 || seen[4] != 1 || len(seen) != 3 {
		t.Errorf("it was called %v", seen)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	_, err := p.groups.Replay(t.Context(), tenant, "reactor.mail", domain.EventID{})
	must(t, err)
	until(t, "the replay", func() bool { return len(ended.of(tenant)) == 3 && len(letters()) == 0 })
}

// A reactor is called for events after its declaration, also in new logs. Another process uses the same declaration.
func TestReactorBeginsWhenItWasDeclared(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old := b.tenant(t)
	b.append(t, old, "x-1", "Added", `1`, `2`)
	var born, all calls
	counting := func(name, from string, c *calls) reactor.Reactor {
		return reactor.Reactor{
			Definition: reactor.Definition{Name: name, From: from, Query: domain.Query{{Types: []string{"Added"}}}, Filter: "event.data != 3"},
			Handler: func(_ context.Context, tenant domain.TenantID, event reactor.Event) error {
				c.note(tenant, event.Position)
				return nil
			},
		}
	}
	_, stop := b.start(t, counting("born", "", &born), counting("all", "start", &all))
	b.append(t, old, "x-1", "Added", `3`, `4`)
	until(t, "the calls", func() bool { return len(born.of(old)) == 1 && len(all.of(old)) == 3 })
	stop()
	fresh := b.tenant(t)
	b.append(t, fresh, "x-1", "Added", `1`)
	b.append(t, old, "x-1", "Added", `5`)
	b.start(t, counting("born", "", &born), counting("all", "start", &all))
	until(t, "the calls of another process", func() bool {
		return len(born.of(old)) == 2 && len(all.of(old)) == 4 && len(born.of(fresh)) == 1 && len(all.of(fresh)) == 1
	})
	if born.all != 3 || all.all != 5 {
		t.Errorf("there were %d and %d calls", born.all, all.all)
	}
}

// A reactor without categories gets all events of tenants, but audit logs have no tenant to call it for.
func TestReactorsIgnoreAuditLogs(t *testing.T) {
	t.Parallel()
	tenant := domain.NewTenantID()
	reactors, err := reactor.New(reactor.Config{Reactors: []reactor.Reactor{{
		Definition: reactor.Definition{Name: "everything"}, Handler: func(context.Context, domain.TenantID, reactor.Event) error { return nil },
	}}})
	must(t, err)
	for id, want := range map[domain.TenantID]int{tenant: 1, tenant.AuditLog(): 0, domain.Everyone.AuditLog(): 0} {
		if consumers, err := reactors.Consumers(t.Context(), id); err != nil || len(consumers) != want {
			t.Errorf("%s has %d consumers, want %d: %v", id, len(consumers), want, err)
		}
	}
	changes := reactor.NewChanges(reactor.ChangesConfig{}) // it never looks at projections, so others' consumers would wait
	if consumers, err := changes.Consumers(t.Context(), tenant.AuditLog()); err != nil || len(consumers) != 0 {
		t.Errorf("changes have %d consumers: %v", len(consumers), err)
	}
}

func TestInvalidReactors(t *testing.T) {
	t.Parallel()
	handler := func(context.Context, domain.TenantID, reactor.Event) error { return nil }
	for want, r := range map[string]reactor.Reactor{
		`reactor "Mail": name: `: {Definition: reactor.Definition{Name: "Mail"}, Handler: handler},
		"handler: ":              {Definition: reactor.Definition{Name: "mail"}},
		"categories: ":           {Definition: reactor.Definition{Name: "mail", Projection: "p.q", Categories: []string{"x"}}, Handler: handler},
		"projection: ":           {Definition: reactor.Definition{Name: "mail", Projection: "P"}, Handler: handler},
		"from: ":                 {Definition: reactor.Definition{Name: "mail", From: "end"}, Handler: handler},
		"concurrency: ":          {Definition: reactor.Definition{Name: "mail", Concurrency: 257}, Handler: handler},
		"timeout: ":              {Definition: reactor.Definition{Name: "mail", Timeout: time.Hour}, Handler: handler},
		"query.items[0].tags[0]": {Definition: reactor.Definition{Name: "mail", Query: domain.Query{{Tags: []string{""}}}}, Handler: handler},
		"filter":                 {Definition: reactor.Definition{Name: "mail", Filter: "event.strem"}, Handler: handler},
		"maxAttempts: ":          {Definition: reactor.Definition{Name: "mail", MaxAttempts: -1}, Handler: handler},
		"ordering: ":             {Definition: reactor.Definition{Name: "mail", Ordering: "some"}, Handler: handler},
	} {
		if _, err := reactor.New(reactor.Config{Reactors: []reactor.Reactor{r}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", r.Definition, err, want)
		}
	}
	twice := reactor.Reactor{Definition: reactor.Definition{Name: "mail"}, Handler: handler}
	if _, err := reactor.New(reactor.Config{Reactors: []reactor.Reactor{twice, twice}}); err == nil || !strings.Contains(err.Error(), "two reactors") {
		t.Errorf("two of one name: %v", err)
	}
}
