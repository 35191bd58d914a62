package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// egresses are the metrics of the egresses, which publish events to message brokers. An egress's name is a label,
// since it comes from the configuration.
type egresses struct {
	messages *prometheus.CounterVec
	delay    *prometheus.HistogramVec
}

func newEgresses() *egresses {
	return &egresses{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "egress_messages_total",
			Help: "Messages sent to a broker, by outcome: acked, refused (dead-lettered) or failed (published again).",
		}, []string{"egress", "outcome"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "egress_delay_seconds", Help: "From an event's recording to the broker's acknowledgement, by the oldest of those published together.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 24),
		}, []string{"egress"}),
	}
}

func (e *egresses) collectors() []prometheus.Collector {
	return []prometheus.Collector{e.messages, e.delay}
}

// EgressPublished counts an egress's messages that a broker has acknowledged. delay is the time since the oldest of
// them was recorded.
func (m *Metrics) EgressPublished(egress string, messages int, delay time.Duration) {
	m.egresses.messages.WithLabelValues(egress, "acked").Add(float64(messages))
	m.egresses.delay.WithLabelValues(egress).Observe(delay.Seconds())
}

// EgressRefused counts an egress's messages that a broker will never accept.
func (m *Metrics) EgressRefused(egress string, messages int) {
	m.egresses.messages.WithLabelValues(egress, "refused").Add(float64(messages))
}

// EgressFailed counts an egress's messages that a broker has not acknowledged.
func (m *Metrics) EgressFailed(egress string, messages int) {
	m.egresses.messages.WithLabelValues(egress, "failed").Add(float64(messages))
}
