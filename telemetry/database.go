package telemetry

import "github.com/prometheus/client_golang/prometheus"

// CollectDatabases adds a metric that calls each at every scrape. It reports for each database of documents, by its
// configured name, whether the process considers it up. It may be called once.
func (m *Metrics) CollectDatabases(each func(yield func(database string, up bool))) {
	m.registry.MustRegister(&databases{
		each: each,
		up: prometheus.NewDesc("manifold_database_up",
			"Whether a database of documents answers: 1, or 0 while its projections wait for it.", []string{"database"}, nil),
	})
}

type databases struct {
	each func(yield func(database string, up bool))
	up   *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (d *databases) Describe(out chan<- *prometheus.Desc) { out <- d.up }

// Collect implements prometheus.Collector.
func (d *databases) Collect(out chan<- prometheus.Metric) {
	d.each(func(database string, up bool) {
		value := 0.0
		if up {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(d.up, prometheus.GaugeValue, value, database)
	})
}
