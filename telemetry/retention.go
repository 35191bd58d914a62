package telemetry

import "github.com/prometheus/client_golang/prometheus"

func newEventsRemoved() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "events_removed_total", Help: "Events that retention has removed from logs."})
}

func newEventsRetagged() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "manifold_events_retagged_total", Help: "Stored events that got other tags because the schemas of their types derive others."})
}

// EventsRetagged counts stored events that got other tags.
func (m *Metrics) EventsRetagged(events int64) { m.eventsRetagged.Add(float64(events)) }

// EventsRemoved counts events removed by retention.
func (m *Metrics) EventsRemoved(events int64) { m.eventsRemoved.Add(float64(events)) }
