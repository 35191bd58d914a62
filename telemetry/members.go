package telemetry

import "github.com/prometheus/client_golang/prometheus"

// CollectMembers adds two metrics that call now at each scrape: the number of processes that work on projections, as
// far as this process knows, and the number of tenants that this process owns. It may be called once.
func (m *Metrics) CollectMembers(now func() (alive, tenants int)) {
	m.registry.MustRegister(&membership{
		now: now,
		alive: prometheus.NewDesc("manifold_members",
			"Processes that work on projections and are alive, as this one knows; 0 while it has stepped down.", nil, nil),
		tenants: prometheus.NewDesc("manifold_member_tenants", "Tenants with a log whose projections this process works on.", nil, nil),
	})
}

type membership struct {
	now            func() (alive, tenants int)
	alive, tenants *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m *membership) Describe(out chan<- *prometheus.Desc) { out <- m.alive; out <- m.tenants }

// Collect implements prometheus.Collector.
func (m *membership) Collect(out chan<- prometheus.Metric) {
	alive, tenants := m.now()
	out <- prometheus.MustNewConstMetric(m.alive, prometheus.GaugeValue, float64(alive))
	out <- prometheus.MustNewConstMetric(m.tenants, prometheus.GaugeValue, float64(tenants))
}
