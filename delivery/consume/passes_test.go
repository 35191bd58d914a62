package consume_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/domain"
)

func TestPassRunsAFewConsumersAtATimeAndDoesNotWaitForSlowOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(100)
		quick := &consumer{work: func(context.Context, int) time.Time {
			pass(10 * time.Millisecond)
			return time.Time{}
		}}
		slow := &consumer{work: func(ctx context.Context, _ int) time.Time {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			return time.Time{}
		}}
		for i, tenant := range w.tenants {
			c := quick
			if i < 10 {
				c = slow // the first ones, more than may run at a time
			}
			w.list(tenant, c.as("webhook.a", "1"))
		}
		start(t, w, consume.Config{Admitted: 4})
		pass(4 * time.Second)
		synctest.Wait()
		if quick.runs() != 90 || slow.runs() != 10 {
			t.Errorf("%d of 90 quick ones and %d of 10 slow ones were run", quick.runs(), slow.runs())
		}
		if quick.most > 4 {
			t.Errorf("%d were run at the same time", quick.most)
		}
	})
}

func TestGrowingLogDoesNotWaitForAPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		hangs := func(ctx context.Context, _ int) time.Time {
			<-ctx.Done()
			return time.Time{}
		}
		good := &consumer{}
		var all []consume.Consumer
		for i := range 100 {
			all = append(all, (&consumer{work: hangs}).as(fmt.Sprintf("webhook.%d", i), "1"))
		}
		w.list(w.tenants[0], append(all, good.as("webhook.good", "1"))...)
		d, _ := start(t, w, consume.Config{Admitted: 4})
		pass(2500 * time.Millisecond)
		expectRuns(t, good, 0) // it is not reached soon
		d.Wake(domain.Head{Tenant: w.tenants[0], Position: 2})
		pass(time.Second)
		expectRuns(t, good, 1)
	})
}

func TestTenantsThatAreNoLongerOwnedAreLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2)
		wait := func(ctx context.Context, _ int) time.Time {
			<-ctx.Done()
			return time.Time{}
		}
		lost, kept := &consumer{work: wait}, &consumer{work: wait}
		w.list(w.tenants[0], lost.as("webhook.a", "1"))
		w.list(w.tenants[1], kept.as("webhook.a", "1"))
		d, _ := start(t, w, consume.Config{})
		expectRuns(t, lost, 1)
		w.set(func() { w.lost[w.tenants[0]] = true })
		d.Rebalance()
		pass(time.Minute)
		d.Wake(domain.Head{Tenant: w.tenants[0], Position: 2})
		expectRuns(t, lost, 1)
		expectRuns(t, kept, 1)
		if lost.stopped != 1 || kept.stopped != 0 {
			t.Errorf("stopped: %d of the lost tenant's, %d of the other's", lost.stopped, kept.stopped)
		}
		if n := d.Known(); n != 1 {
			t.Errorf("%d tenants are in memory", n)
		}
		w.set(func() { w.lost[w.tenants[0]] = false })
		d.Rebalance()
		pass(time.Minute)
		expectRuns(t, lost, 2)
	})
}

func TestFailingSourceDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, bad := newWorld(1), newWorld(0)
		tenant := good.tenants[0]
		bad.fails = errors.New("broken")
		c, hidden := &consumer{}, &consumer{}
		good.list(tenant, c.as("webhook.a", "1"))
		bad.list(tenant, hidden.as("reactor.a", "1"))
		d, _ := start(t, good, consume.Config{Sources: []consume.Source{bad, good}, PauseMin: 4 * time.Second, PauseMax: 4 * time.Second})
		expectRuns(t, c, 1)
		for n := range 10 {
			d.Wake(domain.Head{Tenant: tenant, Position: int64(n + 2)})
			expectRuns(t, c, n+2)
		}
		if bad.asked != 1 {
			t.Errorf("the broken source was asked %d times", bad.asked)
		}
		bad.set(func() { bad.fails = nil })
		pass(5 * time.Second)
		expectRuns(t, hidden, 1)
		// Running consumers continue while their source fails.
		waits := &consumer{work: func(ctx context.Context, _ int) time.Time {
			<-ctx.Done()
			return time.Time{}
		}}
		bad.list(tenant, waits.as("reactor.a", "2"))
		d.Notice(tenant)
		expectRuns(t, waits, 1)
		bad.set(func() { bad.fails = errors.New("broken again") })
		d.Notice(tenant)
		pass(time.Minute)
		synctest.Wait()
		if waits.stopped != 0 {
			t.Error("what runs was stopped since its source fails")
		}
	})
}

func TestFailedPassIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		w.down = errors.New("no answer")
		w.tenants, w.listed = nil, make(map[domain.TenantID][]consume.Consumer)
		tenant := domain.NewTenantID()
		c := &consumer{}
		w.list(tenant, c.as("webhook.a", "1"))
		start(t, w, consume.Config{})
		pass(10 * time.Second)
		expectRuns(t, c, 0)
		w.set(func() { w.down, w.tenants = nil, []domain.TenantID{tenant} })
		pass(10 * time.Second)
		expectRuns(t, c, 1)
	})
}
