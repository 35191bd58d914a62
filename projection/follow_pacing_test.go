package projection

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// simulated returns a pacing of the default constants for a process in which appends are in progress for a share of the
// time.
func simulated(share float64) *Pacing {
	began := time.Now()
	<-time.After(shareInterval)
	return &Pacing{
		appendingFor: func() time.Duration { return time.Duration(share * float64(time.Since(began))) },
		perWork:      pausePerWork, longest: longestPause, at: began,
	}
}

// However many workers fold backlogs, all of them together work for a fifth of the time while appends are always in
// progress, and for more of it if they are not. They do not pause at all while there are almost no appends.
func TestBacklogsTogetherLeaveRoomForAppends(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		workers := rapid.IntRange(1, 6).Draw(r, "workers")
		share := rapid.Float64Range(0, 1).Draw(r, "share")
		longestWork := longestPause / pausePerWork / time.Duration(workers) // so that no pause is cut short
		works := rapid.SliceOfN(rapid.Int64Range(int64(10*time.Millisecond), int64(longestWork)), 1, 10).Draw(r, "works")
		const duration = 20 * time.Second
		var worked time.Duration
		var mu sync.Mutex
		synctest.Test(t, func(*testing.T) {
			p := simulated(share)
			began := time.Now()
			var all sync.WaitGroup
			for range workers {
				all.Go(func() {
					for i := 0; time.Since(began) < duration; i++ {
						work := time.Duration(works[i%len(works)])
						<-time.After(work)
						mu.Lock()
						worked += work
						mu.Unlock()
						<-time.After(p.pauseAfter(work))
					}
				})
			}
			all.Wait()
		})
		most := time.Duration(workers) * (duration + longestWork)
		if share < lowShare*0.99 {
			if worked < time.Duration(workers)*duration {
				r.Fatalf("they worked for %s although there were no appends", worked)
			}
			return
		}
		if share > lowShare*1.01 {
			most = time.Duration(float64(duration+longestPause) / share / pausePerWork)
		}
		if worked > most+time.Duration(workers)*longestWork {
			r.Fatalf("they worked for %s, want at most %s", worked, most)
		}
	})
}

// A paced pair folds one and a half times as many events as its log grows, if it can, so that it catches up.
func TestPacedBacklogGainsOnItsLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		work := time.Duration(rapid.Int64Range(int64(20*time.Millisecond), int64(time.Second)).Draw(r, "work for a reading"))
		perSecond := float64(pacedEvents) / work.Seconds()
		growth := rapid.Float64Range(0, perSecond/2).Draw(r, "growth per second")
		var folded, grown int64
		synctest.Test(t, func(*testing.T) {
			p := &pair{backlog: &backlog{seen: 1000, head: 1_000_000}}
			turn := turn{Runner: &Runner{config: RunnerConfig{Pacing: simulated(1)}}, pair: p}
			for began := time.Now(); time.Since(began) < time.Minute; <-time.After(turn.pause) {
				<-time.After(work)
				folded += pacedEvents
				grown = int64(growth * time.Since(began).Seconds())
				turn.recordPause(&prepared{upTo: p.backlog.seen + folded, reading: domain.Reading{Head: p.backlog.head + grown}}, work)
				if turn.pause > longestPause {
					r.Fatalf("it pauses for %s", turn.pause)
				}
			}
			grown = int64(growth * 60)
		})
		// What grows during one pause is folded after it.
		if least := 1.5*float64(grown) - 3*growth*(longestPause+work).Seconds() - pacedEvents; float64(folded) < least {
			r.Fatalf("it has folded %d events while its log has grown by %d", folded, grown)
		}
	})
}
