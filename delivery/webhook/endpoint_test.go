package webhook

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// must takes a slot that has to be available.
func must(t interface{ Fatal(...any) }, e *endpoint) slot {
	s, ok, _ := e.tryAcquire(time.Now())
	if !ok {
		t.Fatal("there is no room")
	}
	return s
}

func fastPace() *pace {
	p := newPace()
	return &p
}

// The window grows with accepted requests, up to its bound, and shrinks with rejected ones.
func TestWindow(t *testing.T) {
	t.Parallel()
	e := newEndpoint(fastPace(), new(atomic.Int64))
	if room, _ := e.room(time.Now()); room != firstWindow {
		t.Errorf("there is room for %d to begin with", room)
	}
	for range 200 {
		must(t, e).accepted(time.Second)
	}
	if room, _ := e.room(time.Now()); room != maxWindow {
		t.Errorf("a good endpoint has room for %d", room)
	}
	for want := maxWindow / 2; want >= maxWindow/8; want /= 2 {
		must(t, e).failed(time.Now(), 0)
		if room, _ := e.room(time.Now()); room != want {
			t.Errorf("there is room for %d, not %d", room, want)
		}
	}
	// Requests that say nothing about the endpoint change nothing.
	must(t, e).end()
	if room, _ := e.room(time.Now()); room != maxWindow/8 || e.open() {
		t.Errorf("there is room for %d", room)
	}
}

// If very many requests are running, each endpoint has one, so that none is blocked.
func TestVeryManyRequests(t *testing.T) {
	t.Parallel()
	var all atomic.Int64
	var slots []slot
	for all.Load() < maxSending {
		slots = append(slots, must(t, newEndpoint(fastPace(), &all)))
	}
	e := newEndpoint(fastPace(), &all)
	one := must(t, e)
	if _, ok, shut := e.tryAcquire(time.Now()); ok || shut {
		t.Error("it has two")
	}
	one.accepted(time.Second)
	must(t, e).end()
	for _, s := range slots {
		s.end()
	}
	must(t, e)
	must(t, e)
	if all.Load() != 2 {
		t.Errorf("%d are under way", all.Load())
	}
}

// While a webhook probes the endpoint, its replay does not look again and again, and the other way round.
func TestProbeOfTheReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint(fastPace(), new(atomic.Int64))
		for range openAfter {
			must(t, e).failed(time.Now(), 0)
		}
		<-time.After(longestPause)
		probe := must(t, e)
		c := &consumer{endpoint: e}
		nextRun, err := c.run(t.Context())
		if err != nil || time.Until(nextRun) < probeWait {
			t.Errorf("it looks again in %s, %v", time.Until(nextRun), err)
		}
		probe.failed(time.Now(), 0)
		nextRun, err = c.run(t.Context())
		if _, until := e.room(time.Now()); err != nil || !nextRun.Equal(until) {
			t.Errorf("it looks again at %s, %v; the next probe is due at %s", nextRun, err, until)
		}
	})
}

func TestFastEndpointGetsMore(t *testing.T) {
	t.Parallel()
	e := newEndpoint(fastPace(), new(atomic.Int64))
	for range 100 {
		must(t, e).accepted(time.Millisecond)
	}
	if room, _ := e.room(time.Now()); room != fastRoom*maxWindow {
		t.Errorf("there is room for %d", room)
	}
	for range 100 {
		must(t, e).accepted(time.Second)
	}
	if room, _ := e.room(time.Now()); room != maxWindow {
		t.Errorf("when it is slow, there is room for %d", room)
	}
}

// Concurrent requests never exceed the window, whatever their outcomes, and no waiting caller is forgotten.
func TestWindowIsNeverExceeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := newEndpoint(fastPace(), new(atomic.Int64))
		var sending atomic.Int64
		var all sync.WaitGroup
		outcomes := rapid.SliceOfN(rapid.IntRange(0, 2), 20, 200).Draw(t, "outcomes")
		for _, outcome := range outcomes {
			all.Go(func() {
				s, ok := e.acquire(context.Background())
				if !ok {
					return // the breaker is open
				}
				if now := sending.Add(1); now > maxWindow {
					t.Errorf("%d requests are under way", now)
				}
				sending.Add(-1)
				switch outcome {
				case 0:
					s.accepted(time.Millisecond)
				case 1:
					s.failed(time.Now(), 0)
				default:
					s.end()
				}
			})
		}
		all.Wait()
		if e.sending != 0 || e.window < 1 || e.window > maxWindow {
			t.Fatalf("at the end %d are under way, in a window of %d", e.sending, e.window)
		}
	})
}

