package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

func codeOf(err error) domain.Code {
	if problem, ok := errors.AsType[*domain.Error](err); ok {
		return problem.Code
	}
	return ""
}

// Neither a tenant nor all tenants together exceed their limit. Requests of one tenant enter in the order of their
// arrival. No tenant enters twice while another tenant waits that may enter.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(bubble *testing.T) {
			most, each := rapid.IntRange(1, 4).Draw(rt, "most"), rapid.IntRange(1, 4).Draw(rt, "each")
			q := newQueue(most, each, 0)
			tenants := []domain.TenantID{domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()}
			type asking struct{ tenant, number int }
			entered := make(chan asking, 1000)
			cancels := make(map[asking]context.CancelFunc)
			waiting, inside := make([][]int, len(tenants)), make([]int, len(tenants))
			number := 0
			settle := func() {
				synctest.Wait()
				for len(entered) > 0 {
					in := <-entered
					if waiting[in.tenant][0] != in.number {
						rt.Fatalf("%d was let in before %v of its tenant", in.number, waiting[in.tenant])
					}
					waiting[in.tenant] = waiting[in.tenant][1:]
					inside[in.tenant]++
				}
				total := 0
				for i, n := range inside {
					if total += n; n > each || n != q.has(tenants[i]) {
						rt.Fatalf("a tenant has %d inside of %d, and by the queue %d", n, each, q.has(tenants[i]))
					}
				}
				for i := range tenants {
					if total < most && inside[i] < each && len(waiting[i]) > 0 {
						rt.Fatalf("a tenant waits, although there is room")
					}
				}
				if total > most {
					rt.Fatalf("%d are inside of %d", total, most)
				}
			}
			rt.Repeat(map[string]func(*rapid.T){
				"enter": func(rt *rapid.T) {
					a := asking{rapid.IntRange(0, len(tenants)-1).Draw(rt, "tenant"), number}
					number++
					ctx, cancel := context.WithCancel(bubble.Context())
					cancels[a] = cancel
					waiting[a.tenant] = append(waiting[a.tenant], a.number)
					go func() {
						if q.enter(ctx, tenants[a.tenant]) == nil {
							entered <- a
						}
					}()
					settle()
				},
				"leave": func(rt *rapid.T) {
					tenant := rapid.IntRange(0, len(tenants)-1).Draw(rt, "tenant")
					if inside[tenant] == 0 {
						rt.Skip()
					}
					inside[tenant]--
					q.leave(tenants[tenant])
					settle()
				},
				"give up": func(rt *rapid.T) {
					tenant := rapid.IntRange(0, len(tenants)-1).Draw(rt, "tenant")
					if len(waiting[tenant]) == 0 {
						rt.Skip()
					}
					at := rapid.IntRange(0, len(waiting[tenant])-1).Draw(rt, "which")
					cancels[asking{tenant, waiting[tenant][at]}]()
					waiting[tenant] = append(waiting[tenant][:at:at], waiting[tenant][at+1:]...)
					settle()
				},
			})
			for i := range tenants {
				for len(waiting[i]) > 0 || inside[i] > 0 {
					if inside[i] > 0 {
						inside[i]--
						q.leave(tenants[i])
					} else {
						cancels[asking{i, waiting[i][0]}]()
						waiting[i] = waiting[i][1:]
					}
					settle()
				}
			}
			for _, cancel := range cancels {
				cancel()
			}
			if len(q.tenants) > 0 || q.ring.Len() > 0 {
				rt.Fatalf("%d tenants are remembered with nothing under way", len(q.tenants))
			}
		})
	})
}

