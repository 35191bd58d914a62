package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// These are the kinds of subscriptions that the metrics distinguish.
const (
	kindFollow = "follow"
	kindGroup  = "group"
)

// subscriptions are the metrics of event delivery. Their names are the usual ones for such services. Their labels are
// closed sets, and never contain a tenant, group, stream or category.
type subscriptions struct {
	delivered    *prometheus.CounterVec
	acked        prometheus.Counter
	nacked       *prometheus.CounterVec
	expired      prometheus.Counter
	deadLettered prometheus.Counter
	published    *prometheus.CounterVec
	pollSeconds  *prometheus.HistogramVec
	handling     prometheus.Histogram

	tails, followers prometheus.Gauge
}

func newSubscriptions() *subscriptions {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &subscriptions{
		delivered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "events_delivered_total", Help: "Events sent to followers and to consumers of groups, each time that they were sent.",
		}, []string{"kind", "transport"}),
		acked: counter("events_acked_total", "Events that consumers of groups have acknowledged."),
		nacked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "events_nacked_total", Help: "Events that consumers of groups rejected, by the requested outcome.",
		}, []string{"action"}),
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "events_published_total", Help: "Events appended by publishing, by transport.",
		}, []string{"transport"}),
		expired:      counter("events_expired_total", "Deliveries by groups that nobody answered in time."),
		deadLettered: counter("events_dead_lettered_total", "Events that groups have moved to the dead letters."),
		pollSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "subscribe_poll_duration_seconds", Help: "How long it took to read new events of a log for its followers, or to lease events for a receive, without its wait.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}, []string{"kind"}),
		handling: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "delivery_handler_duration_seconds", Help: "From the delivery of events by a group to their acknowledgement, by the oldest of those acknowledged together.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 20),
		}),
		tails:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "manifold_tails", Help: "Tenants whose log this process reads for followers."}),
		followers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "manifold_followers", Help: "Followers of logs that this process serves."}),
	}
}

func (s *subscriptions) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.published, s.delivered, s.acked, s.nacked, s.expired, s.deadLettered, s.pollSeconds, s.handling, s.tails, s.followers}
}

// Published counts published events, without those that already existed. transport is one of a closed set.
func (m *Metrics) Published(transport string, events int) {
	m.subscriptions.published.WithLabelValues(transport).Add(float64(events))
}

// Followed counts events sent to a follower. transport is one of a closed set.
func (m *Metrics) Followed(transport string, events int) {
	m.subscriptions.delivered.WithLabelValues(kindFollow, transport).Add(float64(events))
}

// Delivered counts events sent to a consumer of a group. transport is one of a closed set.
func (m *Metrics) Delivered(transport string, events int) {
	m.subscriptions.delivered.WithLabelValues(kindGroup, transport).Add(float64(events))
}

// Acked counts events that were acknowledged together. held is the time since the oldest of them was delivered.
func (m *Metrics) Acked(events int, held time.Duration) {
	m.subscriptions.acked.Add(float64(events))
	m.subscriptions.handling.Observe(held.Seconds())
}

// Nacked counts events that a consumer could not handle. action is retry, park or skip.
func (m *Metrics) Nacked(action string, events int) {
	m.subscriptions.nacked.WithLabelValues(action).Add(float64(events))
}

// Expired counts deliveries whose lease expired before the consumer answered.
func (m *Metrics) Expired(events int) { m.subscriptions.expired.Add(float64(events)) }

// DeadLettered counts events that groups have moved to the dead letters.
func (m *Metrics) DeadLettered(events int) { m.subscriptions.deadLettered.Add(float64(events)) }

// Polled records how long a tail took to read its log.
func (m *Metrics) Polled(took time.Duration, _ int) {
	m.subscriptions.pollSeconds.WithLabelValues(kindFollow).Observe(took.Seconds())
}

// Received records how long a receive that returned events took, without its waiting time.
func (m *Metrics) Received(took time.Duration, _ int) {
	m.subscriptions.pollSeconds.WithLabelValues(kindGroup).Observe(took.Seconds())
}

// Followers records how many followers of logs this process serves now.
func (m *Metrics) Followers(now int) { m.subscriptions.followers.Set(float64(now)) }

// Tails records for how many tenants this process reads the log for followers now.
func (m *Metrics) Tails(now int) { m.subscriptions.tails.Set(float64(now)) }

// CollectEventsInFlight adds a gauge that calls now at each scrape: the number of events in flight that this process
// has delivered for groups, as far as it knows. It may be called once.
func (m *Metrics) CollectEventsInFlight(now func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "events_inflight",
		Help: "Events that groups have in flight: delivered by this process and not yet answered. Each counts in the process that delivered it last.",
	}, func() float64 { return float64(now()) }))
}
