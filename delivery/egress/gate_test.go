package egress

import (
	"testing"
	"time"
)

func TestClosedGateAdmitsOneTryAtATime(t *testing.T) {
	t.Parallel()
	g := gate{least: time.Second, most: time.Minute}
	now := time.Now()
	mustEnter := func(want bool) time.Time {
		t.Helper()
		ok, nextTry := g.enter(now)
		if ok != want {
			t.Fatalf("it lets in: %t", ok)
		}
		if !ok && !nextTry.After(now) {
			t.Fatalf("the gate says to try again at %s; now is %s", nextTry, now)
		}
		return nextTry
	}
	mustEnter(true)
	mustEnter(true)
	var pauses []time.Duration
	for range 10 {
		first, nextTry := g.failed(now)
		if first != (len(pauses) == 0) {
			t.Errorf("failure %d is the first: %t", len(pauses), first)
		}
		if _, later := g.failed(now); later.Sub(nextTry) > time.Second {
			t.Error("two that fail at once count as two")
		}
		pauses = append(pauses, g.until.Sub(now))
		mustEnter(false)
		now = nextTry.Add(time.Second)
		mustEnter(true)
		mustEnter(false) // one caller tries
	}
	for i, pause := range pauses {
		if want := min(time.Second<<i, time.Minute); pause != want {
			t.Errorf("pause %d is %s; want %s", i, pause, want)
		}
	}
	g.release()
	mustEnter(true)
	now = now.Add(2 * probeTimeout)
	mustEnter(true) // the caller that tried is considered lost
	if !g.succeeded() || g.succeeded() {
		t.Error("the gate must report once that it is open")
	}
	mustEnter(true)
	mustEnter(true)
	if !g.open() {
		t.Error("it is not open")
	}
}
