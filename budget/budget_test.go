package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/fairshare"
)

func codeOf(err error) domain.Code {
	if problem, ok := errors.AsType[*domain.Error](err); ok {
		return problem.Code
	}
	return ""
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

func TestRequestEndsAtItsLimits(t *testing.T) {
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
		if r.places.Used() != 0 || r.turns.Used() != 0 {
			t.Errorf("%d places and %d turns are still taken", r.places.Used(), r.turns.Used())
		}
	})
}

// A long computation gives up its turn when another request waits, and continues afterwards.
func TestLongComputationPassesItsTurnOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(Limits{Time: time.Hour})
		r.turns = fairshare.New("computations", 1, 1)
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
