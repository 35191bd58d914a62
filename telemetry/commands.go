package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// commands are the metrics of commands.
type commands struct {
	seconds   *prometheus.HistogramVec
	conflicts prometheus.Counter
}

func newCommands() *commands {
	return &commands{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "manifold_command_seconds", Help: "Time from the arrival of a command to its outcome: accepted, nothing, rejected, conflict or failed. Commands that were not decided, and dry runs, do not count.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"outcome"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "manifold_command_conflicts_total", Help: "Decisions that were made again, because the stream had changed before their events were appended.",
		}),
	}
}

func (c *commands) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.seconds, c.conflicts}
}

// Decided records a command with its outcome, one of a closed set, and how often it was decided again.
func (m *Metrics) Decided(outcome string, conflicts int, took time.Duration) {
	m.commands.seconds.WithLabelValues(outcome).Observe(took.Seconds())
	m.commands.conflicts.Add(float64(conflicts))
}
