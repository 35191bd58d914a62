package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// replicas are the metrics of reads that replicas of the database may answer.
type replicas struct {
	reads, refused, documents *prometheus.CounterVec
}

func newReplicas() *replicas {
	return &replicas{
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "manifold_history_reads_total", Help: "Pages of old events that a replica may answer, by the server that did: a replica or primary.",
		}, []string{"source"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "manifold_replica_refused_total", Help: "Pages that a replica was asked for and the primary answered, by reason: behind, busy or failed.",
		}, []string{"replica", "reason"}),
		documents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "manifold_documents_reads_total", Help: "Queries for documents that a replica of their database may answer, by who did: replica or primary.",
		}, []string{"database", "source"}),
	}
}

func (r *replicas) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.reads, r.refused, r.documents}
}

// HistoryRead counts a page that a replica may answer. source is the replica's name, or primary.
func (m *Metrics) HistoryRead(source string) { m.replicas.reads.WithLabelValues(source).Inc() }

// ReplicaRefused counts a page that a replica was asked for and did not answer.
func (m *Metrics) ReplicaRefused(replica, reason string) {
	m.replicas.refused.WithLabelValues(replica, reason).Inc()
}

// DocumentsRead counts a query for documents that a replica may answer. source is replica or primary.
func (m *Metrics) DocumentsRead(database, source string) {
	m.replicas.documents.WithLabelValues(database, source).Inc()
}

// CollectReplicas adds a metric that reports how far each replica is behind, at each scrape.
func (m *Metrics) CollectReplicas(lags func(yield func(replica string, lag time.Duration))) {
	m.registry.MustRegister(replicaLag{lags})
}

type replicaLag struct {
	lags func(yield func(replica string, lag time.Duration))
}

var replicaLagDesc = prometheus.NewDesc("manifold_replica_lag_seconds", "How old the state is that a replica shows; it grows while the replica is down.",
	[]string{"replica"}, nil)

// Describe implements prometheus.Collector.
func (r replicaLag) Describe(out chan<- *prometheus.Desc) { out <- replicaLagDesc }

// Collect implements prometheus.Collector.
func (r replicaLag) Collect(out chan<- prometheus.Metric) {
	r.lags(func(replica string, lag time.Duration) {
		out <- prometheus.MustNewConstMetric(replicaLagDesc, prometheus.GaugeValue, lag.Seconds(), replica)
	})
}

// CollectDocumentsReplicas adds a metric that reports how far each replica of a database of documents is behind.
func (m *Metrics) CollectDocumentsReplicas(lags func(yield func(database, replica string, lag time.Duration))) {
	m.registry.MustRegister(documentsReplicaLag{lags})
}

type documentsReplicaLag struct {
	lags func(yield func(database, replica string, lag time.Duration))
}

var documentsReplicaLagDesc = prometheus.NewDesc("manifold_documents_replica_lag_seconds", "How old the state is that a replica of a database of documents shows; it grows while the replica is down.",
	[]string{"database", "replica"}, nil)

// Describe implements prometheus.Collector.
func (r documentsReplicaLag) Describe(out chan<- *prometheus.Desc) { out <- documentsReplicaLagDesc }

// Collect implements prometheus.Collector.
func (r documentsReplicaLag) Collect(out chan<- prometheus.Metric) {
	r.lags(func(database, replica string, lag time.Duration) {
		out <- prometheus.MustNewConstMetric(documentsReplicaLagDesc, prometheus.GaugeValue, lag.Seconds(), database, replica)
	})
}
