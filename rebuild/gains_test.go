package rebuild

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A rebuild that pauses for appends catches up whenever one that never pauses would.
func TestPausesEndIfLogsOutgrowARebuild(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		const fast, paused = 100_000.0, 20_000.0 // events per second without pauses, and with them
		growth := rapid.Float64Range(0, 0.9*fast).Draw(r, "growth")
		ahead := rapid.Float64Range(smallPass, 1e8).Draw(r, "ahead")
		speed, previous := paused, int64(0)
		for passes := 0; ahead >= smallPass; passes++ {
			if passes == 200 {
				r.Fatalf("after %d passes it is still %.0f events behind", passes, ahead)
			}
			if !gainsOn(previous, int64(ahead)) {
				speed = fast
			}
			previous = int64(ahead)
			ahead = growth * ahead / speed
		}
		if growth < paused/2 && speed == fast {
			r.Fatal("it has stopped pausing although it would have caught up")
		}
	})
}

// Catching up ends although each pass takes some time, however little it folds, and the logs grow meanwhile. While
// passes become shorter, it waits for one of half a second. It never accepts one of more than five.
func TestCatchingUpEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		seconds := func(least, most float64, name string) time.Duration {
			return time.Duration(rapid.Float64Range(least, most).Draw(r, name) * float64(time.Second))
		}
		empty := seconds(0.001, 4, "empty")                     // how long a pass without events takes
		growth := rapid.Float64Range(0, 0.95).Draw(r, "growth") // how long folding the events of a second takes, in seconds
		var p patience
		shrinks := true
		previous, took := time.Duration(0), seconds(0.1, 3600, "first")
		for passes := 0; !p.accepts(took); passes++ {
			if passes == 500 {
				if took > longPass-time.Millisecond { // that is what the passes approach
					return
				}
				r.Fatalf("after %d passes, which take %s, it has not ended", passes, took)
			}
			previous, took = took, empty+time.Duration(growth*float64(took))
			shrinks = shrinks && 3*took <= 2*previous
		}
		if took > longPass || shrinks && took > shortPass {
			r.Fatalf("a pass of %s is accepted", took)
		}
	})
}
