package projection_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// counts records the numbers that a Replay reports.
type counts struct{ counted, folded, most atomic.Int64 }

func (c *counts) of(r *projection.Replay) *projection.Replay {
	r.Counted = func(events int) { c.most.Store(max(c.most.Load(), c.counted.Add(int64(events)))) }
	r.Folded = func(events, _ int) { c.folded.Add(int64(events)) }
	return r
}

// Events are counted before they are saved. If a save fails or is too large, they are not counted twice: in the end,
// each event has been counted once.
func TestCountedEqualsFolded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for i := range 40 {
		b.append(t, tenant, fmt.Sprintf("x-%d", i%3), "A", `{}`)
	}
	definition := folding.WithDefaults(domain.Definition{Name: "p", On: map[string]string{"A": "{'n': doc.?n.orValue(0) + 1}"}, OnError: domain.OnErrorPark})
	fold, err := folding.Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Database: "default"}
	for _, events := range []int{1, 7, 50_000} {
		for _, tooLarge := range []string{"", `{"n":9}`, `{"n":14}`} {
			build.Number++
			var c counts
			saves := 0
			driver := &faulty{Driver: refusing{Driver: b.driver, document: tooLarge}, check: func(batch drivers.Batch) {
				if counted := c.counted.Load(); counted < batch.To || c.folded.Load() >= batch.To {
					t.Errorf("before the save up to %d the events counted are %d", batch.To, counted)
				}
			}}
			driver.verdict = func(call string) verdict {
				if call != "save" {
					return works
				}
				saves++
				return []verdict{failsBefore, works}[min(1, saves/2)]
			}
			replay := c.of(&projection.Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Registry: b.store.Registry, Limits: projection.CatchUpLimits})
			replay.Limits.Events = events
			if err := replay.Run(t.Context(), b.store, 40); !errors.Is(err, errInjected) || c.counted.Load() != 0 || c.folded.Load() != 0 || c.most.Load() == 0 {
				t.Fatalf("%d events at a time: %v; counted are %d, up to %d", events, err, c.counted.Load(), c.most.Load())
			}
			if err := replay.Run(t.Context(), b.store, 40); err != nil || c.counted.Load() != 40 || c.folded.Load() != 40 || c.most.Load() != 40 {
				t.Fatalf("%d events at a time, without %q: %v; counted are %d, up to %d", events, tooLarge, err, c.counted.Load(), c.most.Load())
			}
		}
	}
}

// countedReads is a log that counts the events read from it.
type countedReads struct {
	projection.Log
	events int
}

func (l *countedReads) ReadLog(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) ([]domain.Event, error) {
	events, err := l.Log.ReadLog(ctx, tenant, q)
	l.events += len(events)
	return events, err
}

// A build of a query with tags reads the events that the query matches, and no others.
func TestReplayReadsByTags(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for range 11 {
		request := tablestest.Counted("x-1", domain.Any, 1000)
		request.Streams[0].Events[500].Tags = []string{"course:1"}
		tablestest.Append(t, b.store, tenant, request)
	}
	definition := folding.WithDefaults(domain.Definition{Name: "p", On: map[string]string{"*": "{'n': doc.?n.orValue(0) + 1}"}})
	definition.Source.Query.Items = domain.Query{{Tags: []string{"course:1"}}}
	fold, err := folding.Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: 1, Database: "default"}
	replay := &projection.Replay{Driver: b.driver, Build: build, Tenant: tenant, Fold: fold, Registry: b.store.Registry, Limits: projection.CatchUpLimits}
	log := &countedReads{Log: b.store}
	if err := replay.Run(t.Context(), log, 11_000); err != nil {
		t.Fatal(err)
	}
	found, err := b.driver.Load(t.Context(), build, tenant, []string{"x-1"})
	if err != nil || len(found) != 1 || string(found[0].Data) != `{"n": 11}` || log.events != 11 || replay.Position() != 11_000 {
		t.Errorf("%d events are read, up to %d, for %+v; %v", log.events, replay.Position(), found, err)
	}
}
