package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reactors are the metrics of reactors, published changes and reports. The program chooses the reactors' names, so
// there are few.
type reactors struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	changes *prometheus.CounterVec
	reports *prometheus.CounterVec
}

func newReactors() *reactors {
	return &reactors{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reactor_calls_total", Help: "Finished calls of reactors, by outcome: ok or failed.",
		}, []string{"reactor", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "reactor_call_duration_seconds", Help: "How long a call of a reactor took.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"reactor"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "changes_published_total", Help: "Changes of a projection's documents that were published as events.",
		}, []string{"projection"}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reports_total", Help: "Reports that were appended to tenants' logs, by the event's type.",
		}, []string{"type"}),
	}
}

func (r *reactors) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.calls, r.seconds, r.changes, r.reports}
}

// ReactorCalled counts an ended call of a reactor.
func (m *Metrics) ReactorCalled(reactor string, failed bool, took time.Duration) {
	outcome := "ok"
	if failed {
		outcome = "failed"
	}
	m.reactors.calls.WithLabelValues(reactor, outcome).Inc()
	m.reactors.seconds.WithLabelValues(reactor).Observe(took.Seconds())
}

// ChangesPublished counts changes of a projection's documents that were appended as events.
func (m *Metrics) ChangesPublished(projection string, shared bool, events int) {
	m.reactors.changes.WithLabelValues(label(projection, shared)).Add(float64(events))
}

// Reported counts a report that was appended to a tenant's log.
func (m *Metrics) Reported(eventType string) { m.reactors.reports.WithLabelValues(eventType).Inc() }
