package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// accounts are rules of the aggregate `account`. Each is the fold of a different set of types.
var accounts = []folding.AggregateRules{
	{
		Initial: json.RawMessage(`{"n": 0, "seen": []}`),
		On:      map[string]string{"A": `merge(state, {"n": state.n + event.data.n, "seen": state.seen + [event.version]})`, "B": "null"},
	},
	{On: map[string]string{"A": `{"last": event.position, "n": state.?n.orValue(0.1) / 3.0 + event.data.n}`}},
	{On: map[string]string{"B": "event.version % 3 == 0 ? null : merge(state, {'b': event.data})", "*": `merge(state, {event.type: event.position})`}},
	{On: map[string]string{"A": `merge(state, {"tags": event.tags})`}}, // no seeds: tags may change
}

// account returns the projection of the aggregate's states, by the rules of accounts with that index.
func account(t rapid.TB, rules int) domain.Definition {
	definition, err := folding.FromAggregate(domain.Definition{Name: "p", Aggregate: "account"}, accounts[rules])
	if err != nil {
		t.Fatal(err)
	}
	return folding.WithDefaults(definition)
}

// ledger is the bench with aggregates.
type ledger struct {
	bench
	states    *aggregate.States
	upcasters *upcasting.Upcasters
}

func newLedger(t testing.TB) ledger {
	t.Helper()
	b := newBench(t)
	upcasters, err := upcasting.New(b.store.Registry, b.store.Log, nil)
	if err != nil {
		t.Fatal(err)
	}
	states, err := aggregate.New(aggregate.Config{Store: b.store.AggregateTables, Events: b.store.Log, Upcasters: upcasters, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return ledger{b, states, upcasters}
}

func (l ledger) put(t rapid.TB, ctx context.Context, tenant domain.TenantID, rules int) {
	r := accounts[rules]
	if err := l.states.Put(ctx, tenant, aggregate.Definition{Category: "account", Initial: r.Initial, On: r.On}); err != nil {
		t.Fatal(err)
	}
}

// replay returns a replay of a new build, which begins documents from seeds.
func (l ledger) replay(t rapid.TB, tenant domain.TenantID, number int64, definition domain.Definition) *projection.Replay {
	fold, err := folding.Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	return &projection.Replay{
		Driver: l.driver, Build: domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: number, Database: "default"},
		Tenant: tenant, Fold: fold.WithUpcasters(l.upcasters), Unread: true, Limits: projection.Limits{Events: 7, Bytes: 1 << 20, DocumentBytes: 2_000},
		Registry: l.store.Registry, Seeds: l.states.Seeds,
	}
}

// Whatever the snapshots are, and whatever the log has lost: documents that begin from snapshots equal those that are
// folded from the log alone, with their versions.
func TestSeededDocumentsEqualFoldedOnes(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	super := l.db.Pool(t, pgtest.RoleSuperuser, 1)
	var number, seeded, unseeded atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		ctx, tenant := t.Context(), l.tenant(t)
		rules := rapid.SampledFrom([]int{0, 1, 2, 0, 1, 2, 3}).Draw(rt, "rules")
		l.put(rt, ctx, tenant, rules)
		stream := rapid.SampledFrom([]string{"account-1", "account-2", "account-3", "account-30", "account-x", "account.b-1", "accounts-1", "other-1"})
		steps := rapid.IntRange(5, 40).Draw(rt, "steps")
		upcasts, head := false, int64(0)
		for range steps {
			switch step := rapid.IntRange(0, 59).Draw(rt, "step"); {
			case step%2 == 0 && step < 50:
				some := domain.StreamAppend{Stream: stream.Draw(rt, "stream"), Expected: domain.Any}
				for range rapid.IntRange(1, 9).Draw(rt, "events") {
					eventType := rapid.SampledFrom([]string{"A", "A", "A", "B", "C"}).Draw(rt, "type")
					some.Events = append(some.Events, domain.NewEvent{Type: eventType, Data: json.RawMessage(fmt.Sprintf(`{"n": %d}`, rapid.IntRange(-9, 9).Draw(rt, "n")))})
				}
				appended, err := l.store.Append(ctx, tenant, domain.Append{Streams: []domain.StreamAppend{some}})
				if err != nil {
					rt.Fatal(err)
				}
				head = appended.Position
			case step < 56:
				_, err := l.states.TakeSnapshot(ctx, tenant, stream.Draw(rt, "of"), rapid.Bool().Draw(rt, "lossy"))
				if problem := (*domain.Error)(nil); err != nil && !errors.As(err, &problem) {
					rt.Fatal(err)
				}
			case step == 56 && head > 0:
				upTo := rapid.Int64Range(1, head).Draw(rt, "removed to")
				l.db.Remove(t, tenant, "account", upTo, rapid.Int64Range(1, upTo).Draw(rt, "spared"))
			case step == 57 && head > 0:
				_, err := super.Exec(ctx, "update manifold.events set gap = 'u', gap_at = now() where tenant_id = $1 and position = $2", tenant.String(), rapid.Int64Range(1, head).Draw(rt, "gap"))
				if err != nil {
					rt.Fatal(err)
				}
			case step == 58 && !upcasts:
				upcasts = true
				if _, _, err := l.upcasters.Put(ctx, domain.Upcaster{Owner: tenant, Type: "A", Version: 1, Expression: `{"n": event.data.n + 100}`}); err != nil {
					rt.Fatal(err)
				}
			case step == 59:
				l.put(rt, ctx, tenant, rapid.IntRange(0, len(accounts)-1).Draw(rt, "new rules"))
			}
		}
		if head == 0 {
			return
		}
		definition := account(rt, rules)
		to := head - rapid.Int64Range(0, head-1).Draw(rt, "after the fill")
		folded := l.replay(rt, tenant, number.Add(1), definition)
		folded.Seeds = nil
		filled := l.seededBuild(rt, tenant, number.Add(1), definition)
		for _, upTo := range []int64{to, head} {
			if err := folded.Run(ctx, l.store, upTo); err != nil {
				rt.Fatal(err)
			}
			filled.run(rt, upTo)
			want := stored(rt, t, l.bench, folded.Build, tenant)
			if upTo == head && !upcasts {
				mustEqual(rt, want, fromScratch(rt, definition, l.log(t, tenant)))
			}
			mustEqual(rt, stored(rt, t, l.bench, filled.build, tenant), want)
		}
		fill := filled.fill
		seeded.Add(fill.Seeded)
		if fill.Seeded == 0 {
			unseeded.Add(1)
		}
		if rules == 3 && fill.Seeded > 0 {
			rt.Fatal("rules that read tags have seeds")
		}
	})
	if seeded.Load() == 0 || unseeded.Load() == 0 {
		t.Errorf("%d documents began from seeds, and %d logs had none", seeded.Load(), unseeded.Load())
	}
}