// After several consecutive failures, one probe is allowed after each pause. The pauses grow up to their bound, and the
// first success closes the breaker.
func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint(fastPace(), new(atomic.Int64))
		for range openAfter - 1 {
			must(t, e).failed(time.Now(), 0)
			must(t, e).end()
		}
		if e.open() {
			t.Fatal("it opens too soon")
		}
		must(t, e).failed(time.Now(), 0)
		want := firstPause
		for n := range 12 {
			room, until := e.room(time.Now())
			pause := time.Until(until)
			if !e.open() || room != 0 || pause < want*4/5 || pause > want*6/5 {
				t.Fatalf("opened %d times: room for %d in %s, not %s", n+1, room, pause, want)
			}
			if _, ok, shut := e.tryAcquire(time.Now().Add(pause - 1)); ok || !shut {
				t.Fatal("it lets something through before its time")
			}
			<-time.After(pause)
			if room, until := e.room(time.Now()); room != 1 || !until.IsZero() {
				t.Fatalf("when a probe is due, there is room for %d, until %s", room, until)
			}
			probe := must(t, e)
			if room, _ := e.room(time.Now()); room != 0 {
				t.Fatalf("beside the probe there is room for %d", room)
			}
			if _, ok, _ := e.tryAcquire(time.Now()); ok {
				t.Fatal("it lets a second one through")
			}
			if n == 11 {
				probe.accepted(time.Second)
				break
			}
			if n == 3 { // a probe without a result leaves the next one free
				probe.end()
				probe = must(t, e)
			}
			probe.failed(time.Now(), 0)
			want = min(2*want, longestPause)
		}
		if room, _ := e.room(time.Now()); e.open() || room != 2 {
			t.Errorf("it has recovered: open %t, room for %d", e.open(), room)
		}
		// One failure is no reason to open it again.
		must(t, e).failed(time.Now(), 0)
		if e.open() {
			t.Error("it opens with the first failure")
		}
	})
}

// Requests that were running when the breaker opened do not keep it open for longer.
func TestManyFailuresAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint(fastPace(), new(atomic.Int64))
		for range 200 {
			must(t, e).accepted(time.Second)
		}
		var slots []slot
		for range maxWindow {
			slots = append(slots, must(t, e))
		}
		for _, s := range slots {
			s.failed(time.Now(), 0)
		}
		if _, until := e.room(time.Now()); time.Until(until) > firstPause*6/5 {
			t.Errorf("it lets the next one through in %s", time.Until(until))
		}
	})
}

// An endpoint's Retry-After is respected, up to a limit.
func TestRetryAfterOpensTheBreaker(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, 100 * time.Hour: longestPause} {
		synctest.Test(t, func(t *testing.T) {
			e := newEndpoint(fastPace(), new(atomic.Int64))
			must(t, e).failed(time.Now(), asked)
			if room, until := e.room(time.Now()); room != 0 || time.Until(until) != want {
				t.Errorf("asked for %s: there is room for %d in %s", asked, room, time.Until(until))
			}
		})
	}
}

// Waiting callers are released when the breaker opens, and when ctx ends.
func TestWaitingForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint(fastPace(), new(atomic.Int64))
		var slots []slot
		for range firstWindow {
			slots = append(slots, must(t, e))
		}
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan bool, 3)
		wait := func() { _, ok := e.acquire(ctx); answers <- ok }
		go wait()
		synctest.Wait()
		cancel()
		if <-answers {
			t.Error("there is room where there is none")
		}
		ctx = t.Context()
		go wait()
		go wait()
		go wait()
		synctest.Wait()
		slots[0].accepted(time.Second) // the window grows: two have room
		for range 2 {
			if !<-answers {
				t.Error("there is no room where there is some")
			}
		}
		synctest.Wait()
		for _, s := range slots[1:] {
			s.failed(time.Now(), time.Minute)
		}
		if <-answers {
			t.Error("an open breaker lets one through")
		}
	})
}
