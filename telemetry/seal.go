package telemetry

import "github.com/prometheus/client_golang/prometheus"

func newSealFailures() *prometheus.CounterVec {
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "manifold_seal_failures_total",
		Help: "Times that a log could not be sealed: because its seal was changed in the database (changed), or for another reason (failed).",
	}, []string{"reason"})
	for _, reason := range []string{"changed", "failed"} {
		failures.WithLabelValues(reason)
	}
	return failures
}

// SealFailed counts a log that could not be sealed. changed: its seal was changed in the database.
func (m *Metrics) SealFailed(changed bool) {
	reason := "failed"
	if changed {
		reason = "changed"
	}
	m.sealFailures.WithLabelValues(reason).Inc()
}
