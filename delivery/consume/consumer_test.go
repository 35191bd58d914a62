package consume_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/domain"
)

func TestEventsArrivingDuringARunAreDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		go1 := make(chan struct{})
		c := &consumer{work: func(_ context.Context, run int) time.Time {
			if run == 1 {
				<-go1
			}
			return time.Time{}
		}}
		w.list(w.tenants[0], c.as("webhook.a", "1"))
		d, _ := start(t, w, consume.Config{})
		expectRuns(t, c, 1)
		for n := range 10 {
			d.Wake(domain.Head{Tenant: w.tenants[0], Position: int64(n)})
			synctest.Wait()
		}
		expectRuns(t, c, 1)
		close(go1)
		expectRuns(t, c, 2) // once for all ten
		if c.most != 1 {
			t.Errorf("%d runs were at the same time", c.most)
		}
	})
}

func TestConsumersSleepUntilSomethingIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		c := &consumer{result: func(run int) (time.Time, error) {
			if run <= 2 {
				return time.Now().Add(time.Hour), nil
			}
			return time.Time{}, nil
		}}
		w.list(w.tenants[0], c.as("webhook.a", "1"))
		d, _ := start(t, w, consume.Config{})
		expectRuns(t, c, 1)
		pass(time.Hour - time.Second)
		expectRuns(t, c, 1)
		pass(time.Second)
		expectRuns(t, c, 2)
		d.Wake(domain.Head{Tenant: w.tenants[0], Position: 2}) // earlier than it asked for
		expectRuns(t, c, 3)
		pass(2 * time.Hour)
		expectRuns(t, c, 3)
	})
}

func TestConsumerThatIsAlwaysDueDoesNotSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		c := &consumer{result: func(int) (time.Time, error) { return time.Now().Add(-time.Second), nil }}
		w.list(w.tenants[0], c.as("webhook.a", "1"))
		start(t, w, consume.Config{})
		pass(time.Second)
		if n := c.runs(); n < 10 || n > 200 {
			t.Errorf("it ran %d times in a second", n)
		}
	})
}

func TestPausesAfterErrorsGrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		var works atomic.Bool
		c := &consumer{result: func(int) (time.Time, error) {
			if !works.Load() {
				return time.Time{}, errors.New("broken")
			}
			return time.Time{}, nil
		}}
		other := &consumer{}
		w.list(w.tenants[0], c.as("webhook.a", "1"), other.as("webhook.b", "1"))
		d, _ := start(t, w, consume.Config{PauseMin: time.Second, PauseMax: 10 * time.Second})
		expectRuns(t, c, 1)
		for range 30 {
			pass(10 * time.Second / 30)
			d.Wake(domain.Head{Tenant: w.tenants[0], Position: 2}) // which does not shorten the pause
		}
		synctest.Wait()
		if n := c.runs(); n < 3 || n > 7 {
			t.Errorf("it ran %d times in 10 s, with pauses of 1, 2, 4 and 8 s or half of that", n)
		}
		if n := other.runs(); n < 30 {
			t.Errorf("the other one ran %d times", n)
		}
		if working, bad := d.Count(); working != 0 || bad != 1 {
			t.Errorf("%d work and %d fail", working, bad)
		}
		pass(time.Hour)
		synctest.Wait()
		c.mu.Lock()
		at := slices.Clone(c.at)
		c.mu.Unlock()
		for i := 6; i < len(at); i++ {
			if pause := at[i].Sub(at[i-1]); pause < 5*time.Second || pause > 10*time.Second {
				t.Fatalf("pause %d is %s", i, pause)
			}
		}
		works.Store(true)
		pass(10 * time.Second)
		synctest.Wait()
		n := c.runs()
		d.Wake(domain.Head{Tenant: w.tenants[0], Position: 3})
		expectRuns(t, c, n+1)
		if _, bad := d.Count(); bad != 0 {
			t.Errorf("%d still fail", bad)
		}
	})
}

func TestNewRevisionStartsAfterTheOldOneReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		release := make(chan struct{})
		old := &consumer{work: func(ctx context.Context, _ int) time.Time {
			<-ctx.Done()
			<-release
			return time.Time{}
		}}
		fresh := &consumer{}
		w.list(w.tenants[0], old.as("webhook.a", "1"))
		d, _ := start(t, w, consume.Config{})
		expectRuns(t, old, 1)
		w.list(w.tenants[0], fresh.as("webhook.a", "2"))
		d.Notice(w.tenants[0])
		expectRuns(t, fresh, 0)
		close(release)
		expectRuns(t, fresh, 1)
		expectRuns(t, old, 1)
		if old.stopped != 1 {
			t.Errorf("the old one was stopped %d times", old.stopped)
		}
	})
}

func TestNewRevisionDoesNotWaitForPausesOfTheOldOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		old := &consumer{result: func(int) (time.Time, error) { return time.Time{}, errors.New("broken") }}
		fresh := &consumer{}
		w.list(w.tenants[0], old.as("webhook.a", "1"))
		d, _ := start(t, w, consume.Config{PauseMin: time.Hour, PauseMax: time.Hour})
		expectRuns(t, old, 1)
		w.list(w.tenants[0], fresh.as("webhook.a", "2"))
		d.Notice(w.tenants[0])
		expectRuns(t, fresh, 1)
		pass(2 * time.Hour)
		expectRuns(t, old, 1)
		expectRuns(t, fresh, 1)
	})
}

func TestUnlistedConsumerIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		wait := func(ctx context.Context, _ int) time.Time {
			<-ctx.Done()
			return time.Time{}
		}
		gone, stays := &consumer{work: wait}, &consumer{work: wait}
		asleep := &consumer{result: func(int) (time.Time, error) { return time.Now().Add(time.Minute), nil }}
		w.list(w.tenants[0], gone.as("webhook.a", "1"), stays.as("webhook.b", "1"), asleep.as("webhook.c", "1"))
		d, _ := start(t, w, consume.Config{})
		expectRuns(t, asleep, 1)
		w.list(w.tenants[0], stays.as("webhook.b", "1"))
		d.Notice(w.tenants[0])
		pass(time.Hour)
		synctest.Wait()
		if gone.stopped != 1 || stays.stopped != 0 {
			t.Errorf("stopped: %d of the one that is gone, %d of the other", gone.stopped, stays.stopped)
		}
		expectRuns(t, asleep, 1)
		// It may be listed again while its old run has not ended, and then runs again.
		w.list(w.tenants[0], gone.as("webhook.a", "1"), stays.as("webhook.b", "1"))
		d.Notice(w.tenants[0])
		expectRuns(t, gone, 2)
	})
}
