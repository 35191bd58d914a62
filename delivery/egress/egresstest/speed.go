package egresstest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/egress"
)

// The load of BenchmarkServer.
const (
	backlogEvents  = 20_000
	backlogStreams = 1000
	pacedEvents    = 1000
	pacedStreams   = 100
	pacedEvery     = 5 * time.Millisecond
)

// BenchmarkServer measures an egress to a server. start returns an empty one each time. "backlog" measures how many
// existing events it publishes per second. "append" measures the time from just before an append of one event until the
// server has acknowledged the event, with 200 appends per second. Both then check what the server has stored. An event
// that is lost, stored twice, or stored before its predecessor in its stream is an error.
func BenchmarkServer(b *testing.B, start func(t testing.TB) Server) {
	b.Run("backlog", func(b *testing.B) {
		var took time.Duration
		for b.Loop() {
			b.StopTimer()
			m := newMeasured(b, start(b), backlogEvents)
			names := make([]string, 500)
			for n := 0; n < backlogEvents; n += len(names) {
				for i := range names {
					names[i] = fmt.Sprintf("order-%d", (n+i)%backlogStreams)
				}
				m.bench.Append(b, m.bench.Tenants[0], names...)
			}
			began := time.Now()
			b.StartTimer()
			m.publish(b)
			took += time.Since(began)
			b.StopTimer()
			m.check(b)
			b.StartTimer()
		}
		b.ReportMetric(float64(b.N)*backlogEvents/took.Seconds(), "events/s")
	})
	b.Run("append", func(b *testing.B) {
		var delays []time.Duration
		for b.Loop() {
			m := newMeasured(b, start(b), pacedEvents)
			var appending sync.WaitGroup
			appending.Go(func() {
				tick := time.NewTicker(pacedEvery)
				defer tick.Stop()
				for n := range pacedEvents {
					<-tick.C
					m.append(b, n)
				}
			})
			m.publish(b)
			appending.Wait()
			m.check(b)
			delays = append(delays, m.delays...)
		}
		slices.Sort(delays)
		for _, percent := range []int{50, 99} {
			b.ReportMetric(delays[(len(delays)-1)*percent/100].Seconds()*1000, fmt.Sprintf("p%d-ms", percent))
		}
	})
}

// measured is a broker that records when each message was acknowledged.
type measured struct {
	egress.Broker
	server Server
	bench  Bench
	events int

	mu     sync.Mutex
	begun  map[int]time.Time // when the append of an event began, by number
	delays []time.Duration
	left   int // events not acknowledged yet
	done   chan struct{}
}

func newMeasured(t testing.TB, server Server, events int) *measured {
	return &measured{
		Broker: server.Open(t), server: server, bench: NewBench(t, 1), events: events,
		begun: make(map[int]time.Time), left: events, done: make(chan struct{}),
	}
}

// append appends the event with a number.
func (m *measured) append(t testing.TB, n int) {
	m.mu.Lock()
	m.begun[n] = time.Now()
	m.mu.Unlock()
	m.bench.AppendData(t, m.bench.Tenants[0], fmt.Sprintf(`{"n": %d}`, n), fmt.Sprintf("order-%d", n%pacedStreams))
}

// publish runs the egress until all events are acknowledged.
func (m *measured) publish(t testing.TB) {
	config := m.server.Config()
	config.Name, config.Start, config.Broker = "orders", true, m
	p := m.bench.Start(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	select {
	case <-m.done:
	case <-ctx.Done():
		t.Error("it does not come to an end")
	}
	p.Stop()
	m.Broker.Close()
}

// Publish implements egress.Broker.
func (m *measured) Publish(ctx context.Context, messages []egress.Message) []error {
	errs := m.Broker.Publish(ctx, messages)
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, err := range errs {
		if err != nil {
			continue
		}
		var data struct{ N int }
		if json.Unmarshal(messages[i].Data, &data) == nil && !m.begun[data.N].IsZero() {
			m.delays = append(m.delays, now.Sub(m.begun[data.N]))
		}
		if m.left--; m.left == 0 {
			close(m.done)
		}
	}
	return errs
}

// check checks what the server has stored.
func (m *measured) check(t testing.TB) {
	stored := m.server.Stored(t)
	m.bench.Check(t, stored, "orders", "order")
	if len(stored) != m.events {
		t.Errorf("%d messages are stored, of %d events", len(stored), m.events)
	}
	m.server.Kill(t)
}
