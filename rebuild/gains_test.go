package rebuild

import (
	"testing"

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
