package retention

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// start runs a Retention as a process does, told of what changes, and returns how many events it has removed, as it
// does.
func start(t *testing.T, b *bench, config Config) (*Retention, <-chan int64) {
	t.Helper()
	removed := make(chan int64, 1000)
	if config.Store == nil {
		config.Store = b.store.Postgres
	}
	if config.Owns == nil {
		config.Owns = func(domain.TenantID) bool { return true }
	}
	config.Holders, config.Log, config.Share = append(config.Holders, b.store), slog.New(slog.DiscardHandler), 1
	config.Observer.Removed = func(events int64) { removed <- events }
	r := New(config)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{r.Run, func(ctx context.Context) error { return b.store.ListenRetention(ctx, r.Notice) }} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return r, removed
}

// wait waits until so many events were removed.
func wait(t *testing.T, removed <-chan int64, events int64) {
	t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for events > 0 {
		select {
		case n := <-removed:
			events -= n
		case <-late.C:
			t.Fatalf("%d events are not removed", events)
		}
	}
	if events < 0 {
		t.Fatalf("%d events too many were removed", -events)
	}
}

// A policy runs when it is put, when it is changed, and when it is asked for; by itself what is due is looked for again
// and again. A process leaves others' tenants alone, and takes them over when they are its own.
func TestWhenPoliciesRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant, others := b.tenant(t), b.tenant(t)
	var mu sync.Mutex
	owned := map[domain.TenantID]bool{tenant: true}
	r, removed := start(t, b, Config{Grace: -1, Every: time.Hour, Owns: func(tenant domain.TenantID) bool {
		mu.Lock()
		defer mu.Unlock()
		return owned[tenant]
	}})
	b.append(t, tenant, "order-1", 10)
	b.append(t, others, "order-1", 10)
	b.put(t, others, everything("order"))
	b.put(t, tenant, Policy{Category: "order", MaxCount: 6})
	wait(t, removed, 4)
	b.put(t, tenant, Policy{Category: "order", MaxCount: 3})
	wait(t, removed, 3)
	b.append(t, tenant, "order-1", 2)
	asked, err := r.Ask(t.Context(), tenant, "order")
	if err != nil || asked.AskedAt.IsZero() {
		t.Fatalf("%+v, %v", asked, err)
	}
	wait(t, removed, 2)
	if _, err := r.Ask(t.Context(), domain.NewTenantID(), "order"); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("asked for what does not exist: %v", err)
	}
	wantLeft(t, b, others, "order", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	mu.Lock()
	owned[others] = true
	mu.Unlock()
	r.Rebalance()
	wait(t, removed, 9)

	mu.Lock()
	owned[others] = false // a late run of the first process must not remove what the second one is to find
	mu.Unlock()
	_, again := start(t, b, Config{Grace: -1, Every: 100 * time.Millisecond, Owns: func(t domain.TenantID) bool { return t == others }})
	b.append(t, others, "order-1", 5)
	wait(t, again, 5)
}

// A hold that is released between a run's announcement and its second look at the holds leaves events to the next run,
// which comes even if nothing is appended.
func TestAHoldIsReleasedAfterTheAnnouncement(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.append(t, tenant, "order-1", 10)
	held := &stub{}
	held.set(domain.RetentionHold{Kind: domain.HoldProjection, Name: "orders", Position: 4})
	p := b.process(t)
	p.afterAnnouncement(func() { held.set() })
	b.put(t, tenant, everything("order"))
	r := b.retention(p.Tables, held)
	out, err := r.runOnce(t.Context(), tenant, "order")
	if err != nil || out.idle {
		t.Errorf("the run ends with %+v, %v", out, err)
	}
	wantLeft(t, b, tenant, "order", 5, 6, 7, 8, 9, 10)
	if out, err = r.runOnce(t.Context(), tenant, "order"); err != nil || !out.idle {
		t.Errorf("the next run ends with %+v, %v", out, err)
	}
	wantLeft(t, b, tenant, "order", 10)
}

