package subjects_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/erasure/subjects"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// BenchmarkErasure erases two people in a sealed log: one with 100,000 of its events, and one with ten. A projection
// has a document for each stream of 100 events. Meanwhile a client of the same tenant appends an event every 10 ms. The
// erasures do not wait for what began before, which takes a minute or two. The memory is this process's heap.
func BenchmarkErasure(b *testing.B) {
	for _, size := range []int{1_000_000, 3_000_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				benchmarkErasure(b, size)
			}
		})
	}
}

func benchmarkErasure(b *testing.B, size int) {
	p := start(b, nil, nil)
	ctx, s := b.Context(), p.store
	tenant := tablestest.NewTenant(b, s)
	super := p.db.Pool(b, pgtest.RoleSuperuser, 1)
	for _, sql := range []string{
		"insert into manifold.schema_types (tenant_id, event_type, compatibility) values ($1, 'Noted', 'backward')",
		`insert into manifold.schema_versions (tenant_id, event_type, version, schema, breaking, revision, by, personal)
		values ($1, 'Noted', 1, '{}', false, 1, 'test', '["/text"]')`,
	} {
		_, err := super.Exec(ctx, sql, tenant)
		tablestest.Must(b, err)
	}
	_, err := p.catalog.Create(ctx, tenant, domain.Definition{
		Name: "customers", On: map[string]string{"Noted": `{"text": event.data.text, "plan": event.data.plan}`},
	}, "test")
	tablestest.Must(b, err)
	const atOnce = 1000
	for from := 0; from < size; from += atOnce {
		many, few := from/atOnce%(size/100_000) == 0, from == size/2+atOnce
		batch := domain.Append{}
		for stream := range atOnce / 100 {
			events := make([]domain.NewEvent, 100)
			for i := range events {
				events[i] = domain.NewEvent{Type: "Noted", Data: json.RawMessage(`{"plan": "gold", "text": "` + strings.Repeat("x", 150) + `"}`)}
				switch {
				case many:
					events[i].Tags = []string{"subject:many"}
				case few && stream == 0 && i < 10:
					events[i].Tags = []string{"subject:few"}
				}
			}
			batch.Streams = append(batch.Streams, domain.StreamAppend{Stream: fmt.Sprintf("customer-%d", from/100+stream), Expected: domain.Any, Events: events})
		}
		tablestest.Append(b, s, tenant, batch)
	}
	tablestest.SealAll(b, s, tenant)
	until(b, "the documents", func() bool {
		return !strings.Contains(p.document(b, tenant, "customers", fmt.Sprintf("customer-%d", size/100-1)), "no document")
	})

	alone, stopAlone := context.WithTimeout(ctx, 5*time.Second)
	before := appendUntil(b, p, alone, tenant)
	stopAlone()
	b.ReportMetric(percentile(before, 0.99), "ms-p99-alone")
	for _, subject := range []string{"many", "few"} {
		running, stop := context.WithCancel(ctx)
		stopped, waited, peak := make(chan error, 1), make(chan []time.Duration, 1), make(chan uint64, 1)
		runtime.GC()
		go func() { waited <- appendUntil(b, p, running, tenant) }()
		go func() { peak <- peakMemory(running) }()
		began := time.Now()
		e, _, err := p.subjects.Request(ctx, tenant, subjects.Request{Subject: subject, Reason: "asked", By: subjects.Actor{ID: "a", By: "key a"}})
		tablestest.Must(b, err)
		go func() { stopped <- p.subjects.Run(running) }()
		step, since := e.Step, began
		for e.State != subjects.Done {
			<-time.After(20 * time.Millisecond)
			e, err = p.subjects.Erasure(ctx, tenant, e.ID)
			tablestest.Must(b, err)
			if e.Step != step {
				b.Logf("%s: step %s took %v", subject, step, time.Since(since).Round(10*time.Millisecond))
				step, since = e.Step, time.Now()
			}
		}
		took := time.Since(began)
		stop()
		tablestest.Must(b, <-stopped)
		latencies := <-waited
		b.ReportMetric(took.Seconds(), "s-"+subject)
		b.ReportMetric(percentile(latencies, 0.5), "ms-p50-"+subject)
		b.ReportMetric(percentile(latencies, 0.99), "ms-p99-"+subject)
		b.ReportMetric(percentile(latencies, 1), "ms-max-"+subject)
		b.ReportMetric(float64(<-peak>>20), "MB-"+subject)
		b.Logf("%s: %+v in %v", subject, e.Counts, took)
	}
}

// appendUntil appends an event every 10 ms until ctx ends, and returns how long each took.
func appendUntil(b *testing.B, p *process, ctx context.Context, tenant domain.TenantID) (latencies []time.Duration) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return latencies
		case <-ticker.C:
		}
		began := time.Now()
		_, err := p.store.Append(b.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
			Stream: "other-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Other", Data: json.RawMessage(`{}`)}},
		}}})
		if err != nil {
			b.Error(err)
		}
		latencies = append(latencies, time.Since(began))
	}
}

// percentile returns a percentile in milliseconds.
func percentile(all []time.Duration, of float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(of*float64(len(all))), len(all)-1)].Seconds() * 1000
}

// peakMemory returns the most memory that Go has used for its heap until ctx ends.
func peakMemory(ctx context.Context) (peak uint64) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapInuse)
		select {
		case <-ctx.Done():
			return peak
		case <-ticker.C:
		}
	}
}
