package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scraped is a collector that computes its metrics at each scrape. Each of the methods below registers one, and may be
// called once.
type scraped struct {
	descs   []*prometheus.Desc
	collect func(out chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (s *scraped) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range s.descs {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (s *scraped) Collect(out chan<- prometheus.Metric) { s.collect(out) }

// onScrape registers metrics. They are computed by collect.
func (m *Metrics) onScrape(collect func(out chan<- prometheus.Metric), descs ...*prometheus.Desc) {
	m.registry.MustRegister(&scraped{descs, collect})
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func gauge(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// boolean is the value of a gauge that is 1 or 0.
func boolean(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Connections are the statistics of a listener.
type Connections struct {
	Open    int
	Closed  int64 // total closed to make room for others
	Refused int64 // total refused, connections and requests
}

// CollectConnections adds the statistics of the listeners, by name.
func (m *Metrics) CollectConnections(now func(yield func(listener string, of Connections))) {
	open := newDesc("manifold_connections", "Connections that are open.", "listener")
	closed := newDesc("manifold_connections_closed_total", "Connections closed to make room for others: idle ones, and those of unauthenticated clients.", "listener")
	refused := newDesc("manifold_connections_refused_total", "Connections, and requests over HTTP/2 or from proxies, refused because a limit was reached, in total or for their address.", "listener")
	m.onScrape(func(out chan<- prometheus.Metric) {
		now(func(listener string, of Connections) {
			out <- gauge(open, float64(of.Open), listener)
			out <- prometheus.MustNewConstMetric(closed, prometheus.CounterValue, float64(of.Closed), listener)
			out <- prometheus.MustNewConstMetric(refused, prometheus.CounterValue, float64(of.Refused), listener)
		})
	}, open, closed, refused)
}

// CollectDatabases adds for each database of documents, by its configured name, whether the process considers it up.
func (m *Metrics) CollectDatabases(each func(yield func(database string, up bool))) {
	desc := newDesc("manifold_database_up", "Whether a database of documents answers: 1, or 0 while its projections wait for it.", "database")
	m.onScrape(func(out chan<- prometheus.Metric) {
		each(func(database string, up bool) { out <- gauge(desc, boolean(up), database) })
	}, desc)
}

// CollectEgress adds for each egress whether its broker answers, and how long its oldest waiting event has waited, as
// far as this process knows.
func (m *Metrics) CollectEgress(each func(yield func(egress string, up bool, lag time.Duration))) {
	answers := newDesc("egress_up", "Whether an egress's broker answers: 1, or 0 while it does not and events of this process wait.", "egress")
	age := newDesc("egress_lag_seconds", "Age of the oldest event waiting to be published, over the tenants that this process works for.", "egress")
	m.onScrape(func(out chan<- prometheus.Metric) {
		each(func(egress string, up bool, lag time.Duration) {
			out <- gauge(answers, boolean(up), egress)
			out <- gauge(age, lag.Seconds(), egress)
		})
	}, answers, age)
}

// CollectMembers adds the number of processes that work on projections, as far as this process knows, and the number
// of tenants that this process owns.
func (m *Metrics) CollectMembers(now func() (alive, tenants int)) {
	members := newDesc("manifold_members", "Processes that work on projections and are alive, as this one knows; 0 while it has stepped down.")
	owned := newDesc("manifold_member_tenants", "Tenants with a log whose projections this process works on.")
	m.onScrape(func(out chan<- prometheus.Metric) {
		alive, tenants := now()
		out <- gauge(members, float64(alive))
		out <- gauge(owned, float64(tenants))
	}, members, owned)
}

// CollectBehind adds how many positions each shared projection lags behind the logs, and for how many tenants it is
// faulted. An empty name represents all other projections together.
func (m *Metrics) CollectBehind(each func(yield func(projection string, positions int64, faulted int))) {
	lag := newDesc("manifold_projection_lag_positions",
		"Positions between a projection's checkpoints and its logs' heads, over all tenants, including events that it does not select.", "projection")
	earlier := newDesc("manifold_projection_lag_events", "The same as manifold_projection_lag_positions, by its earlier name.", "projection")
	faults := newDesc("manifold_projection_faulted", "Tenants for which a projection is stopped at an event that it cannot fold.", "projection")
	m.onScrape(func(out chan<- prometheus.Metric) {
		each(func(projection string, positions int64, faulted int) {
			name := label(projection, projection != "")
			out <- gauge(lag, float64(positions), name)
			out <- gauge(earlier, float64(positions), name)
			out <- gauge(faults, float64(faulted), name)
		})
	}, lag, earlier, faults)
}