// What was asked for shows until it is done, also where the first try fails: an error shows with the policy, and the
// next run takes it away.
func TestAFailedRunIsReported(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.append(t, tenant, "order-1", 3)
	b.put(t, tenant, everything("order"))
	if _, err := b.store.AskRetention(t.Context(), tenant, "order"); err != nil {
		t.Fatal(err)
	}
	broken := &failing{}
	r := b.retention(nil, broken)
	broken.err = domain.Errorf(domain.CodeUnavailable, "", "the database of documents is on fire")
	if _, err := r.runOnce(t.Context(), tenant, "order"); !domain.IsCode(err, domain.CodeUnavailable) {
		t.Fatal(err)
	}
	if status := b.status(t, tenant, "order"); status.LastError != "the database of documents is on fire" || status.AskedAt.IsZero() || status.LastRunAt.IsZero() {
		t.Errorf("%+v", status)
	}
	wantLeft(t, b, tenant, "order", 1, 2, 3)
	broken.err = errors.New("password of the database")
	if _, err := r.runOnce(t.Context(), tenant, "order"); err == nil {
		t.Fatal("it did not fail")
	}
	if status := b.status(t, tenant, "order"); status.LastError != "an error that is in the service's log" {
		t.Errorf("%+v", status)
	}
	broken.err = nil
	runAll(t, r, tenant, "order")
	if status := b.status(t, tenant, "order"); status.LastError != "" || !status.AskedAt.IsZero() {
		t.Errorf("%+v", status)
	}
	wantLeft(t, b, tenant, "order", 3)
}

// failing is a holder that cannot answer.
type failing struct{ err error }

func (f *failing) RetentionHolds(context.Context, domain.TenantID, string) ([]domain.RetentionHold, error) {
	return nil, f.err
}

// A policy of one tenant that hangs for a long time does not delay the policies of others.
func TestAHangingPolicyDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	slow, other := b.tenant(t), b.tenant(t)
	for _, tenant := range []domain.TenantID{slow, other} {
		b.append(t, tenant, "order-1", 3)
		b.put(t, tenant, everything("order"))
	}
	hang := hanging{slow}
	_, removed := start(t, b, Config{Grace: -1, Every: time.Hour, Holders: []Holder{hang}})
	wait(t, removed, 2)
	wantLeft(t, b, slow, "order", 1, 2, 3)
}

type hanging struct{ tenant domain.TenantID }

func (h hanging) RetentionHolds(ctx context.Context, tenant domain.TenantID, _ string) ([]domain.RetentionHold, error) {
	if tenant == h.tenant {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, nil
}

// A turn ends after its time, and the next one continues from there; nothing is announced between them.
func TestTurns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.append(t, tenant, "order-1", 30)
	b.put(t, tenant, everything("order"))
	r := New(Config{
		Store: b.store.Postgres, Owns: func(domain.TenantID) bool { return true }, Grace: -1, Share: 1, Slice: 1, Turn: time.Nanosecond,
	})
	out, err := r.runOnce(t.Context(), tenant, "order")
	if err != nil || !out.more {
		t.Fatalf("%+v, %v", out, err)
	}
	r.config.Turn = time.Minute
	runAll(t, r, tenant, "order")
	wantLeft(t, b, tenant, "order", 30)
	if floor := b.status(t, tenant, "order").Floor; floor.AnnouncedTo != 29 || floor.Removed != 29 {
		t.Errorf("%+v", floor)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pace{share: 0.1}
		began := time.Now()
		var all sync.WaitGroup
		for range 2 { // together
			all.Go(func() {
				for range 5 {
					must(t, p.run(t.Context(), func() error {
						<-time.After(10 * time.Millisecond) // by the test's own clock
						return nil
					}))
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took < 750*time.Millisecond || took > time.Second {
			t.Errorf("100 ms of work took %s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.run(ctx, func() error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("cut off: %v", err)
		}
	})
}
