package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Connections are the statistics of a listener.
type Connections struct {
	Open    int
	Closed  int64 // total closed to make room for others
	Refused int64 // total refused, connections and requests
}

// CollectConnections adds metrics that call now at each scrape for the statistics of the listeners, by name.
func (m *Metrics) CollectConnections(now func(yield func(listener string, of Connections))) {
	m.registry.MustRegister(&connections{
		now:     now,
		open:    prometheus.NewDesc("manifold_connections", "Connections that are open.", []string{"listener"}, nil),
		closed:  prometheus.NewDesc("manifold_connections_closed_total", "Connections closed to make room for others: idle ones, and those of unauthenticated clients.", []string{"listener"}, nil),
		refused: prometheus.NewDesc("manifold_connections_refused_total", "Connections, and requests over HTTP/2 or from proxies, refused because a limit was reached, in total or for their address.", []string{"listener"}, nil),
	})
}

type connections struct {
	now                   func(yield func(listener string, of Connections))
	open, closed, refused *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *connections) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.open
	descs <- c.closed
	descs <- c.refused
}

// Collect implements prometheus.Collector.
func (c *connections) Collect(metrics chan<- prometheus.Metric) {
	c.now(func(listener string, of Connections) {
		metrics <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(of.Open), listener)
		metrics <- prometheus.MustNewConstMetric(c.closed, prometheus.CounterValue, float64(of.Closed), listener)
		metrics <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(of.Refused), listener)
	})
}
