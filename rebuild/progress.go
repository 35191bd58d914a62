package rebuild

import (
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// progress counts folded events, saved or not, for people. Events that are lost unsaved are subtracted again.
type progress struct {
	done, total atomic.Int64
	folded      atomic.Int64 // by this process alone, for the rate

	samples []sample // the latest ones, the oldest first; only for the goroutine that saves
}

// sample is how many events were folded at a moment.
type sample struct {
	at     time.Time
	folded int64
}

// ratePeriod is the period for the rate of events: a rebuild's speed changes with its phase and with other work.
const ratePeriod = 30 * time.Second

func (p *progress) events() (done, total int64) {
	done = p.done.Load()
	return done, max(done, p.total.Load())
}

// rate returns the recent number of events folded per second. Only one goroutine at a time may call it.
func (p *progress) rate(now time.Time) float64 {
	p.samples = append(p.samples, sample{now, p.folded.Load()})
	for len(p.samples) > 2 && now.Sub(p.samples[1].at) >= ratePeriod {
		p.samples = p.samples[1:]
	}
	first, last := p.samples[0], p.samples[len(p.samples)-1]
	if took := last.at.Sub(first.at); took > 0 {
		return max(0, float64(last.folded-first.folded)/took.Seconds()) // lost events are subtracted
	}
	return 0
}

// Speed returns how many events a rebuild folds per second, and how long the rest will take at that speed. Both are 0
// if that is unknown. For a running rebuild it is the speed of the last half minute, for one that has ended the
// average.
func Speed(r domain.Rebuild) (eventsPerSecond float64, left time.Duration) {
	if r.State.Ended() {
		took := r.EndedAt.Sub(r.StartedAt)
		if r.StartedAt.IsZero() || took <= 0 || r.EventsDone <= 0 {
			return 0, 0
		}
		return float64(r.EventsDone) / took.Seconds(), 0
	}
	if r.EventsPerSecond <= 0 || r.Worker == "" {
		return 0, 0
	}
	return r.EventsPerSecond, time.Duration(float64(max(0, r.EventsTotal-r.EventsDone)) / r.EventsPerSecond * float64(time.Second))
}
