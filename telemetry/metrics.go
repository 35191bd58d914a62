// Package telemetry contains a process's observability: Prometheus metrics (Metrics), structured logs (NewLogger,
// Outages) and the export of traces (Traces). Package tracing records their spans.
//
// The methods of Metrics fit the hooks that other packages declare, so neither side imports the other. The name of a
// shared projection is a label. Tenants and the names of their private projections are never labels: all private
// projections count together, as Own.
package telemetry

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Own is the label under which the private projections of all tenants count together. No projection can have that
// name.
const Own = "(own)"

// Metrics are one process's metrics. All methods may be called concurrently.
type Metrics struct {
	registry *prometheus.Registry

	appends, appendedEvents, readEvents, importedEvents prometheus.Counter
	batchEvents, batchRequests, commitSeconds           prometheus.Histogram
	requestSeconds                                      *prometheus.HistogramVec
	inFlight                                            prometheus.Gauge

	projectedEvents, faults, turns *prometheus.CounterVec
	lag                            *lag
	rebuildDone                    *prometheus.GaugeVec
	rebuildTotal                   *prometheus.GaugeVec
	rebuilds                       *prometheus.CounterVec

	subscriptions  *subscriptions
	webhooks       *webhooks
	reactors       *reactors
	commands       *commands
	egresses       *egresses
	replicas       *replicas
	eventsRemoved  prometheus.Counter
	eventsRetagged prometheus.Counter
	violations     *prometheus.CounterVec
	sealFailures   *prometheus.CounterVec
}

// NewMetrics returns metrics in a new registry, which also contains the metrics of the Go runtime and the process.
func NewMetrics(version string) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	byProjection := []string{"projection"}
	m := &Metrics{
		registry:       prometheus.NewRegistry(),
		appends:        counter("manifold_appends_total", "Requests appended."),
		appendedEvents: counter("manifold_appended_events_total", "Events appended."),
		readEvents:     counter("manifold_read_events_total", "Events given to readers."),
		importedEvents: counter("manifold_imported_events_total", "Events appended by imports."),
		batchEvents: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "manifold_append_batch_events", Help: "Events in a commit.", Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		}),
		batchRequests: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "manifold_append_batch_requests", Help: "Requests in a commit.", Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "manifold_append_commit_seconds", Help: "How long a commit took.", Buckets: prometheus.ExponentialBuckets(0.0002, 2, 15),
		}),
		requestSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "manifold_http_request_seconds", Help: "How long a request took until its answer was written.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"method", "route", "status"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "manifold_http_requests_in_flight", Help: "Requests that are being answered, those of followers and WebSockets among them.",
		}),
		projectedEvents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "manifold_projected_events_total", Help: "Events folded into a projection's documents.",
		}, byProjection),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "manifold_projection_faults_total", Help: "Times that a projection met an event that it could not fold.",
		}, byProjection),
		turns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "manifold_projection_turns_total", Help: "Turns that a projection was given to follow a tenant's log, also those that found nothing to fold.",
		}, byProjection),
		lag: newLag(),
		rebuildDone: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "manifold_rebuild_events_done", Help: "Events that the running rebuild has replayed.",
		}, byProjection),
		rebuildTotal: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "manifold_rebuild_events", Help: "Events that the running rebuild has to replay in total.",
		}, byProjection),
		rebuilds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "manifold_rebuilds_total", Help: "Finished rebuilds, by outcome.",
		}, []string{"projection", "outcome"}),
		subscriptions: newSubscriptions(),
		webhooks:      newWebhooks(),
		reactors:      newReactors(),
		commands:      newCommands(),
		egresses:      newEgresses(),
		replicas:      newReplicas(),
		eventsRemoved: newEventsRemoved(), eventsRetagged: newEventsRetagged(),
		violations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "manifold_schema_violations_total", Help: "Events that violated the schemas of their types: accepted ones (warn) and refused ones (enforce).",
		}, []string{"mode"}),
		sealFailures: newSealFailures(),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "manifold_build_info", Help: "1, with the program's version.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(build, m.appends, m.appendedEvents, m.readEvents, m.importedEvents, m.batchEvents, m.batchRequests,
		m.commitSeconds, m.requestSeconds, m.inFlight, m.projectedEvents, m.faults, m.turns, m.lag, m.rebuildDone, m.rebuildTotal, m.rebuilds,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.subscriptions.collectors()...)
	m.registry.MustRegister(m.webhooks.collectors()...)
	m.registry.MustRegister(m.reactors.collectors()...)
	m.registry.MustRegister(m.commands.collectors()...)
	m.registry.MustRegister(m.egresses.collectors()...)
	m.registry.MustRegister(m.replicas.collectors()...)
	m.registry.MustRegister(m.eventsRemoved, m.eventsRetagged, m.violations, m.sealFailures)
	return m
}

// Handler answers /metrics in the format that the client prefers.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// CountInFlight counts the requests that next is answering.
func (m *Metrics) CountInFlight(next http.Handler) http.Handler {
	return promhttp.InstrumentHandlerInFlight(m.inFlight, next)
}

// Appended counts one commit of the given number of events, from the given number of requests.
func (m *Metrics) Appended(events, requests int, took time.Duration) {
	m.appends.Add(float64(requests))
	m.appendedEvents.Add(float64(events))
	m.batchEvents.Observe(float64(events))
	m.batchRequests.Observe(float64(requests))
	m.commitSeconds.Observe(took.Seconds())
}

// Request counts an answered request. route must be a pattern, not a path chosen by a client.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	m.requestSeconds.WithLabelValues(method, route, strconv.Itoa(status)).Observe(took.Seconds())
}

// Read counts events returned to a reader.
func (m *Metrics) Read(events int) { m.readEvents.Add(float64(events)) }

// SchemasViolated counts events that violate their schemas. mode is warn or enforce.
func (m *Metrics) SchemasViolated(mode string, events int) {
	m.violations.WithLabelValues(mode).Add(float64(events))
}

// Imported counts events appended by an import.
func (m *Metrics) Imported(events int) { m.importedEvents.Add(float64(events)) }
