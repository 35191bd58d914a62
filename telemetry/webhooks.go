package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// webhooks are the metrics of webhooks. Outcomes are a closed set. A label never contains a tenant, webhook or host.
type webhooks struct {
	attempts *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	delay    prometheus.Histogram
}

func newWebhooks() *webhooks {
	return &webhooks{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "webhook_attempts_total", Help: "Attempts to send an event to a webhook's URL, by outcome.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "webhook_attempt_duration_seconds", Help: "How long a request to a webhook's URL took until its answer or timeout; without duplicates, which are not sent.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"outcome"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "webhook_delay_seconds", Help: "From the recording of an event, and its webhook's own delay, to the beginning of its first request.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 20),
		}),
	}
}

func (w *webhooks) collectors() []prometheus.Collector {
	return []prometheus.Collector{w.attempts, w.seconds, w.delay}
}

// WebhookAttempted counts an attempt of a webhook. outcome is one of a closed set. took is 0 if nothing was sent.
func (m *Metrics) WebhookAttempted(outcome string, took time.Duration) {
	m.webhooks.attempts.WithLabelValues(outcome).Inc()
	if took > 0 {
		m.webhooks.seconds.WithLabelValues(outcome).Observe(took.Seconds())
	}
}

// WebhookDelayed records how late an event's first request began.
func (m *Metrics) WebhookDelayed(delay time.Duration) { m.webhooks.delay.Observe(delay.Seconds()) }

// CollectWebhookBreakers adds a gauge that calls now at each scrape: the number of webhooks whose URLs do not answer.
// It may be called once.
func (m *Metrics) CollectWebhookBreakers(now func() (open int)) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "webhook_breakers_open",
		Help: "Webhooks of this process whose breaker is open: the URL has failed several times in a row and gets only probes.",
	}, func() float64 { return float64(now()) }))
}
