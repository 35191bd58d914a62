package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// CollectIssuers adds a metric that reports how old the keys of each issuer of tokens are, at each scrape. An issuer's
// name is a label, since it comes from the configuration.
func (m *Metrics) CollectIssuers(ages func(yield func(issuer string, age time.Duration))) {
	m.registry.MustRegister(issuerKeys{ages})
}

type issuerKeys struct {
	ages func(yield func(issuer string, age time.Duration))
}

var issuerKeysDesc = prometheus.NewDesc("manifold_issuer_keys_age_seconds", "Time since the keys of an issuer of tokens were loaded, or since the start if they never were; it grows while the issuer is down.",
	[]string{"issuer"}, nil)

// Describe implements prometheus.Collector.
func (i issuerKeys) Describe(out chan<- *prometheus.Desc) { out <- issuerKeysDesc }

// Collect implements prometheus.Collector.
func (i issuerKeys) Collect(out chan<- prometheus.Metric) {
	i.ages(func(issuer string, age time.Duration) {
		out <- prometheus.MustNewConstMetric(issuerKeysDesc, prometheus.GaugeValue, age.Seconds(), issuer)
	})
}