// seededBuild is a build made from seeds. A save fails now and then, and pages of seeds are divided.
type seededBuild struct {
	build domain.Build
	fill  domain.Fill
	begin func() *projection.Replay
	log   projection.Log
}

func (l ledger) seededBuild(rt *rapid.T, tenant domain.TenantID, number int64, definition domain.Definition) *seededBuild {
	left := rapid.IntRange(0, 10).Draw(rt, "saves before the interruption")
	driver := &faulty{Driver: l.driver}
	driver.rule(func(call string) verdict {
		if call == "save" {
			if left--; left == 0 {
				return failsAfter
			}
		}
		return works
	})
	f := &seededBuild{build: l.replay(rt, tenant, number, definition).Build, log: l.store}
	f.begin = func() *projection.Replay {
		replay := l.replay(rt, tenant, number, definition)
		replay.Driver = driver
		replay.Fill, replay.Filled = f.fill, func(_ context.Context, fill domain.Fill) error { f.fill = fill; return nil }
		replay.Seeds = func(ctx context.Context, tenant domain.TenantID, q domain.SeedQuery) (domain.SeedPage, error) {
			page, err := l.states.Seeds(ctx, tenant, q)
			if n := len(page.Seeds); n > 1 {
				n = rapid.IntRange(1, n).Draw(rt, "seeds of a page")
				page.Seeds, page.UpTo = page.Seeds[:n], page.Seeds[n-1].Stream
			}
			return page, err
		}
		return replay
	}
	return f
}

func (f *seededBuild) run(t *rapid.T, to int64) {
	for {
		replay := f.begin()
		err := replay.Run(t.Context(), f.log, to)
		if errors.Is(err, errInjected) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if replay.Position() != to {
			t.Fatalf("the position is %d, want %d", replay.Position(), to)
		}
		return
	}
}
