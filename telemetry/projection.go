package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// label returns the name of a shared projection, and Own for every other.
func label(name string, shared bool) string {
	if shared {
		return name
	}
	return Own
}

// Projected counts events that were folded and saved.
func (m *Metrics) Projected(projection string, shared bool, events int) {
	m.projectedEvents.WithLabelValues(label(projection, shared)).Add(float64(events))
}

// Faulted counts an event that a projection could not fold.
func (m *Metrics) Faulted(projection string, shared bool) {
	m.faults.WithLabelValues(label(projection, shared)).Inc()
}

// Turned counts a turn of a projection.
func (m *Metrics) Turned(projection string, shared bool) {
	m.turns.WithLabelValues(label(projection, shared)).Inc()
}

// Lag records the age of the oldest event in a projection's batch at the time the batch was saved.
func (m *Metrics) Lag(projection string, shared bool, lag time.Duration) {
	m.lag.note(label(projection, shared), lag, time.Now())
}

// Rebuilding records the progress of a running rebuild.
func (m *Metrics) Rebuilding(projection string, shared bool, done, total int64) {
	name := label(projection, shared)
	m.rebuildDone.WithLabelValues(name).Set(float64(done))
	m.rebuildTotal.WithLabelValues(name).Set(float64(total))
}

// Rebuilt counts an ended rebuild. Its outcome is swapped, cancelled or failed.
func (m *Metrics) Rebuilt(projection string, shared bool, outcome string) {
	name := label(projection, shared)
	m.rebuildDone.DeleteLabelValues(name)
	m.rebuildTotal.DeleteLabelValues(name)
	m.rebuilds.WithLabelValues(name, outcome).Inc()
}

// lagWindow is how long the greatest lag is shown after it was recorded. It is longer than the usual time between two
// scrapes.
const lagWindow = 2 * time.Minute

// lag reports, for each projection, the greatest recent lag over all tenants. A projection that has had nothing to do
// since is shown without lag.
type lag struct {
	greatest *prometheus.Desc

	mu    sync.Mutex
	noted map[string]*window
}

// window contains the greatest lag of two adjacent halves of lagWindow.
type window struct {
	begin         time.Time // of the current half
	current, last time.Duration
}

func newLag() *lag {
	return &lag{
		greatest: prometheus.NewDesc("manifold_projection_lag_seconds",
			"How old the oldest event of a batch was when its documents were saved: the greatest of the last two minutes, over all tenants.", []string{"projection"}, nil),
		noted: make(map[string]*window),
	}
}

func (l *lag) note(name string, by time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.noted[name]
	if w == nil {
		w = &window{begin: now}
		l.noted[name] = w
	}
	w.rotate(now)
	w.current = max(w.current, by)
}

// rotate begins a new half if the current one is over.
func (w *window) rotate(now time.Time) {
	switch age := now.Sub(w.begin); {
	case age >= lagWindow:
		w.begin, w.last, w.current = now, 0, 0
	case age >= lagWindow/2:
		w.begin, w.last, w.current = now, w.current, 0
	}
}

func (l *lag) read(now time.Time) map[string]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	greatest := make(map[string]time.Duration, len(l.noted))
	for name, w := range l.noted {
		w.rotate(now)
		greatest[name] = max(w.current, w.last)
	}
	return greatest
}

// Describe implements prometheus.Collector.
func (l *lag) Describe(out chan<- *prometheus.Desc) { out <- l.greatest }

// Collect implements prometheus.Collector.
func (l *lag) Collect(out chan<- prometheus.Metric) {
	for name, by := range l.read(time.Now()) {
		out <- prometheus.MustNewConstMetric(l.greatest, prometheus.GaugeValue, by.Seconds(), name)
	}
}
