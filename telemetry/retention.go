package telemetry

import "github.com/prometheus/client_golang/prometheus"

func newEventsRemoved() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "events_removed_total", Help: "Events that retention has removed from logs."})
}

// EventsRemoved counts events removed by retention.
func (m *Metrics) EventsRemoved(events int64) { m.eventsRemoved.Add(float64(events)) }