// However many requests of one tenant wait, another tenant enters next.
func TestABusyTenantLetsOthersIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(2, 2, 0)
		ctx, cancel := context.WithCancel(t.Context())
		busy, quiet := domain.NewTenantID(), domain.NewTenantID()
		order := make(chan domain.TenantID, 100)
		enter := func(tenant domain.TenantID) {
			go func() {
				if q.enter(ctx, tenant) == nil {
					order <- tenant
				}
			}()
			synctest.Wait()
		}
		for range 12 {
			enter(busy)
		}
		enter(quiet)
		for range 2 {
			<-order
		}
		q.leave(busy)
		q.leave(busy)
		synctest.Wait()
		if first, second := <-order, <-order; first != quiet && second != quiet {
			t.Error("two more of the busy tenant were let in before the quiet one")
		}
		cancel()
		synctest.Wait()
	})
}

func TestTooManyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(Limits{Places: 1, TenantPlaces: 1, Waiting: 1, Time: time.Second})
		tenant := domain.NewTenantID()
		_, end, err := r.Begin(t.Context(), tenant, "")
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		refused := make(chan error, 1)
		go func() {
			_, _, err := r.Begin(t.Context(), tenant, "")
			refused <- err
		}()
		synctest.Wait()
		if _, _, err := r.Begin(t.Context(), tenant, ""); codeOf(err) != domain.CodeTooManyRequests {
			t.Errorf("the second that waits gets %v", err)
		}
		if err := <-refused; codeOf(err) != domain.CodeTooManyRequests {
			t.Errorf("after a second the first that waits gets %v", err)
		}
		if _, _, err := r.Begin(t.Context(), domain.NewTenantID(), ""); codeOf(err) != domain.CodeOverloaded {
			t.Errorf("where others have all places, a tenant gets %v", err)
		}
	})
}

func TestARequestEndsWithItsBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(Limits{Steps: 1000, Time: time.Second})
		begin := func() (context.Context, func()) {
			ctx, end, err := r.Begin(t.Context(), domain.NewTenantID(), "ask for less")
			if err != nil {
				t.Fatal(err)
			}
			return ctx, end
		}
		ctx, end := begin()
		inner, innerEnd, err := r.Begin(ctx, domain.NewTenantID(), "")
		if err != nil || inner != ctx {
			t.Errorf("a request within a request: %v", err)
		}
		innerEnd()
		err = Work(ctx, func() error {
			for meter := expr.MeterOf(ctx); meter.Spend(100); {
			}
			return errors.New("something else")
		})
		if codeOf(err) != domain.CodeTooCostly {
			t.Errorf("after its steps it ends with %v", err)
		}
		end()
		ctx, end = begin()
		<-ctx.Done()
		if err := Work(ctx, func() error { return nil }); codeOf(err) != domain.CodeOverloaded {
			t.Errorf("after its time it ends with %v", err)
		}
		end()
		if r.places.inside != 0 || r.turns.inside != 0 {
			t.Errorf("%d places and %d turns are still taken", r.places.inside, r.turns.inside)
		}
	})
}

// A long computation gives up its turn when another request waits, and continues afterwards.
func TestALongComputationGivesItsTurnUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(Limits{Time: time.Hour})
		r.turns = newQueue(1, 1, 0)
		begin := func() context.Context {
			ctx, end, err := r.Begin(t.Context(), domain.NewTenantID(), "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(end)
			return ctx
		}
		long, short := begin(), begin()
		started, done := make(chan struct{}), make(chan struct{})
		var took time.Duration
		go func() {
			defer close(done)
			<-started
			began := time.Now()
			if err := Work(short, func() error { return nil }); err != nil {
				t.Error(err)
			}
			took = time.Since(began)
		}()
		steps := 0
		err := Work(long, func() error {
			close(started)
			meter := expr.MeterOf(long)
			for range 1000 {
				<-time.After(time.Millisecond) // the computation, on the test's own clock
				meter.Spend(1)
				steps++
			}
			return nil
		})
		<-done
		if err != nil || steps != 1000 {
			t.Errorf("the long one took %d steps: %v", steps, err)
		}
		if took > 2*turnTime {
			t.Errorf("the short one waited %s for its turn", took)
		}
	})
}
